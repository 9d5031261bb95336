"""Findings of a plan, one module per subject."""
