"""Feature levels: rules, requests, answers and support (KIP-584)."""
