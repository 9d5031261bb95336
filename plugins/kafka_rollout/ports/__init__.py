"""What the steps require of a cluster, as protocols.

Begin with:
- `cluster.ClusterAdmin`: the administration of a cluster
- `cluster.ClusterChanges`: the changes of its metadata
- `cluster.NodeRuntime`: the processes and hosts of nodes
- `cluster.NodeChanges`: stops, replaces and starts a node
- `cluster.Metrics`: the metrics agents of nodes
- `cluster.CoordinatorLogs`: the coordinator logs of a running cluster
- `cluster.MetadataLogs`: the metadata logs in the directories of nodes
- `cluster.MetadataLogChanges`: the changes of stopped nodes' metadata logs
- `cluster.KafkaClasses`: what only Kafka's own classes can answer
"""
