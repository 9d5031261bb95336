"""Whether all controllers can start again together: for the plan, and again before a run stops all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.findings import Checked, Finding, Severity, UnknownValue, find_new, unknown_by
from kafka_rollout.model.acls import allowed_as_node
from kafka_rollout.model.config_values import same_value
from kafka_rollout.model.configs import HIDDEN, ConfigSource, NodeConfigs
from kafka_rollout.model.listeners import find_listeners
from kafka_rollout.model.plan import Lowering
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import at_once
from kafka_rollout.observation.run import ReadRun
from kafka_rollout.planning.findings.configuration import planned_configs
from kafka_rollout.planning.findings.quorum_start import (
    ONE_VOTER,
    QUORUM_START_CHECK,
    QuorumStart,
    needs_acls,
    quorum_start_findings,
)
from kafka_rollout.preparation.changes_on_disk import InUse
from kafka_rollout.preparation.unknowns import judged

_DYNAMIC = (ConfigSource.NODE, ConfigSource.ALL_BROKERS)


def check_quorum_start(run: ReadRun, configs: NodeConfigs, state: ClusterState, in_use: InUse) -> Checked:
    """Check each start at which all controllers can be down. `configs`: the current configuration by node."""
    stops_all = run.plan.lowering is not Lowering.ONLINE
    first = QuorumStart(cluster=run.cluster, state=state, configs=configs)
    if len(first.voters) < 2:
        return QUORUM_START_CHECK.ran(unless=ONE_VOTER)
    dynamic, unread = _dynamic_values(run, first, in_use) if stops_all else ({}, ())
    planned = planned_configs(run.plan.path, configs, run.plan.config_changes)
    # A live downgrade starts the controllers with their files of now, and so does the undo of an offline one.
    ahead = () if run.plan.lowering is Lowering.LIVE else (planned[release] for release in run.plan.path[1:])
    starts = [replace(first, configs=one, dynamic=dynamic) for one in (configs, *ahead)]
    if any(map(needs_acls, starts)):
        starts = _with_acls(run, starts)
    found = (finding for start in starts for finding in quorum_start_findings(start, stops_all=stops_all))
    unique = {(finding.identity, finding.covers): finding for finding in found}
    return QUORUM_START_CHECK.ran(unique.values(), unknown=unread)


def recheck_quorum_start(run: ReadRun, configs: NodeConfigs, state: ClusterState, in_use: InUse) -> tuple[Finding, ...]:
    """Return what the approvers have not read, as blockers: right before all controllers stop, a doubt is one too.

    Raises TransientError for a value that cannot be read now.
    """
    found = judged(run.plan, [check_quorum_start(run, configs, state, in_use)])
    return tuple(
        replace(finding, severity=Severity.BLOCKER) if finding in new else finding
        for new in [find_new(found, run.plan.findings)]
        for finding in found
    )


def _with_acls(run: ReadRun, starts: list[QuorumStart]) -> list[QuorumStart]:
    try:
        acls = run.ports.admin.acls()
    except RolloutError as error:
        return [replace(one, not_granted=f"the ACLs are unknown. {error.sentence}") for one in starts]
    if acls is None:
        return [replace(one, not_granted="the brokers have no authorizer that lists ACLs.") for one in starts]
    return [replace(one, granted=allowed_as_node(acls)) for one in starts]


def _dynamic_values(
    run: ReadRun, start: QuorumStart, in_use: InUse
) -> tuple[Mapping[int, tuple[str, ...]], tuple[UnknownValue, ...]]:
    """Return controller → settings of its listeners that the metadata overrides. A hidden value is not compared."""
    chosen = [node for node in run.cluster.controllers if node.node_id in start.files]

    def read(node: NodeSpec) -> tuple[str, ...] | tuple[UnknownValue, ...]:
        try:
            used = in_use(node)
        except RolloutError as error:
            subject = f"values in use of node {node.node_id}"
            return unknown_by(error, subject, f"The {subject} are unknown")
        config = start.files[node.node_id]
        prefixes = tuple(one.prefix for one in find_listeners(config).all if one.is_of_controllers)
        return tuple(
            name
            for name, setting in sorted(used.items())
            if name.lower().startswith(prefixes)
            and setting.source in _DYNAMIC
            and (setting.value == HIDDEN or not same_value(config.get(name), setting.value, setting.type))
        )

    answers = dict(zip([node.node_id for node in chosen], at_once(read, chosen), strict=True))
    unread = [one for answer in answers.values() for one in answer if isinstance(one, UnknownValue)]
    names = {node_id: tuple(one for one in answer if isinstance(one, str)) for node_id, answer in answers.items()}
    return {node_id: found for node_id, found in names.items() if found}, tuple(unread)
