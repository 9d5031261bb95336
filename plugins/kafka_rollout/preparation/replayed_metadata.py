"""The metadata of a cluster, read by each release of a path from the log of one controller.

All nodes have the same committed metadata, so one log shows what the releases make of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kafka_rollout.base.errors import RefusedError, RolloutError, TransientError
from kafka_rollout.base.findings import Checked, UnknownValue, unknown, unknown_by
from kafka_rollout.metadata_log.losses import ACCESS, LossReport
from kafka_rollout.metadata_log.metadata_scan import MetadataScan
from kafka_rollout.model.plan import ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ReadPorts, named_directories
from kafka_rollout.observation.run import ReadRun
from kafka_rollout.planning.findings.downgrade_scans import (
    METADATA_LOGS_CHECK,
    loss_findings,
    rollback_loss_findings,
    rollback_settings_findings,
    upgrade_metadata_findings,
)
from kafka_rollout.planning.plan_checks import NO_RESTART
from kafka_rollout.releases.facts import Release

_LOGS = "metadata logs"


def check_metadata(run: ReadRun) -> Checked:
    """Check whether each release of an upgrade can start with the metadata, on the log of one controller, and what a
    rollback would lose of it.

    Unknown if no controller's log can be read.
    """
    if not run.plan.release_steps:
        return METADATA_LOGS_CHECK.ran(unless=NO_RESTART)
    replayed = check_replay(run)
    if replayed.findings or replayed.unknown:
        return replayed  # what a release does not read cannot be compared with it
    after = rollback_settings_findings(run.ports.catalogue, run.plan.source, run.plan.target)
    unread: tuple[UnknownValue, ...] = ()
    try:
        back = tuple(dict.fromkeys(reversed(run.plan.path[:-1])))
        report = read_losses(run, None, {}, source=run.plan.target, targets=back)
        after = (*rollback_loss_findings(report, run.plan.source), *after)
    except RolloutError as error:
        what = f"What a rollback to {run.plan.source} would lose is unknown"
        unread = unknown_by(error, f"rollback to {run.plan.source}", what)
    return METADATA_LOGS_CHECK.ran(after, unknown=unread)


def check_replay(run: ReadRun) -> Checked:
    """Check whether each release of an upgrade can start with the metadata: the blockers of `check_metadata`."""
    try:
        node = _readable_controller(run.ports)
        scans = [scan_log(run, node, release_step.to_release) for release_step in run.plan.release_steps]
    except RolloutError as error:
        return METADATA_LOGS_CHECK.ran(unknown=unknown_by(error, _LOGS))
    return METADATA_LOGS_CHECK.ran(upgrade_metadata_findings(scans))


def unkept_metadata(run: ReadRun, release_step: ReleaseStep) -> Checked:
    """Check whether a release to roll back to can start with the metadata, and what it does not keep of it.

    By the log of one controller. Unknown if no host of a controller responds, or the cluster hides the logs: a rollback
    must stay possible, and `unkept_acls` reports what the brokers know. Raises TransientError or FatalError if the log
    is there and the tool fails: that is no reason to lose metadata.
    """
    try:
        node = _readable_controller(run.ports)
    except RolloutError as error:
        return METADATA_LOGS_CHECK.ran(unknown=unknown(_LOGS, error.sentence))
    try:
        scan = scan_log(run, node, release_step.to_release)
        if found := upgrade_metadata_findings([scan]):
            return METADATA_LOGS_CHECK.ran(found)  # nothing could be compared with it
        report = read_losses(run, None, {}, source=release_step.from_release, targets=(release_step.to_release,))
    except RefusedError as error:
        return METADATA_LOGS_CHECK.ran(unknown=unknown_by(error, _LOGS))
    losses = tuple(one for one in report.losses if one.kind != ACCESS)
    return METADATA_LOGS_CHECK.ran(loss_findings(run.plan, replace(report, losses=losses)))


def read_losses(
    run: ReadRun,
    level: int | None,
    features: Mapping[str, int],
    *,
    source: Release,
    targets: Sequence[Release],
) -> LossReport:
    node = _readable_controller(run.ports)
    report = run.ports.metadata_logs.losses(
        node,
        level,
        source=source,
        targets=targets,
        features=features,
        settings=run.ports.runtime.config(node),
        cluster_id=run.plan.cluster_id,
    )
    named = (named_directories(run.ports, report.losses), named_directories(run.ports, report.default_only))
    return replace(report, losses=named[0], default_only=named[1])


def _readable_controller(ports: ReadPorts) -> NodeSpec:
    """Return the active controller, whose log is the longest; another one if its log cannot be read.

    Raises TransientError if no host responds that could have it, RefusedError if no controller's log can be read.
    """
    try:
        leader = ports.admin.quorum().leader_id
    except TransientError:  # each log shows the committed metadata
        leader = -1
    silent: TransientError | None = None
    for node in sorted(ports.cluster.controllers, key=lambda node: node.node_id != leader):
        try:
            if ports.runtime.metadata_log_dir(node) is not None:
                ports.runtime.config(node)  # the host responds
                return node
        except TransientError as error:
            silent = silent or error
    if silent is not None:
        raise silent
    raise RefusedError(
        f"The runtime {ports.cluster.runtime} cannot read files on any controller.",
        remedy="Add the directories of the nodes to the inventory.",
    )


def scan_log(run: ReadRun, node: NodeSpec, release: Release) -> MetadataScan:
    return run.ports.metadata_logs.scan(
        node, release, cluster_id=run.plan.cluster_id, settings=run.ports.runtime.config(node)
    )
