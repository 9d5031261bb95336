"""The demo: the real DAG upgrades or downgrades a real cluster on this machine.

Everything of one demo is in .demo/<id> below the checkout: nodes, inventory, Airflow's home, runs and reports.
"""
