"""A run on a copy of the cluster."""
