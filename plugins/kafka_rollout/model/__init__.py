"""A cluster as observed: topology, state, contents, configuration and groups; the plan.

Begin with:
- `topology.ClusterSpec`: a cluster of the inventory
- `topology.NodeSpec`: a node of the inventory
- `state.ClusterState`: the observed state of a cluster
- `state.NodeState`: the observed state of a node
- `contents.ClusterInventory`: the contents of a cluster at one time
- `groups.DescribedGroup`: a group with its members
- `host_state.HostState`: the host of a node, as a plan must know it
- `plan.Plan`: the frozen plan of a run
- `plan.ReleaseStep`: all nodes from one release to the next
- `run_of.RunOf`: what a run changes: one name per kind of run
"""
