"""Formats of records and messages, compression, the log cleaner, and the client of the brokers."""
