"""Hooks for everybody's DAGs."""
