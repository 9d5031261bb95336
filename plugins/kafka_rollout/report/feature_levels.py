"""The feature levels of a cluster as plain values: what each node supports, what is finalized, and who differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kafka_rollout.model.state import (
    ClusterState,
    NodeFeatures,
    find_unlisted_brokers,
    find_unlisted_controllers,
)
from kafka_rollout.model.topology import ClusterSpec

_NO_ANSWER = "no response"
_NOT_KNOWN = "not supported"


def describe_features(cluster: ClusterSpec, state: ClusterState) -> dict[str, Any]:
    """Return the JSON form.

    Keys are stable. `epoch` and a node's features are null if the node does not report them.
    """
    best = newest_features(state)
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
                "differs": sorted(differing_nodes(ranges_of(state, name))),
            }
            for name in feature_names(state)
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


def feature_names(state: ClusterState) -> list[str]:
    names = {name for node in state.nodes.values() if node.features for name in node.features.supported}
    return sorted(names | set(state.finalized.reported))


def ranges_of(state: ClusterState, name: str) -> dict[int, str]:
    return {
        node_id: _NO_ANSWER if node.features is None else str(node.features.supported.get(name, _NOT_KNOWN))
        for node_id, node in sorted(state.nodes.items())
    }


def differing_nodes(ranges: Mapping[int, str]) -> set[int]:
    """Return the nodes that differ from most nodes."""
    usual = Counter(ranges.values()).most_common(1)[0][0] if ranges else ""
    return {node_id for node_id, text in ranges.items() if text != usual}


def _range(features: NodeFeatures | None, name: str) -> dict[str, int] | None:
    found = features.supported.get(name) if features else None
    return {"min": found.min, "max": found.max} if found else None


def newest_features(state: ClusterState) -> NodeFeatures | None:
    answers = [node.features for node in state.nodes.values() if node.features is not None]
    return max(answers, key=lambda f: -1 if f.epoch is None else f.epoch, default=None)
