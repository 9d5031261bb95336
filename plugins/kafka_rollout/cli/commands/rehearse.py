"""The command rehearse: a change on a copy of the cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, cast

import typer

from kafka_rollout.base.durations import parse_duration, typed_duration
from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.system.signals import interrupt_on_sigterm
from kafka_rollout.cli import show
from kafka_rollout.cli.options import (
    AsJson,
    ClusterName,
    CommandConfig,
    open_ports,
    takes_request,
)
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.planning.request import FinalizePolicy, Request
from kafka_rollout.preparation.plan_making import planned_releases, releases_between
from kafka_rollout.rehearsal.job import GATE_TIMEOUT_S, order_rehearsal
from kafka_rollout.rehearsal.result import RehearsalOutcome, RehearsalResult
from kafka_rollout.rehearsal.selection import DEFAULT_LIMIT


@takes_request(RunOf.UPGRADE, RunOf.DOWNGRADE, plans_only=True)
def rehearse(
    cluster: ClusterName,
    request: Request,
    nodes: Annotated[
        int, typer.Option(help="Largest number of copied nodes. A larger cluster is copied in part.", min=1)
    ] = DEFAULT_LIMIT,
    folder: Annotated[
        Path | None, typer.Option(help="Folder for the copy, which is removed at the end; default: in the home.")
    ] = None,
    backup: Annotated[
        Path | None,
        typer.Option(
            help="Folder with a copy of each node's home, in a folder with the name of the node. The cluster is not "
            "queried."
        ),
    ] = None,
    gate_timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="Gate timeout in the sandbox, such as 90s or 5m.")
    ] = typed_duration(GATE_TIMEOUT_S),
    as_json: AsJson = False,
    command_config: CommandConfig = None,
) -> None:
    """Try an upgrade or a downgrade on a copy of the cluster, on this machine. Only reads the cluster.

    The copy has the nodes' configuration, metadata logs and coordinator logs; other partitions are empty. It starts on
    the current release, goes through the same steps and gates as the real change, and is compared before and after.
    With --finalize later, the copy of an upgrade is rolled back instead of finalized. Exit code 3 if the copy fails.
    Nothing is left at the end, also after Ctrl-C.
    """
    from kafka_rollout.rehearsal.machine.local import LocalRehearsals, read_backup_release

    with open_ports(cluster, None, command_config) as (ports, _, _):
        request = replace(request, plans_features=request.finalize is FinalizePolicy.AFTER_APPROVAL)
        if backup is None:
            direction, releases = planned_releases(ports, request.target_release)
        else:
            source = read_backup_release(ports.cluster, backup)
            direction, releases = releases_between(ports.catalogue, source, request.target_release)
        job = order_rehearsal(
            request, ports.cluster.name, direction, releases, gate_timeout_s=parse_duration(gate_timeout)
        )
        rehearsals = replace(cast(LocalRehearsals, ports.rehearsals), limit=nodes, folder=folder)
        with interrupt_on_sigterm():
            say = show.ProgressLines().say
            result = rehearsals.rehearse_backup(job, backup, say) if backup else rehearsals.rehearse(job, say)
    print_result(result, as_json=as_json)
    raise typer.Exit(0 if result.outcome is RehearsalOutcome.PASSED else RefusedError.exit_code)


def print_result(result: RehearsalResult, *, as_json: bool) -> None:
    if as_json:
        show.print_json(result)
        return
    show.say(result.sentence)
    show.say(result.isolation)
    rows = [(phase.name, f"{phase.seconds:.1f} s", phase.sentence) for phase in result.phases]
    show.print_table(("phase", "time", "result"), rows)
    times = [(name, f"{seconds:.1f} s") for name, seconds in result.node_seconds.items()]
    if times:
        show.print_table(("node step", "time"), times)
    for sentence in result.not_covered:
        show.say(f"not covered: {sentence}")
    show.print_findings(result.findings)
