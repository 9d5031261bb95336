"""Release path, order of nodes, plans and findings."""
