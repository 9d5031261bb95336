"""The commands that change a cluster node by node: those of the kinds of runs, rollback and retry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kafka_rollout.cli import show
from kafka_rollout.cli.answers import TerminalAnswers, shell_responder
from kafka_rollout.cli.options import (
    AcceptUnknown,
    ApprovalReason,
    Approver,
    AsJson,
    ClusterName,
    CommandConfig,
    RunId,
    TakeOver,
    Yes,
    open_ports,
    require_name,
    takes_request,
)
from kafka_rollout.cli.run import ShellServices, accept_logs, roll_back_run, run_procedure, start_node_again
from kafka_rollout.control.approval import take_over_run
from kafka_rollout.model.pace import Pace
from kafka_rollout.model.run_of import RUN_COMMANDS, RunOf
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.planning.request import FinalizePolicy, Request
from kafka_rollout.procedure.kinds import KINDS, procedure_of
from kafka_rollout.run.events import Called

_OR_DRY_RUN = ", or --dry-run"
# Of a command that continues an approved run: its plan has the least of each number of its pace.
_AS_APPROVED = Request(pace=Pace.FAST)


def command_of_kind(kind: RunOf) -> Callable[..., None]:
    """Return the command that starts and continues runs of a kind: its options are the fields of the kind."""
    shown = RUN_COMMANDS[kind]

    def change(
        cluster: ClusterName,
        request: Request,
        options: Mapping[str, str],
        kept: Called | None,
        named: frozenset[str],
        approve_as: Approver = None,
        reason: ApprovalReason = None,
        yes: Yes = False,
        accept_unknown: AcceptUnknown = None,
        take_over: TakeOver = False,
        run: RunId = None,
        as_json: AsJson = False,
        command_config: CommandConfig = None,
    ) -> None:
        if not request.dry_run and run is None:
            require_name(shown.change, approve_as, reason, remedy=_OR_DRY_RUN)
        # A command plans levels only if it must finalize them; a later run of the DAG finds what is left.
        request = replace(request, plans_features=request.finalize is FinalizePolicy.AFTER_APPROVAL)
        with _open_change(
            cluster, run, command_config, approve_as, reason, yes=yes, take_over=take_over, kept=kept
        ) as opened:
            ports, answers, services = opened
            if request.target is not None:
                ports.catalogue.get(request.target)  # an unknown release is refused before the cluster is asked
            services.named = named
            services.called = Called(options=options, command_config=show.credentials())
            answers = replace(answers, accepts=tuple(accept_unknown or ()))
            code = run_procedure(KINDS[kind].procedure, ports, request, answers, services)
            _end(ports, code, dry_run=request.dry_run, as_json=as_json)

    change.__doc__ = shown.help
    return takes_request(kind, keeps=True)(change)


def rollback(
    cluster: ClusterName,
    run: Annotated[str, typer.Option(help="Number of the run to roll back.")],
    approve_as: Approver = None,
    reason: ApprovalReason = None,
    yes: Yes = False,
    take_over: TakeOver = False,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
) -> None:
    """Roll back the nodes of a run to their previous release. Begins with the node at which the run stopped.

    For an offline downgrade, restores the metadata log of every node from its backup. This is possible until a broker
    has started.
    """
    with _open_change(cluster, run, command_config, approve_as, reason, yes=yes, take_over=take_over) as opened:
        ports, answers, services = opened
        require_name("A rollback", approve_as, reason)
        code = roll_back_run(procedure_of(ports.run.events()), ports, _AS_APPROVED, answers, services)
        _end(ports, code, as_json=as_json)


def retry(
    cluster: ClusterName,
    run: Annotated[str, typer.Option(help="Number of the run that stopped at a node.")],
    approve_as: Approver = None,
    reason: ApprovalReason = None,
    yes: Yes = False,
    take_over: TakeOver = False,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
) -> None:
    """Restart the node at which a run stopped, and wait for its gate. First fix the error in the node's log.

    If the process of the node hangs in its shutdown, the command kills it. Needs --as and --reason.
    """
    with _open_change(cluster, run, command_config, approve_as, reason, yes=yes, take_over=take_over) as opened:
        ports, answers, _ = opened
        require_name("A retry", approve_as, reason)
        start_node_again(ports, _AS_APPROVED, answers)
        _end(ports, 0, as_json=as_json)


def accept(
    cluster: ClusterName,
    run: Annotated[str, typer.Option(help="Number of the run whose gate has failed.")],
    approve_as: Approver = None,
    reason: ApprovalReason = None,
    yes: Yes = False,
    take_over: TakeOver = False,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
) -> None:
    """Accept what the log of a node shows, or does not show, if a failed gate waits for nothing else.

    Read the log first. The acceptance is for this process of the node, or for a layout that gates cannot read, of all
    brokers. Then continue the run. Needs --as and --reason.
    """
    with _open_change(cluster, run, command_config, approve_as, reason, yes=yes, take_over=take_over) as opened:
        ports, answers, _ = opened
        require_name("An acceptance", approve_as, reason)
        accept_logs(ports, answers)
        _end(ports, 0, as_json=as_json)


def _end(ports: ClusterPorts, code: int, *, as_json: bool, dry_run: bool = False) -> None:
    """Print the JSON result of a run, and exit."""
    if as_json:
        plan = ports.run.load_plan()
        show.print_json({"run": ports.run_id, "dry_run": dry_run, "exit_code": code, "hash": plan.hash, "plan": plan})
    raise typer.Exit(code)


@contextmanager
def _open_change(
    cluster: str,
    run: str | None,
    command_config: Path | None,
    approve_as: str | None,
    reason: str | None,
    *,
    yes: bool,
    take_over: bool,
    kept: Called | None = None,
) -> Iterator[tuple[ClusterPorts, TerminalAnswers, ShellServices]]:
    """Open a new or an existing run; raises RefusedError for a DAG's run without `take_over` by an approver.

    `kept`: as for `open_ports`.
    """
    with open_ports(cluster, run, command_config, kept=kept) as (ports, settings, security):
        show.name_run(ports.run_id)
        take_over_run(ports, approve_as, shell_responder(), wanted=take_over)
        answers = TerminalAnswers(cluster=ports.cluster, name=approve_as, reason=reason, confirms=not yes)
        yield ports, answers, ShellServices(ports, settings, security)
