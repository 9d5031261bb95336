"""The offline downgrade: all nodes stop."""
