"""Output of features: a table that marks differing nodes, and the same as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

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

_NO_ANSWER = "no response"
_NOT_KNOWN = "not supported"


def describe_json(cluster: ClusterSpec, state: ClusterState) -> dict[str, Any]:
    """Return the JSON form.

    Keys are stable. `epoch` and a node's features are null if the node does not report them.
    """
    best = _newest(state)
    return {
        "cluster": cluster.name,
        "epoch": best.epoch if best else None,
        "finalized": dict(state.finalized.reported),
        "finalized_min": dict(best.finalized_min) if best else {},
        "features": [
            {
                "feature": name,
                "finalized": state.finalized.reported.get(name),
                "finalized_min": best.finalized_min.get(name) if best else None,
                "supported": {str(node_id): _range(node.features, name) for node_id, node in state.nodes.items()},
                "differs": sorted(_differing(_ranges(state, name))),
            }
            for name in _names(state)
        ],
        "nodes": {
            str(node_id): {
                "release": str(node.release) if node.release else None,
                "epoch": node.features.epoch if node.features else None,
                "finalized": dict(node.features.finalized) if node.features else None,
                "supported": {n: {"min": r.min, "max": r.max} for n, r in node.features.supported.items()}
                if node.features
                else None,
                "problem": node.problem,
            }
            for node_id, node in sorted(state.nodes.items())
        },
        "ghosts": {
            "brokers": sorted(find_unlisted_brokers(cluster, state)),
            "controllers": sorted(find_unlisted_controllers(cluster, state)),
        },
        "unanswered": list(state.unanswered),
    }


def print_levels(state: ClusterState) -> None:
    """Print one row per feature: finalized level and the range of every node. Ranges unlike most are marked."""
    best = _newest(state)
    rows: list[tuple[object, ...]] = []
    for name in _names(state):
        level, low = state.finalized.reported.get(name), best.finalized_min.get(name) if best else None
        ranges = _ranges(state, name)
        differing = _differing(ranges)
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
    best = _newest(state)
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


def _names(state: ClusterState) -> list[str]:
    names = {name for node in state.nodes.values() if node.features for name in node.features.supported}
    return sorted(names | set(state.finalized.reported))


def _ranges(state: ClusterState, name: str) -> dict[int, str]:
    return {
        node_id: _NO_ANSWER if node.features is None else str(node.features.supported.get(name, _NOT_KNOWN))
        for node_id, node in sorted(state.nodes.items())
    }


def _differing(ranges: Mapping[int, str]) -> set[int]:
    """Return the nodes that differ from most nodes."""
    usual = Counter(ranges.values()).most_common(1)[0][0] if ranges else ""
    return {node_id for node_id, text in ranges.items() if text != usual}


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


def _range(features: NodeFeatures | None, name: str) -> dict[str, int] | None:
    found = features.supported.get(name) if features else None
    return {"min": found.min, "max": found.max} if found else None


def _newest(state: ClusterState) -> NodeFeatures | None:
    answers = [node.features for node in state.nodes.values() if node.features is not None]
    return max(answers, key=lambda f: -1 if f.epoch is None else f.epoch, default=None)
