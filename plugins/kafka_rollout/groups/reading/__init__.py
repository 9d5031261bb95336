"""Outside: the coordinator logs of a running cluster."""
