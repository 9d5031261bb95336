"""Approvals and decisions that Airflow requests and records."""
