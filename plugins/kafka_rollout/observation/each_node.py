"""Acts on several nodes in parallel, each on its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ASKED_AT_ONCE, at_once

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class OnEach(Generic[T]):
    """Results of an action on some nodes, and its errors: node id → result, node id → error."""

    done: Mapping[int, T]
    failed: Mapping[int, RolloutError]

    @property
    def problems(self) -> dict[int, str]:
        """Node id → the sentence of its error."""
        return {node_id: error.sentence for node_id, error in self.failed.items()}


def on_each(
    act: Callable[[NodeSpec], T],
    chosen: Sequence[NodeSpec],
    *,
    in_turn: Callable[[NodeSpec], Hashable] = lambda node: node.node_id,
    most: int = ASKED_AT_ONCE,
) -> OnEach[T]:
    """Act on some nodes in parallel, each on its own: an error of one does not stop the others.

    Nodes with the same `in_turn` are acted on one after the other. `most`: at a time. An error of another class than
    RolloutError is raised when all are done.
    """
    done: dict[int, T] = {}
    failed: dict[int, RolloutError] = {}

    turns: dict[Hashable, list[NodeSpec]] = {}
    for node in chosen:
        turns.setdefault(in_turn(node), []).append(node)

    def one_after_the_other(together: list[NodeSpec]) -> None:
        for node in together:
            try:
                done[node.node_id] = act(node)
            except RolloutError as error:
                failed[node.node_id] = error

    at_once(one_after_the_other, turns.values(), most=max(1, most))
    return OnEach(done=dict(sorted(done.items())), failed=dict(sorted(failed.items())))
