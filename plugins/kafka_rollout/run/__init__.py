"""The history of a run: events, conclusions from them, approvals and services."""
