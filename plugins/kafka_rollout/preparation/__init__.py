"""What a run observes and plans before its first change, and checks again before each.

Begin with:
- `plan_making.plan_change`: observes the cluster and plans a change of releases
- `plan_making.freeze`: stores the plan in the history of the run
- `frozen_plan.check_plan`: the check of the frozen plan before each action
- `node_checks.check_hosts`: configuration, Java and host of each node
- `state_comparison.compare_with_state`: what the run has changed of the cluster
"""
