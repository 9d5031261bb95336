"""Formats of records and messages, compression, the log cleaner, and the client of the brokers.

Begin with:
- `formats.record_batch.batches`: the complete batches of a buffer
- `formats.messages.decode`: decodes a message by its definition
- `formats.coordinator_records.classify`: key version and value version of a coordinator record
- `formats.log_types.RecordKind`: records with the same key version and value version
- `documents.definitions.Schemas`: the layouts with which each release reads each coordinator log
- `client.requests.ClusterConnections`: connections to the nodes of a cluster
- `client.admin.KafkaAdmin`: the administration of a cluster
- `client.fetch.FetchSource`: reads raw batches from the brokers
- `client.security.client_security.ClientSecurity`: credentials and certificates of a client
- `cleaning.CleaningConfig`: decides when the log cleaner runs on a topic
"""
