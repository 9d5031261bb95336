"""Rolling changes: one node after the other."""
