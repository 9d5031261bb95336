"""Metadata logs: records, losses, trims, snapshots and the choice of a log (KIP-1155)."""
