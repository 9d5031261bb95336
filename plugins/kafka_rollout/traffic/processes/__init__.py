"""Outside: background processes, their journals, the brokers."""
