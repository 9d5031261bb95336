"""Consumer groups: list them, and plan their move to cooperative rebalancing, to the consumer protocol (KIP-848), or
back to the classic protocol. Read-only.

Exit codes: 0 done; 1 a broker does not respond; 3 a group cannot be moved, or was not moved before the timeout.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_rollout.base.durations import parse_duration
from kafka_rollout.base.errors import RefusedError, TransientError, UserError
from kafka_rollout.base.wording import few
from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson, ClusterName, CommandConfig, open_ports
from kafka_rollout.gates.gate import GateCheck, GateCondition, GatePolicy, GateWatch, WatchState
from kafka_rollout.groups.group_records import with_records
from kafka_rollout.groups.migration import ConversionSettings, Goal, GroupPlan, plan_groups
from kafka_rollout.model.groups import CLASSIC, CONSUMER, SHARE, STREAMS, DescribedGroup, GroupMember
from kafka_rollout.observation.cluster_ports import ClusterPorts, read_current_levels
from kafka_rollout.releases.facts import GROUP_VERSION, Release
from kafka_rollout.roll.gate_checks import GATE, check_conversion

if TYPE_CHECKING:
    from kafka_rollout.client.requests import ClusterConnections
    from kafka_rollout.client.security.client_security import ClientSecurity


_TIMEOUT_S = 10.0
_NO_GROUPS = "The cluster has no groups."
_TYPES = (CONSUMER, SHARE, STREAMS)

WithRecords = Annotated[
    bool,
    typer.Option(
        "--records/--no-records",
        help="Also read the coordinator log. For some members only this log contains all assignors.",
    ),
]

app = typer.Typer(help=__doc__, no_args_is_help=True)


def _describe(
    ports: ClusterPorts, connections: ClusterConnections, *, records: bool
) -> tuple[tuple[DescribedGroup, ...], str]:
    """Return all groups, and the reason if the coordinator log was not used or not read completely."""
    from kafka_rollout.client.coordinators import describe_groups

    groups = describe_groups(connections)
    if not records:
        return groups, "The coordinator log was not read."
    try:
        found = ports.logs.group_records(planned=None)  # of the present
    except (RefusedError, TransientError) as error:
        return groups, f"The coordinator log could not be used: {error}"
    unread = [f"{place.place}: {place.sentence}" for place in found.damage]
    reason = f"The coordinator log could not be read completely: {few(unread)}" if unread else ""
    return with_records(groups, found.newest), reason


def _connect(ports: ClusterPorts, security: ClientSecurity | None) -> closing[ClusterConnections]:
    """Return connections to every broker."""
    from kafka_rollout.client.requests import ClusterConnections
    from kafka_rollout.client.security.client_security import ClientSecurity

    return closing(ClusterConnections(ports.cluster, security or ClientSecurity(), timeout_s=_TIMEOUT_S))


@app.command("list")
def list_(
    cluster: ClusterName,
    to: Annotated[
        Goal | None,
        typer.Option(
            "--to",
            help="Show for each group the steps of its move to this protocol in order, and how often its members must "
            "be restarted. Exit code 3 if a group cannot be moved.",
        ),
    ] = None,
    records: WithRecords = True,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
) -> None:
    """List every group: type, protocol, assignors of its members, static members, lag. Marks Kafka Connect groups."""
    from kafka_rollout.client.coordinators import with_lag

    if to is not None:
        _plan(cluster, to, command_config, records=records, as_json=as_json)
        return
    with open_ports(cluster, None, command_config) as (ports, _, security), _connect(ports, security) as connections:
        groups, note = _describe(ports, connections, records=records)
        groups = with_lag(ports.cluster.bootstrap_servers, security, groups)
    if as_json:
        show.print_json({"cluster": cluster, "left_out": note, "groups": groups})
        return
    if not groups:
        show.out.print(_NO_GROUPS)
        return
    rows = [
        (
            *(group.group_id, group.type, group.state, group.protocol_type, group.assignor),
            *(len(group.members), ", ".join(group.static_members), "?" if group.lag is None else group.lag),
        )
        for group in groups
    ]
    show.print_table(("Group", "Type", "State", "Protocol", "Assignor", "Members", "Static", "Lag"), rows)
    for group in groups:
        if group.connect or group.problem:
            show.say(f"{group.group_id}: {group.problem or group.connect}")
        for member in group.members:
            show.say(f"  {group.group_id} · {_of_member(group, member)}")
    if note:
        show.say(note)


def _plan(cluster: str, to: Goal, command_config: Path | None, *, records: bool, as_json: bool) -> None:
    from kafka_rollout.client.coordinators import migration_policies

    with open_ports(cluster, None, command_config) as (ports, _, security), _connect(ports, security) as connections:
        finalized = read_current_levels(ports)
        policies = migration_policies(connections)
        facts = ConversionSettings(group_version=finalized.get(GROUP_VERSION, 0), policies=policies)
        groups, note = _describe(ports, connections, records=records)
        plans = plan_groups(groups, to, facts)
    if as_json:
        show.print_json({"cluster": cluster, "to": to, "facts": facts, "left_out": note, "groups": plans})
    else:
        _print(plans, facts, to)
    if any(each.finding for each in plans):
        raise typer.Exit(RefusedError.exit_code)


def _of_member(group: DescribedGroup, member: GroupMember) -> str:
    more = "" if member.all_assignors_known else " (other assignors are not reported)"
    if group.type == CLASSIC and group.protocol_type != "consumer":
        assignors = (
            f"{group.assignor or 'no protocol'}, as in all members of the group"  # its own configuration is not used
        )
    else:
        assignors = (", ".join(member.assignors) or "brokers' assignor") + more
    kept = ", kept its partitions in the last rebalance" if member.kept_partitions else ""
    static = f", static as {member.instance_id}" if member.instance_id else ""
    return f"{member.client_id} at {member.host}{static}: {assignors}{kept}"


@app.command("watch")
def watch(
    cluster: ClusterName,
    *,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            help=f"Group type that must be converted or deleted: {', '.join(_TYPES)}; repeatable. Default: consumer.",
        ),
    ] = None,
    release: Annotated[
        list[str] | None,
        typer.Option("--release", help="Release that must be able to load the remaining records; repeatable."),
    ] = None,
    interval: Annotated[str, typer.Option(metavar="DURATION", help="Time between two checks, such as 5s.")] = "5s",
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="Time until the command gives up, such as 30m or 2h.")
    ] = "1h",
    as_json: AsJson = False,
    command_config: CommandConfig = None,
) -> None:
    """Wait until no group of the types is left, its records have tombstones, and the releases can load the log."""
    kinds = frozenset(types or [CONSUMER])
    if unknown := kinds - set(_TYPES):
        raise UserError(f"Unknown group type {', '.join(sorted(unknown))}.", remedy=f"Use {', '.join(_TYPES)}.")
    releases = [Release.parse(text) for text in release or ()]
    interval_s = parse_duration(interval)
    waiting = GateWatch(policy=GatePolicy(checks=1, interval_s=interval_s, timeout_s=parse_duration(timeout)))
    printed = ""
    with open_ports(cluster, None, command_config) as (ports, _, _security):
        for each in releases:
            ports.catalogue.get(each)
        while True:
            seen = _check_conversion(ports, kinds, releases)
            status = waiting.add(seen, ports.clock.now())
            if status.message != printed:
                show.say(status.message)
                printed = status.message
            if status.done:
                break
            ports.clock.sleep(interval_s)
    show.print_check(seen)
    if as_json:
        show.print_json({"cluster": cluster, "ok": status.state is WatchState.PASSED, "check": seen})
    if status.state is not WatchState.PASSED:
        raise typer.Exit(RefusedError.exit_code)


def _check_conversion(ports: ClusterPorts, kinds: frozenset[str], releases: list[Release]) -> GateCheck:
    """Check the conversion. A cluster that does not respond counts as an unmet condition."""
    try:
        return check_conversion(ports, kinds, releases)
    except TransientError as error:
        unanswered = GateCondition(name="the cluster responds", is_met=False, evidence=error.sentence)
        return GateCheck(gate=GATE, at=ports.clock.now(), conditions=(unanswered,))


def _print(plans: tuple[GroupPlan, ...], facts: ConversionSettings, to: Goal) -> None:
    if not plans:
        show.out.print(_NO_GROUPS)
        return
    rows = []
    for each in plans:
        group = each.group
        bounces = each.bounces if each.bounces is not None else "all at once" if each.steps else "not possible"
        counts = len(group.members), len(group.static_members), bounces
        rows.append((group.group_id, group.type, group.state, group.assignor, *counts))
    show.print_table(("Group", "Type", "State", "Assignor", "Members", "Static", "Bounces"), rows)
    for each in plans:
        if each.steps:
            show.say(f"{each.group.group_id}:")
        for number, step in enumerate(each.steps, start=1):
            show.say(f"  {number}. {step}")
        if each.note:
            show.say(f"{each.group.group_id}: {each.note}")
    show.print_findings(tuple(each.finding for each in plans if each.finding))
    if to is Goal.CLASSIC and any(each.steps for each in plans):
        show.out.print(
            f"Do these steps in this order. `groups watch` shows when {GROUP_VERSION} (now "
            f"{facts.group_version}) can be lowered."
        )
