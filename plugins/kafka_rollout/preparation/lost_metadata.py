"""The metadata of now, read again before each step: what a downgrade loses of it (KIP-1155), what stops an upgrade."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.findings import Checked, Finding, Severity, all_findings, find_new, unknown_by
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.control.approval import approved_events
from kafka_rollout.metadata_log.losses import Loss, LossReport
from kafka_rollout.model.plan import Direction, Lowering, Plan
from kafka_rollout.observation.run import ReadRun, Run
from kafka_rollout.planning.findings.downgrade_scans import (
    LOSSES_CHECK,
    lacking_settings,
    loss_findings,
    losses_unknown,
    settings_findings,
)
from kafka_rollout.preparation.acl_meaning import check_acls
from kafka_rollout.preparation.frozen_plan import refuse_as_invalid, replace_findings
from kafka_rollout.preparation.node_checks import node_configs
from kafka_rollout.preparation.replayed_metadata import check_replay, read_losses
from kafka_rollout.preparation.unknowns import judged
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.events import ApprovalOf, newest
from kafka_rollout.run.step_events import LossesReported

LOSSES = "metadata/losses.json"


def find_losses(run: ReadRun) -> Checked:
    """Check what a downgrade that is not begun would lose, on the log of one controller. Unknown without one."""
    try:
        settings = _settings(run)
        report = _losses(run)
    except RolloutError as error:
        return LOSSES_CHECK.ran(unknown=unknown_by(error, "metadata logs"))
    return LOSSES_CHECK.ran((*loss_findings(run.plan, report), *settings))


def report_losses(run: Run) -> tuple[Plan, LossReport | None]:
    """Create KIP-1155's loss report before any request to the controller, and before an older release runs.

    The losses include what each older release of the path does not keep or means otherwise, also if metadata.version
    stays. None if they are unknown, which is a blocker. Raises TransientError if a broker does not report the settings.
    """
    settings = _settings(run)
    try:
        report = _losses(run)
    except RolloutError as error:
        run.history.attach(LOSSES, None)
        unknown = losses_unknown(str(error), run.cluster)
        return replace_findings(run.ports, LOSSES_CHECK.ran((*unknown, *settings))), None
    content = json.dumps(to_json(report), sort_keys=True)
    document = f"metadata/losses-{hashlib.sha256(content.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}.json"
    run.history.attach(document, report)  # of its own: a later report does not change what an approver has read
    run.history.attach(LOSSES, report)
    run.history.record(
        LossesReported(
            document=document,
            from_level=report.from_level,
            to_level=report.to_level,
            losses=len(report.losses),
            default_only=len(report.default_only),
            unsafe=run.plan.unsafe,
            first=tuple(loss.sentence for loss in report.losses[:20]),
        )
    )
    return replace_findings(run.ports, LOSSES_CHECK.ran((*loss_findings(run.plan, report), *settings))), report


def refuse_new_losses(run: Run) -> None:
    """Raise RefusedError if a downgrade would lose metadata now that its approvers have not read; approvals end then.

    Hours can lie between the report and the step that loses the metadata: a topic, an ACL or a group configuration is
    made meanwhile. Does nothing for other plans.
    """
    if run.plan.direction is not Direction.DOWNGRADE or not run.plan.changes_release:
        return
    report = _losses(run)
    settings = find_new(_settings(run), run.plan.findings)
    new = replace(report, losses=find_new_losses(run, report.losses))
    lost = loss_findings(replace(run.plan, findings=()), new)
    again = "Remove it. Or start a new run, whose approvers read what is lost."
    if found := [replace(finding, remedy=again) for finding in (*lost, *settings)]:
        refuse_as_invalid(run, found)


def refuse_new_in_metadata(run: Run) -> None:
    """Raise RefusedError if an upgrade has a blocker in the metadata now that its approvers have not read.

    Between the plan and the first stop an ACL can be made that the target reads otherwise, or a record that it cannot
    replay. Raises TransientError if that is unknown now and the approvers have not read so. Does nothing for other
    plans: a downgrade reads each log and what is lost.
    """
    plan = run.plan
    if plan.direction is not Direction.UPGRADE or not plan.changes_release:
        return
    with run.ports.classes.keep_processes():
        checked = (check_acls(run, node_configs(run.ports)), check_replay(run))
    blockers = find_new((one for one in all_findings(checked) if one.severity is Severity.BLOCKER), plan.findings)
    if blockers:
        refuse_as_invalid(run, blockers)
    judged(plan, checked)


def find_new_losses(run: ReadRun, losses: Sequence[Loss]) -> tuple[Loss, ...]:
    """Return the losses that the report does not have that the newest approver has read."""
    read = newest(approved_events(run, ApprovalOf.FINALIZE, ApprovalOf.ROLL), LossesReported)
    report: LossReport | None = None if read is None else run.history.attachment(read.document, LossReport)
    return find_new(losses, report.losses if report is not None else ())


def _settings(run: ReadRun) -> tuple[Finding, ...]:
    lacking = lacking_settings(
        run.ports.catalogue, [release_step.to_release for release_step in run.plan.release_steps]
    )
    if not lacking:
        return ()
    accepted = run.plan.unsafe and run.plan.lowering is not Lowering.OFFLINE
    return settings_findings(
        lacking, run.ports.admin.settings(), accepted=accepted, acceptable=run.plan.lowering is not Lowering.OFFLINE
    )


def _losses(run: ReadRun) -> LossReport:
    """Return the losses at the planned levels. A metadata.version that is not planned stays."""
    features = {name: level for name, level in run.plan.levels.items() if name != METADATA_VERSION}
    level = run.plan.levels.get(METADATA_VERSION)
    return read_losses(run, level, features, source=run.plan.source, targets=run.plan.path[1:])
