"""What the steps require of a cluster, as protocols."""
