"""A cluster as observed: topology, state, contents, configuration and groups; the plan."""
