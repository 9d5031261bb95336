"""Selection, configuration, estimate and result of a rehearsal.

Begin with:
- `job.RehearsalJob`: the planned change and the copy
- `selection.select_nodes`: the nodes to copy
- `configuration.rewrite_config`: the configuration of a node's copy
- `selection.estimate`: memory and disk that a rehearsal needs
- `machine.local.LocalRehearsals`: makes the copy and runs the rehearsal on this machine
- `machine.sandbox.Sandbox`: the folder of a rehearsal
- `machine.sandbox.GuardedRuntime`: verifies the configuration before each start
- `result.RehearsalResult`: the result with its findings
- `result.read_contents`: the contents of a cluster, to compare
"""
