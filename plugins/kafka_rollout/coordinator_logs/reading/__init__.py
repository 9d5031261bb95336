"""Outside: log directories and their segment files."""
