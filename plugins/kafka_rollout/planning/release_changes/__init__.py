"""Findings about what a release changes although no file changes."""
