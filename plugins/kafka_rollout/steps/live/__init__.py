"""The live downgrade: only the controllers stop."""
