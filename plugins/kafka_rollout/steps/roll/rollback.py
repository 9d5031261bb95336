"""Checks before a release step of a rollback: finalized levels, settings, and the current coordinator logs."""

from __future__ import annotations

from kafka_rollout.domain.features.checks import range_findings
from kafka_rollout.domain.model.errors import RefusedError
from kafka_rollout.domain.model.plan import Plan, ReleaseStep
from kafka_rollout.domain.planning.downgrade_findings import lacking_settings, settings_findings
from kafka_rollout.domain.planning.rollback_blockers import ClosingRecord, find_closing_records
from kafka_rollout.domain.run.events import RollbackClosed
from kafka_rollout.domain.run.projections.nodes import started_release_steps
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.observe import observe
from kafka_rollout.steps.features.sending import levels_now
from kafka_rollout.steps.planning.coordinator_logs import scan_before_roll


def refuse_closed(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, *, first_stop: bool) -> None:
    """Raise RefusedError if the older release cannot run the cluster, or would lose metadata.

    Before the first stop of the release step, settings are read. The coordinator logs are read if a release that this
    run started writes records that the older release cannot load.
    """
    levels = range_findings(ports.catalogue, observe(ports), release_step.to_release)
    if not levels.ok:
        raise RefusedError(
            f"{release_step.to_release} can no longer run this cluster: "
            f"{'; '.join(finding.sentence for finding in levels.blockers)}",
            remedy=" ".join(dict.fromkeys(finding.remedy for finding in levels.blockers)),
        )
    if not first_stop:
        return
    _refuse_settings(ports, release_step)
    if closing := _closing(ports, plan, release_step):
        _refuse_unloadable(ports, plan, release_step, closing)


def _refuse_settings(ports: ClusterPorts, release_step: ReleaseStep) -> None:
    """Refuse settings, created since the upgrade, that the older release does not support.

    Its next metadata snapshot would make them unreadable for every release.
    """
    lacking = lacking_settings(ports.catalogue, [release_step.to_release])
    if not lacking:
        return
    found = settings_findings(lacking, ports.admin.settings(), accepted=False, acceptable=False)
    if not found:
        return
    listed = " ".join(f"{finding.code}: {finding.sentence}" for finding in found)
    sentence = f"A rollback to {release_step.to_release} is not possible now. {listed}"
    ports.run.record(RollbackClosed(release_step=release_step.key, sentence=sentence))
    raise RefusedError(sentence, remedy=f"{found[0].remedy} Then roll back again.")


def _closing(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep) -> tuple[ClosingRecord, ...]:
    """Return the records that releases of this run write and the older one cannot load; usually none (KIP-915)."""
    begun = started_release_steps(ports.run.events())
    levels = levels_now(ports).finalized
    return tuple(
        record
        for rolled in plan.release_steps
        if rolled.key in begun
        for record in find_closing_records(ports.catalogue, release_step.to_release, rolled.to_release, levels)
    )


def _refuse_unloadable(
    ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, closing: tuple[ClosingRecord, ...]
) -> None:
    scanned = scan_before_roll(ports)
    if scanned is None:
        why = f"{closing[0].record} records of {plan.target} stop it, and no scan shows whether such records exist"
    else:
        failing = ports.logs.scan_new_records(scanned).failing(release_step.to_release)
        if not failing:
            return
        first = failing[0]
        where = f"{first.topic}-{first.partition}"
        reason = f": {first.first_failure.reason}" if first.first_failure is not None else ""
        why = f"it can no longer load {len(failing)} partition(s) of the coordinator logs, the first is {where}{reason}"
    sentence = f"A rollback to {release_step.to_release} is not possible: {why}."
    ports.run.record(RollbackClosed(release_step=release_step.key, sentence=sentence))
    raise RefusedError(
        sentence,
        remedy=f"Keep {release_step.from_release}, which can load the logs, and run kafka_downgrade from there: "
        "it scans the logs and shows the groups to convert and the time to wait.",
    )
