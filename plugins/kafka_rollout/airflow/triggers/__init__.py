"""Paths under which the database of Airflow has triggers of earlier versions."""
