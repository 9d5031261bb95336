"""One use case each: plan, approve, replace a node, finalize, report; the procedures.

Begin with:
- `step.Step`: one step of a procedure as data
- `step.Procedure`: all steps of a kind of run
- `procedures.kinds.KINDS`: the kinds of runs
- `procedures.kinds.UPGRADE`: the procedure of an upgrade
- `runner.Runner`: carries out a procedure in one process
- `common.cluster_ports.ClusterPorts`: the ports of one cluster
- `common.approval.require_approval`: the check of the approval before each action
- `planning.frozen_plan.check_plan`: the check of the frozen plan before each action
- `gates.checks.check_gate`: checks a gate once
- `roll.node.replace_node`: replaces the binary of one node
"""
