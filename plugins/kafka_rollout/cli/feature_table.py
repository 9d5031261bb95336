"""Output of features: a table that marks differing nodes."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from kafka_rollout.base.wording import nodes
from kafka_rollout.cli.show import out, print_table, say_marked
from kafka_rollout.model.state import (
    ClusterState,
    NodeFeatures,
    find_unlisted_brokers,
    find_unlisted_controllers,
)
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.report.feature_levels import differing_nodes, feature_names, newest_features, ranges_of


def print_levels(state: ClusterState) -> None:
    """Print one row per feature: finalized level and the range of every node. Ranges unlike most are marked."""
    best = newest_features(state)
    rows: list[tuple[object, ...]] = []
    for name in feature_names(state):
        level, low = state.finalized.reported.get(name), best.finalized_min.get(name) if best else None
        ranges = ranges_of(state, name)
        differing = differing_nodes(ranges)
        groups: dict[str, list[int]] = {}
        for node_id, text in ranges.items():
            groups.setdefault(text, []).append(node_id)
        lines = [
            Text(f"! {text}: {nodes(ids)}", "bold yellow") if set(ids) & differing else Text(f"{text}: {nodes(ids)}")
            for text, ids in groups.items()
        ]
        rows.append((name, level if low in {None, level, 0} else f"{low}-{level}", Text("\n").join(lines)))
    print_table(("Feature", "Finalized", "Supported by"), rows)


def print_description(cluster: ClusterSpec, state: ClusterState) -> None:
    """Print the levels, the epoch, and the nodes that differ or did not respond."""
    best = newest_features(state)
    print_levels(state)
    out.print(f"Epoch: {'none reported' if best is None or best.epoch is None else best.epoch}")
    for node_id, node in sorted(state.nodes.items()):
        for sentence in _differences(node.features, state.finalized.reported) if node.features else ():
            say_marked(f"Node {node_id} reports", "yellow", sentence)
        if node.features is None:
            say_marked(f"Node {node_id} does not respond:", "yellow", node.problem)
    problems = {node.problem for node in state.nodes.values()}
    for sentence in (sentence for sentence in state.unanswered if sentence not in problems):
        say_marked("Query failed:", "yellow", sentence)
    for kind, unlisted in (
        ("Broker", find_unlisted_brokers(cluster, state)),
        ("Controller", find_unlisted_controllers(cluster, state)),
    ):
        for unlisted_id in sorted(unlisted):
            out.print(
                f"[yellow]{kind} {unlisted_id} is registered but not listed in the inventory: its levels are "
                "unknown.[/yellow]"
            )


def _differences(features: NodeFeatures, finalized: Mapping[str, int]) -> list[str]:
    """Return the finalized levels in which a node differs from the node with the highest epoch."""
    if not features.finalized and features.epoch is None:  # controllers before 3.5 report none
        return []
    names = sorted(set(features.finalized) | set(finalized))
    differ = [n for n in names if features.finalized.get(n, 0) != finalized.get(n, 0)]
    return [
        f"{name} {features.finalized.get(name, 0)} instead of {finalized.get(name, 0)} (epoch {features.epoch})"
        for name in differ
    ]
