"""Bytes of record batches, coordinator records and messages, as values and back."""
