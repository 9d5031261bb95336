"""Consumer groups from a shell: how each gets to another protocol."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from kafka_rollout import cli_output as show
from kafka_rollout.adapters.kafka_groups import describe_groups, migration_policies
from kafka_rollout.adapters.kafka_requests import ClusterConnections
from kafka_rollout.adapters.security import ClientSecurity
from kafka_rollout.cli_common import AsJson, ClusterName, ConnectionFile, open_bench
from kafka_rollout.domain.errors import RefusedError
from kafka_rollout.domain.group_migration import GROUP_VERSION, ClusterFacts, Goal, GroupPlan, plan_groups

HELP = """Consumer groups: their members, and how each gets to cooperative rebalancing, to the consumer protocol
(KIP-848) or back to classic. Changes nothing.

Exit codes: 0 there is a plan for every group, or nothing to do; 1 a broker does not answer now; 3 some cannot go.
"""
_TIMEOUT_S = 10.0

groups_app = typer.Typer(help=HELP, no_args_is_help=True)


@groups_app.callback()
def groups() -> None:
    """`plan` stays a command of its own, although it is the only one."""


@groups_app.command("plan")
def plan(
    cluster: ClusterName,
    to: Annotated[Goal, typer.Option("--to", help="Where the groups should go.")] = Goal.COOPERATIVE,
    as_json: AsJson = False,
    connection_file: ConnectionFile = None,
) -> None:
    """For each group: type, assignor, members, the bounces it takes and their steps, in the order to take them."""
    with open_bench(cluster, None, connection_file) as (bench, _, security):
        nodes = ClusterConnections(bench.cluster, security or ClientSecurity(), timeout_s=_TIMEOUT_S)
        try:
            finalized = bench.admin.features(bench.cluster.brokers[0]).finalized
            facts = ClusterFacts(group_version=finalized.get(GROUP_VERSION, 0), policies=migration_policies(nodes))
            plans = plan_groups(describe_groups(nodes), to, facts)
        finally:
            nodes.close()
    if as_json:
        show.print_json({"cluster": bench.cluster.name, "to": to, "facts": facts, "groups": plans})
    else:
        _print(plans, facts)
    if any(each.finding for each in plans):
        raise typer.Exit(RefusedError.exit_code)


def _print(plans: tuple[GroupPlan, ...], facts: ClusterFacts) -> None:
    table = Table("Group", "Type", "State", "Assignor", "Members", "Static", "Bounces")
    for each in plans:
        group = each.group
        bounces = "all at once" if each.bounces is None and each.steps else each.bounces
        table.add_row(
            *map(escape, (group.group_id, group.type, group.state, group.assignor)),
            str(len(group.members)),
            str(len(group.static_members)),
            "none leads there" if bounces is None else str(bounces),
        )
    show.out.print(table)
    for each in plans:
        if each.steps:
            show.out.print(f"{escape(each.group.group_id)}:")
        for number, step in enumerate(each.steps, start=1):
            show.out.print(f"  {number}. {escape(step)}")
    show.print_findings(tuple(each.finding for each in plans if each.finding))
    if any(each.group.type == "consumer" and each.steps for each in plans):
        show.out.print(f"Only then lower {GROUP_VERSION} (now {facts.group_version}).")
