"""Lower levels that Kafka itself refuses: by a snapshot, with stopped controllers (live) or nodes (offline).

Begin with:
- `live.lower_live`: stops the controllers alone
- `offline.stop_all`: the first step of an offline downgrade
- `lowered_snapshot.write_once`: writes the snapshot at the lower level
- `outage_facts.shown_facts`: what an approval shows of the outage
"""
