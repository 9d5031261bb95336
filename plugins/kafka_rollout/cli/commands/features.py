"""Feature levels (KIP-584): show the finalized and the supported levels, and change them.

Changes need --as and --reason; --dry-run shows the result and changes nothing. Standard output has one line per
feature: action, existing and new finalized level, result.

Exit codes: 0 every level is as requested (with --dry-run: the change would be accepted); 1 the result is unknown, or
only some levels were changed, or a node does not support the finalized levels, or a check after the change failed; 2
invalid input; 3 refused by a check or by the controller, nothing was changed; 4 another run holds the lock of the
cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kafka_rollout.base.errors import FatalError, RolloutError, UserError
from kafka_rollout.base.findings import Finding
from kafka_rollout.cli import show
from kafka_rollout.cli.answers import ScriptAnswers, shell_responder
from kafka_rollout.cli.feature_table import print_description
from kafka_rollout.cli.options import (
    AcceptUnknown,
    ApprovalReason,
    Approver,
    AsJson,
    ClusterName,
    CommandConfig,
    TakeOver,
    Yes,
    open_ports,
    require_name,
    takes_request,
)
from kafka_rollout.cli.run import ShellServices, command_of
from kafka_rollout.control.approval import record_shell_start, refuse_answer, require_approval, take_over_run
from kafka_rollout.feature_updates.levels import check_for_narrower_nodes
from kafka_rollout.feature_updates.update import observe_features, planned_outcomes
from kafka_rollout.features.requests import FeatureAction, exit_code
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import DowngradeType, Request
from kafka_rollout.procedure.kinds import FEATURES
from kafka_rollout.procedure.runner import Runner
from kafka_rollout.report.feature_levels import describe_features
from kafka_rollout.run.events import ApprovalOf

app = typer.Typer(help=__doc__, no_args_is_help=True)

Safety = Annotated[
    bool | None,
    typer.Option(
        "--safe/--unsafe",
        help="--safe (default, SAFE_DOWNGRADE) refuses if data would be lost; --unsafe (UNSAFE_DOWNGRADE) lists the "
        "losses and continues.",
    ),
]


@app.command("describe")
def describe(cluster: ClusterName, as_json: AsJson = False, command_config: CommandConfig = None) -> None:
    """Show every feature: finalized level, epoch, and the range that every node supports. Read-only."""
    with open_ports(cluster, None, command_config) as (ports, _, _security):
        state = observe_features(ports)
        if as_json:
            show.print_json(describe_features(ports.cluster, state))
        else:
            print_description(ports.cluster, state)


@app.command("set")
@takes_request(RunOf.FEATURES, without=("downgrade_type",))
def set_levels(
    cluster: ClusterName,
    request: Request,
    run: Annotated[
        str | None,
        typer.Option(
            help="Number of an approved run that was interrupted: continue it with its own levels. Levels that are "
            "already set are not sent again. With --as and --reason, it asks whether you accept how the cluster "
            "differs."
        ),
    ] = None,
    approve_as: Approver = None,
    reason: ApprovalReason = None,
    safe: Safety = None,
    yes: Yes = False,
    take_over: TakeOver = False,
    accept_unknown: AcceptUnknown = None,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
) -> None:
    """Raise, lower and delete features: single ones, all, or those of a release. Levels and names can be lists.

    --release-version sets the default levels of a release. Add --safe or --unsafe to also lower levels that it does not
    support. --action upgrade-all raises every feature to the default level of the running release, if all nodes
    support it, but neither kraft.version nor levels above the default. --action downgrade-all lowers every feature to
    the highest stable level of --release-version, and deletes features that this release does not support.
    """
    if run is not None:
        if request != Request() or safe is not None or yes or accept_unknown:
            raise UserError(
                f"Run {run} has its levels in its plan.",
                remedy="Use --run only with --as, --reason and --take-over.",
            )
        _resume(cluster, run, approve_as, reason, command_config, take_over=take_over, as_json=as_json)
        return
    action = request.action or FeatureAction.UPDATE
    request = replace(
        request,
        action=action,
        waits=False,
        may_lower=safe is not None or action is not FeatureAction.UPDATE,
        downgrade_type=DowngradeType.UNSAFE if safe is False else DowngradeType.SAFE,
    )
    request.feature_order()  # an invalid request is refused before any query of the cluster
    if not request.dry_run:
        require_name("A feature change", approve_as, reason, remedy=", or --dry-run")
    with open_ports(cluster, None, command_config) as (ports, settings, security):
        if not request.dry_run:
            refuse_answer(ports.cluster, approve_as or "", shell_responder())  # before any query of the cluster
        answers = ScriptAnswers(
            cluster=ports.cluster,
            name=approve_as,
            reason=reason,
            confirms=not yes,
            accepts=tuple(accept_unknown or ()),
        )
        _run(ShellServices(ports, settings, security, says=show.err), request, answers, as_json=as_json)


def _resume(
    cluster: str,
    run: str,
    approve_as: str | None,
    reason: str | None,
    command_config: Path | None,
    *,
    take_over: bool,
    as_json: bool,
) -> None:
    with open_ports(cluster, run, command_config) as (ports, settings, security):
        take_over_run(ports, approve_as, shell_responder(), wanted=take_over)
        plan = ports.run.load_plan()
        if plan.release_steps:
            raise UserError(
                f"Run {run} is not a feature run.", remedy="Continue it with `upgrade --run`, or in its DAG."
            )
        require_approval(Run(ports, plan), ApprovalOf.FINALIZE)
        answers = ScriptAnswers(
            cluster=ports.cluster, name=approve_as if reason else None, reason=reason, confirms=True
        )
        _run(ShellServices(ports, settings, security, says=show.err), Request(waits=False), answers, as_json=as_json)


def _run(services: ShellServices, request: Request, answers: ScriptAnswers, *, as_json: bool) -> None:
    """Run FEATURES and print the result of each feature, also of a change that failed or was refused."""
    ports = services.ports
    runner = Runner(
        ports=ports,
        procedure=FEATURES,
        request=request,
        answers=answers,
        services=services,
        progress=show.Silent(),
        started=lambda: record_shell_start(ports, shell_responder()),
    )
    failed: RolloutError | None = None
    try:
        runner.run()
    except RolloutError as error:
        if runner.plan is None or not (runner.plan.blockers or "update" in runner.results):
            raise
        failed = error
    plan = ports.run.load_plan()
    outcomes = runner.results.get("update")
    race: Sequence[Finding] = ()
    if outcomes is None or not (plan.feature_changes or request.action is None):
        outcomes = planned_outcomes(plan)
    else:
        seen = runner.results.get("look_again")  # a failed change did not reach this step
        race = (check_for_narrower_nodes(ports) if seen is None else seen).findings
    shown = exit_code(outcomes) or (FatalError.exit_code if race else 0)
    code = shown or (FatalError.exit_code if failed else 0)
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
        answer = {"run": ports.run_id, "dry_run": request.dry_run, "exit_code": code, "results": results}
        show.print_json({**answer, "findings": [*plan.findings, *race]})
    else:
        for outcome in outcomes or ("No change needed.",):
            show.say(outcome)
        sentences = " ".join(outcome.sentence for outcome in outcomes)
        show.print_findings(tuple(f for f in (*plan.findings, *race) if f.sentence not in sentences))
    if failed is not None and not shown:
        again = f"Continue with: {command_of(Run(ports, plan))}"
        raise FatalError(failed.sentence, remedy=f"{failed.remedy} {again}".strip()) from failed
    if code:
        raise typer.Exit(code)
