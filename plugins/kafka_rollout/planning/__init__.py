"""Release path, order of nodes, plans and findings.

Begin with:
- `request.Request`: the input of one run: a field per form field and option
- `fields.Field`: one field of a request, as an operator sees it
- `release_path.plan_release_steps`: the release steps to the target
- `observation.PlanObservation`: what was observed for a plan
- `plans.make_plan`: the plan of an upgrade, a downgrade or a restart
- `downgrade.decide_downgrade`: what a downgrade changes
- `plan_checks.check_change`: the checks of a plan
- `findings.cluster_state.check_cluster`: the checks of an observed cluster
- `lowering.LevelUndo`: how a feature returns to its previous level
"""
