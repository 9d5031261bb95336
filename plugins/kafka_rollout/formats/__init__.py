"""Formats of records, messages, compression and properties files, and what the log cleaner removes.

Begin with:
- `record_batch.batches`: the complete batches of a buffer
- `messages.decode`: decodes a message by its definition
- `coordinator_records.classify`: key version and value version of a coordinator record
- `log_types.RecordKind`: records with the same key version and value version
- `documents.definitions.Schemas`: the layouts with which each release reads each coordinator log
- `files.server_properties.set_properties`: changes a properties file in a way that can be undone
- `cleaning.CleaningConfig`: decides when the log cleaner runs on a topic
"""
