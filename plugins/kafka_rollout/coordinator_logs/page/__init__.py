"""Outside: page templates."""
