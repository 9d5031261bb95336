"""What a plan and the catalogue say about the effective configuration after the run."""

from __future__ import annotations

from collections import defaultdict

from kafka_rollout.model.effective_configs import ExpectedConfigs
from kafka_rollout.model.plan import Plan
from kafka_rollout.planning.findings.configuration import removed_config_names
from kafka_rollout.releases.facts import Catalogue


def find_expected_configs(plan: Plan, catalogue: Catalogue) -> ExpectedConfigs:
    """Return the planned changes of settings. A plan without a release step expects no change of a default.

    A fact that the catalogue lacks explains nothing: the difference then needs an approver.
    """
    dynamic: defaultdict[str, dict[str, str | None]] = defaultdict(dict)
    for change in plan.default_changes:
        dynamic[change.resource][change.key] = change.after
    if not plan.release_steps:
        return ExpectedConfigs(dynamic=dynamic)
    source, target = catalogue.get(plan.source), catalogue.get(plan.target)
    files: defaultdict[int, dict[str, str | None]] = defaultdict(dict)
    for step in plan.release_steps:  # a line of the release in between stays, unless the target changes it again
        for line in plan.config_changes:
            if line.release == step.to_release:
                files[line.node_id][line.key] = line.value
    defaults_known = not any("config_defaults" in facts.gaps for facts in (source, target))
    old, new = source.config_defaults, target.config_defaults
    both = source.config_names & target.config_names
    return ExpectedConfigs(
        defaults={
            name: (old.get(name), new.get(name))
            for name in sorted(both)
            if defaults_known and old.get(name) != new.get(name)
        },
        removed=removed_config_names(catalogue, plan.source, plan.target),
        new=removed_config_names(catalogue, plan.target, plan.source),
        files=files,
        dynamic=dynamic,
    )
