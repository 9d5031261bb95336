"""Test traffic and its check."""
