"""Opens the ports with the real clients and files; the process of a rehearsal's sandbox.

Outside: what the lower rooms reach.

Begin with:
- `cluster_ports.open_cluster_ports`: opens the ports of a cluster
- `runs.write_run_report`: builds, renders and stores the report of a run
- `rehearsal.main`: the process of a rehearsal
"""
