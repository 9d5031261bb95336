"""The ACLs of a cluster, as the authorizers of the releases of a path decide about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafka_rollout.base.errors import NotObservableError, RefusedError, RolloutError
from kafka_rollout.base.findings import Checked, unknown, unknown_by
from kafka_rollout.model.acls import AUTHORIZER, Acl, describe_access
from kafka_rollout.model.contents import Difference, fingerprint
from kafka_rollout.model.plan import Direction
from kafka_rollout.observation.run import ReadRun
from kafka_rollout.planning.findings.acls import (
    ACL_NOT_KEPT,
    ACLS_CHECK,
    access_of,
    access_subject,
    acl_findings,
    other_authorizers,
)
from kafka_rollout.planning.plan_checks import NO_RESTART

if TYPE_CHECKING:
    from kafka_rollout.model.configs import NodeConfigs
    from kafka_rollout.observation.cluster_ports import ReadPorts
    from kafka_rollout.releases.facts import Release

_NO_AUTHORIZER = "The cluster has no authorizer."
_NOT_COMPARED = "The decisions about ACLs were not compared"
_ACLS, _AUTHORIZER = "ACLs", "authorizer"


def check_acls(run: ReadRun, configs: NodeConfigs) -> Checked:
    """Compare the decisions of the source's authorizer with those of each release of the path.

    It is unknown for ACLs that cannot be listed, and for an authorizer of another kind.
    """
    path = run.plan.path
    if len(set(path)) == 1:
        return ACLS_CHECK.ran(unless=NO_RESTART)
    if configs and not any(config.get(AUTHORIZER, "").strip() for config in configs.values()):
        return ACLS_CHECK.ran(unless=_NO_AUTHORIZER)
    if other := other_authorizers(configs):
        return ACLS_CHECK.ran(unknown=unknown(_AUTHORIZER, other))
    try:
        acls = run.ports.admin.acls()
        if acls is None:
            return ACLS_CHECK.ran(unless=_NO_AUTHORIZER)
        found = run.ports.classes.acl_differences(path[0], path, acls, authorizer_settings(configs)) if acls else {}
    except RolloutError as error:
        return ACLS_CHECK.ran(unknown=unknown_by(error, _ACLS, _NOT_COMPARED))
    down = run.plan.direction is Direction.DOWNGRADE
    return ACLS_CHECK.ran(
        acl_findings(path[0], found, down=down, accepted=run.plan.unsafe),
        unknown=unknown(_AUTHORIZER, "" if configs else f"{AUTHORIZER} of the nodes is unknown."),
    )


def authorizer_settings(configs: NodeConfigs) -> Mapping[str, str]:
    """Return the settings of a node with an authorizer, which all nodes should share; empty if none is known."""
    return next((config for _, config in sorted(configs.items()) if config.get(AUTHORIZER, "").strip()), {})


def access_differences(run: ReadRun, acls: Sequence[Acl], configs: NodeConfigs) -> tuple[Difference, ...]:
    """Return what the target decides otherwise about the ACLs than the source of a plan.

    Expected are those that the plan names. One about ACLs that cannot be compared is unknown.
    """
    source, target = run.plan.source, run.plan.target
    if source == target or not acls:
        return ()
    if other := other_authorizers(configs):
        return (Difference("unknown", "access", other, foretold=True),)  # the plan has said so
    try:
        found = run.ports.classes.acl_differences(source, [target], acls, authorizer_settings(configs))
    except (RefusedError, NotObservableError) as error:
        return (Difference("unknown", "access", f"{_NOT_COMPARED}: {error.sentence}"),)
    approved = access_of(run.plan.findings)
    return tuple(
        Difference(
            "access",
            access_subject(target, one),
            f"{describe_access(one, source, target)} ({fingerprint(sorted(one.decisions))})",
            foretold=approved.issuperset(one.decisions),
        )
        for one in found[target].changes
    )


def unkept_acls(ports: ReadPorts, source: Release, target: Release, configs: NodeConfigs) -> Checked:
    """Check for ACLs that a release to roll back to does not know. Unknown is what the cluster hides of them.

    Raises TransientError or FatalError if the tool or a node fails.
    """
    if other := other_authorizers(configs):
        return ACLS_CHECK.ran(unknown=unknown(_AUTHORIZER, other))
    try:
        acls = ports.admin.acls()
    except NotObservableError as error:
        return ACLS_CHECK.ran([ACL_NOT_KEPT.found(f"{target}, ACLs", error.sentence, error.remedy)])
    except RefusedError as error:  # without the right to list them
        return ACLS_CHECK.ran(unknown=unknown_by(error, _ACLS, _NOT_COMPARED))
    if not acls:
        return ACLS_CHECK.ran(unless=_NO_AUTHORIZER if acls is None else "")
    found = ports.classes.acl_differences(source, [target], acls, authorizer_settings(configs))
    return ACLS_CHECK.ran(
        one for one in acl_findings(source, found, down=True, accepted=False) if one.code == ACL_NOT_KEPT.code
    )
