"""Runtimes: local processes, systemd units on hosts, none; metrics agents; values of conditions from outside.

Outside: processes, hosts over SSH, metrics agents and Prometheus over HTTP, commands of the operator.

Begin with:
- `runtimes.local_process.LocalProcessRuntime`: nodes as processes of this machine
- `runtimes.hosts.service.SshServiceRuntime`: nodes as systemd units on hosts
- `runtimes.no_runtime.NoRuntime`: nodes that the tool can only observe
- `runtimes.hosts.shells.SshShell`: runs commands on hosts
- `runtimes.hosts.rights.sudoers_files`: the commands that a host must allow
- `metadata_places.HostPlaces`: the directories of nodes on hosts
- `metrics.NodeMetricsReader`: reads metrics agents
- `metric_names.MetricName`: names of the metrics that are read
- `outside.OutsideReader`: reads the values of conditions from outside
"""
