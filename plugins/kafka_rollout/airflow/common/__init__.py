"""What the tasks share: base class, connection to the cluster, links, node task groups."""
