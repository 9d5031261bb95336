"""Conclusions from the events of a run."""
