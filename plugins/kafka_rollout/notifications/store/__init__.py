"""Outside: the database."""
