"""The demo: a real cluster under live traffic is upgraded by the real DAG, on this machine.

Everything of one demo lies in .demo/<id> below the checkout: nodes, inventory, Airflow's home, runs and reports.
"""

from kafka_rollout.demo.cleaning import clean, demo_clean
from kafka_rollout.demo.run import main, run_demo

__all__ = ["clean", "demo_clean", "main", "run_demo"]
