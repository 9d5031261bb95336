"""The facts of a release, from its jars: a tool of its own, which the wheel of kafka-rollout does not contain.

Outside: jars, a JVM with Kafka's classes, the catalogue's files.

Begin with:
- `adding.add_release`: adds a release to the catalogue
- `adding.check_release`: derives a release again and compares
- `facts.derive_facts`: derives all facts of a release
- `adding.facts_document`: the JSON form of the facts
"""
