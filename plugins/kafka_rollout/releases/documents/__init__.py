"""Outside: the catalogue's files."""
