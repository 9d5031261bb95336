"""Feature levels: rules, requests, answers and support (KIP-584).

Begin with:
- `rules.check_feature_support`: applies KIP-584's rules to the levels of a plan
- `requests.FeatureOrder`: what an operator asked for, before the cluster is read
- `requests.parse_requests`: the requested levels, from text
- `requests.feature_changes`: the feature changes of a plan
- `support.support_findings`: nodes that do not support a level
- `rules.USERS_CHECK`: the users of a feature, and the effect of a lower level on them
- `requests.FeatureOutcome`: the result for one feature
"""
