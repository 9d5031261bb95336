"""Sensors for everybody's DAGs."""
