"""Feature levels: check, send, prove."""
