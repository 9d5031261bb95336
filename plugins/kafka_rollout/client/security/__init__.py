"""Credentials and certificates of a client, and how they travel."""
