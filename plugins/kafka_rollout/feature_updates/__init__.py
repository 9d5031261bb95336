"""Changes of the finalized feature levels: validated, sent, proved (UpdateFeatures, KIP-584).

Begin with:
- `levels.ensure_levels`: the levels of a roll
- `update.plan_features`: the plan of a change of features alone
- `update.apply_features`: sends it, with a result for each feature
"""
