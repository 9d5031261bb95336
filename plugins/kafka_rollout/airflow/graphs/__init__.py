"""The DAGs: forms, graphs of the procedures, one DAG file for all clusters."""
