"""All modules that import Airflow: approvals, gates, operators, graphs and pages.

Outside: Airflow and its database.
"""
