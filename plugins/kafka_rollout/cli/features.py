"""Feature levels from a shell (KIP-584): describe, upgrade-all, downgrade-all, update."""
# ruff: noqa: PLR0917 - a command's options are its parameters

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from kafka_rollout.cli import show
from kafka_rollout.cli.feature_table import describe_json, print_description, print_outcomes
from kafka_rollout.cli.options import (
    Approved,
    AsJson,
    ClusterName,
    ConnectionFile,
    Reason,
    Yes,
    open_bench,
)
from kafka_rollout.domain.features.outcomes import FeatureOutcome, exit_code
from kafka_rollout.domain.features.requests import (
    FeatureAction,
    FeatureOrder,
    parse_requests,
)
from kafka_rollout.domain.model.errors import FatalError, RefusedError, UserError
from kafka_rollout.domain.model.findings import Finding
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.steps.common import lock
from kafka_rollout.steps.common.approval import (
    APPROVED,
    ApprovalOf,
    approval_body,
    record_approval,
    refuse_stranger,
    require_approval,
)
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.features.race import look_for_narrower_nodes
from kafka_rollout.steps.features.update import (
    apply_features,
    observe_features,
    plan_features,
    planned_outcomes,
)

HELP = """Feature levels (KIP-584): what is finalized, what every node supports, and changing it.

Changes need --approve-as and --reason, and --dry-run shows what would come of them. One line a feature on the standard
output: action, existing and new finalized level, result.

Exit codes: 0 every level is as asked (or would be accepted: --dry-run); 1 nobody knows, or changed in part, or a node
cannot live with what was finalized; 2 bad input; 3 refused by a check or by the controller, nothing was changed;
4 another change of the cluster is under way.
"""

features_app = typer.Typer(help=HELP, no_args_is_help=True)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Check, and ask the controller by validate-only; no change.")]
Safety = Annotated[
    bool | None,
    typer.Option(
        "--safe/--unsafe",
        help="How levels fall: SAFE_DOWNGRADE (default) refuses where something in use would be lost, "
        "UNSAFE_DOWNGRADE goes on and says what is lost.",
    ),
]
ReleaseVersion = Annotated[str | None, typer.Option("--release-version", help="A release of the catalogue.")]


@features_app.command("describe")
def describe(cluster: ClusterName, as_json: AsJson = False, connection_file: ConnectionFile = None) -> None:
    """Every feature: finalized level, epoch, and the range that every node itself supports. Changes nothing."""
    with open_bench(cluster, None, connection_file) as (ports, _, _security):
        state = observe_features(ports)
        if as_json:
            show.print_json(describe_json(ports.cluster, state))
        else:
            print_description(ports.cluster, state)


@features_app.command("upgrade-all")
def upgrade_everything(
    cluster: ClusterName,
    approve_as: Approved = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
    connection_file: ConnectionFile = None,
) -> None:
    """Every feature to the latest stable level that all nodes support (kraft.version never by implication)."""
    way = _Way(
        approve_as=approve_as,
        reason=reason,
        dry_run=dry_run,
        yes=yes,
        as_json=as_json,
        connection_file=connection_file,
    )
    _change(cluster, FeatureOrder(action=FeatureAction.UPGRADE_ALL), way, unsafe=False)


@features_app.command("downgrade-all")
def downgrade_everything(
    cluster: ClusterName,
    release_version: Annotated[str, typer.Option("--release-version", help="A release of the catalogue.")],
    approve_as: Approved = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    safe: Safety = None,
    yes: Yes = False,
    as_json: AsJson = False,
    connection_file: ConnectionFile = None,
) -> None:
    """Every feature to the highest stable level that a release knows; one that it does not know is deleted."""
    order = FeatureOrder(action=FeatureAction.DOWNGRADE_ALL, release=Release.parse(release_version))
    way = _Way(
        approve_as=approve_as,
        reason=reason,
        dry_run=dry_run,
        yes=yes,
        as_json=as_json,
        connection_file=connection_file,
    )
    _change(cluster, order, way, unsafe=safe is False)


@features_app.command("update")
def update(
    cluster: ClusterName,
    upgrade: Annotated[
        list[str] | None, typer.Option("--upgrade", help="feature:level to add or raise; a list, or repeated.")
    ] = None,
    downgrade: Annotated[
        list[str] | None, typer.Option("--downgrade", help="feature:level to lower to; a level below 1 deletes.")
    ] = None,
    delete: Annotated[list[str] | None, typer.Option("--delete", help="Feature to take the finalization of.")] = None,
    release_version: ReleaseVersion = None,
    approve_as: Approved = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    safe: Safety = None,
    yes: Yes = False,
    as_json: AsJson = False,
    connection_file: ConnectionFile = None,
) -> None:
    """Raise, lower and delete single features; or all to the levels of --release-version, which lowers only with
    --safe or --unsafe."""
    order = FeatureOrder(
        action=FeatureAction.UPDATE,
        named=parse_requests(upgrade or (), downgrade or (), delete or ()),
        release=None if release_version is None else Release.parse(release_version),
        may_lower=safe is not None,
    )
    way = _Way(
        approve_as=approve_as,
        reason=reason,
        dry_run=dry_run,
        yes=yes,
        as_json=as_json,
        connection_file=connection_file,
    )
    _change(cluster, order, way, unsafe=safe is False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """How a change is asked for: who approves, and how it is told."""

    approve_as: str | None
    reason: str | None
    dry_run: bool
    yes: bool
    as_json: bool
    connection_file: Path | None

    def __post_init__(self) -> None:
        if not self.dry_run and not (self.approve_as and self.reason):
            raise UserError(
                "Changing features needs a named approval.", remedy="Add --approve-as NAME --reason TEXT, or --dry-run."
            )


def _change(cluster: str, order: FeatureOrder, way: _Way, *, unsafe: bool) -> None:
    with open_bench(cluster, None, way.connection_file) as (ports, _, _security):
        try:
            if not way.dry_run:
                refuse_stranger(ports.cluster, way.approve_as or "")
                lock.acquire_lock(ports, "Change features.")  # what is checked must not change until it is sent
            plan = plan_features(ports, order, unsafe=unsafe)
            outcomes, race = (planned_outcomes(plan), ()) if way.dry_run else _apply(ports, plan, way)
        finally:
            lock.release_lock(ports)
    _tell(ports, plan, outcomes, race, as_json=way.as_json, dry_run=way.dry_run)


@features_app.command("resume")
def resume(
    cluster: ClusterName,
    run: Annotated[str, typer.Option("--run", help="The run that was ended in the middle.")],
    as_json: AsJson = False,
    connection_file: ConnectionFile = None,
) -> None:
    """Go on with what a run was asked and approved for: levels that are there are told, the others are set."""
    with open_bench(cluster, run, connection_file) as (ports, _, _security):
        plan = ports.run.load_plan()
        if plan.release_steps:
            raise UserError(f"Run {run} is a roll.", remedy="Go on with it by `roll --run`, or in its DAG.")
        require_approval(ports, plan, ApprovalOf.FINALIZE)
        try:
            outcomes = apply_features(ports, plan)
        finally:
            lock.release_lock(ports)
        race = look_for_narrower_nodes(ports).findings
    _tell(ports, plan, outcomes, race, as_json=as_json)


def _apply(ports: ClusterPorts, plan: Plan, way: _Way) -> tuple[tuple[FeatureOutcome, ...], tuple[Finding, ...]]:
    """What became of each feature, and who cannot live with it."""
    if plan.blockers or not plan.feature_changes:
        return planned_outcomes(plan), ()
    _approve(ports, plan, way)
    outcomes = apply_features(ports, plan)
    return outcomes, look_for_narrower_nodes(ports).findings


def _approve(ports: ClusterPorts, plan: Plan, way: _Way) -> None:
    """Show what is decided on the standard error, ask at the terminal, record the name."""
    if not way.yes:
        show.print_body(approval_body(plan, what=ApprovalOf.FINALIZE), show.err)
        if not (sys.stdin.isatty() and typer.confirm(f"{way.approve_as}, do you approve?", default=False, err=True)):
            raise RefusedError("Nobody confirmed at the terminal.", remedy="Confirm with --yes.")
    record_approval(ports, ApprovalOf.FINALIZE, way.approve_as or "", APPROVED, way.reason or "")


def _tell(
    ports: ClusterPorts,
    plan: Plan,
    outcomes: Sequence[FeatureOutcome],
    race: Sequence[Finding],
    *,
    as_json: bool,
    dry_run: bool = False,
) -> None:
    code = exit_code(outcomes) or (FatalError.exit_code if race else 0)
    if as_json:
        results = [
            {
                "feature": o.feature,
                "action": o.action,
                "existing": o.existing or None,
                "new": o.new or None,
                "result": o.result.value,
                "sentence": o.sentence,
            }
            for o in outcomes
        ]
        answer = {"run": ports.run_id, "dry_run": dry_run, "exit_code": code, "results": results}
        show.print_json({**answer, "findings": [*plan.findings, *race]})
    else:
        print_outcomes(outcomes)
        told = " ".join(outcome.sentence for outcome in outcomes)
        show.print_findings(tuple(f for f in (*plan.findings, *race) if f.sentence not in told))
    if code:
        raise typer.Exit(code)
