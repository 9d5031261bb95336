"""Metadata logs: records, losses, trims, snapshots and the choice of a log (KIP-1155).

Begin with:
- `metadata_scan.MetadataScan`: the scan of one metadata log
- `metadata_scan.LogReadiness`: what a metadata log needs before a release can start on it
- `losses.LossReport`: what a lower metadata.version loses
- `trim.plan_trim`: what to remove before a snapshot
- `log_choice.choose_log`: chooses the log that contains the committed records
- `outage.Outage`: one time without service
- `disk.folder.MetadataFolder`: the folder of a node's metadata log
- `classes.kafka_classes.JvmKafkaClasses`: answers by Kafka's own classes
- `changes.install.install`: replaces a metadata log by a snapshot
- `node_logs.directories.DirectoryMetadataLogs`: the metadata logs of nodes
"""
