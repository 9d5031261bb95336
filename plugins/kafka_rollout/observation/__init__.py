"""The ports of a run, and what they observe of the cluster and its nodes.

Begin with:
- `cluster_ports.ClusterPorts`: the ports of one cluster
- `cluster_ports.ReadPorts`: the same, for a function that only observes
- `cluster_ports.observe`: observes the whole cluster
- `node_steps.node_step_state`: the state of a node step, from the node itself
- `node_logs.read_log`: what the log of a node's process has shown
"""
