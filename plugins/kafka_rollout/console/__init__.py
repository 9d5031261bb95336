"""What is shown of clusters and runs: console, status, fleet and downgrade options.

Begin with:
- `run_console.Console`: the console of a run
- `run_console.ClusterNow`: the state of a cluster now
- `cluster_status.ClusterStatus`: the status of a cluster for machines
- `fleet.FleetRow`: one cluster of all
- `downgrade_options.judge_options`: the older releases that a cluster can go down to
- `option_details.Option`: one of them with all that is stored about it
"""
