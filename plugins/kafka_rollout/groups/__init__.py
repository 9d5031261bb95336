"""Groups and their conversion between protocols, the monitor of a group.

Begin with:
- `findings.group_findings`: groups that a release would not serve
- `group_records.with_records`: completes described groups with what only the coordinator logs contain
- `migration.plan_groups`: the steps that convert each group
- `group_records.conversion_conditions`: the conditions under which the features of groups can be lowered
- `group_records.GroupRecords`: one read of the coordinator logs
- `monitor.MonitoredGroups`: rebalances and unassigned time during a run
- `reading.live.LiveCoordinatorLogs`: reads the coordinator logs of a running cluster
"""
