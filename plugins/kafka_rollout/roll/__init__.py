"""The roll: batches of nodes, their gates, and what happens between stop and start.

Begin with:
- `loop.gate_before`: what a batch waits for before its stop
- `loop.replace`: replaces the nodes of a batch
- `loop.gate_after`: what a batch waits for after its start
- `node.replace_nodes`: stops, installs and starts
- `gate_checks.check_gate`: checks a gate once
- `metadata_logs.make_readable`: trims the log of a stopped node for an older release
"""
