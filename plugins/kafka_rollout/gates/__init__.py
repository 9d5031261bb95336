"""Conditions of nodes, controllers, coordinators and the cluster.

Begin with:
- `gate.GateKind`: the gates that there are
- `gate.GateCondition`: one condition: its name, whether it is met, and a sentence
- `gate.GateCheck`: one check of all conditions of a gate
- `gate.GateWatch`: counts consecutive passing checks, and decides whether the gate passed
- `node.check_before_stop`: the conditions before a node stops
- `node.check_after_start`: the conditions after a node starts
- `whole_cluster.check_finalized`: the conditions of the gate after finalizing
- `control.evaluate`: a condition from outside, from its value
- `counters.COUNTER_CHECK`: what a plan finds in the counters that the gates check
"""
