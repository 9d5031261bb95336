"""The inventory of a running cluster, from the answers of its brokers."""
