"""Starts of nodes, and the operator's commands after them.

Every start passes `starting`. The commands run when all nodes of the block were started, on all of them at the same
time: a command that waits for other nodes finds them started. They are due from the start of the node until they have
ended without an error, also if the run was killed in between. One that fails keeps no node from starting, and runs
again when the step is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kafka_rollout.base.errors import FatalError, RolloutError, TransientError
from kafka_rollout.base.wording import few
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.each_node import on_each
from kafka_rollout.observation.run import Run
from kafka_rollout.run.projections.nodes import unfinished_starts
from kafka_rollout.run.step_events import StartFinished, StartingWithCommands, StartUnfinished


@dataclass(slots=True)
class Starts:
    """The starts of one block."""

    run: Run
    failed: dict[int, RolloutError] = field(default_factory=dict)
    """Node id → the error of its commands."""

    def start(self, node: NodeSpec) -> None:
        """Start the installed release of a node, as NodeChanges.start. Its commands run at the end of the block."""
        commands = node.commands_after_start
        if commands and self.run.ports.runtime.process(node).pid is None:
            at_most_s = node.commands_after_start_s
            started = StartingWithCommands(node_id=node.node_id, commands=len(commands), at_most_s=at_most_s)
            self.run.history.record(started)  # before the start, so that a kill in between leaves them due
        self.run.ports.runtime.start(node)

    def finish(self, nodes: Sequence[NodeSpec]) -> None:
        """Run the commands that are due on the nodes that have a process. Errors are recorded, and are in `failed`."""
        due = unfinished_starts(self.run.history.events())
        chosen = [node for node in nodes if node.node_id in due and node.commands_after_start]
        failed = on_each(self._run_commands, chosen, most=len(chosen)).failed
        for node in chosen:
            self.failed.pop(node.node_id, None)
        for node_id, error in failed.items():
            self.failed[node_id] = error
            self.run.history.record(StartUnfinished(node_id=node_id, sentence=error.sentence))

    def _run_commands(self, node: NodeSpec) -> None:
        runtime, clock = self.run.ports.runtime, self.run.ports.clock
        if runtime.process(node).pid is None:
            return  # the gate of the node tells it, and the next start runs them
        began = clock.monotonic()
        runtime.finish_start(node)
        took = round(clock.monotonic() - began, 3)
        self.run.history.record(StartFinished(node_id=node.node_id, seconds=took))

    def raise_failed(self, *, leaves_out: bool = False, goes_on: bool = False) -> None:
        """Raise one error for all commands that failed: TransientError if only hosts did not respond.

        `leaves_out`: of such hosts, StartUnfinished in the history is enough. A repeated step asks them again.
        `goes_on`: of all, as in a rollback, which needs none of them; its end tells it (`find_unfinished_starts`)."""
        errors = [error for _, error in sorted(self.failed.items())]
        are_silent = all(isinstance(one, TransientError) for one in errors)
        if not errors or goes_on or (leaves_out and are_silent):
            return
        kind = TransientError if are_silent else FatalError
        raise kind(
            few([error.sentence for error in errors]),
            remedy=" ".join(dict.fromkeys(error.remedy for error in errors if error.remedy)),
        )


@contextmanager
def starting(run: Run, nodes: Sequence[NodeSpec]) -> Iterator[Starts]:
    """Start some of the nodes in the block, then run the commands that are due on all of them, also after an error.

    What fails in a command is not raised: see `Starts.raise_failed`.
    """
    starts = Starts(run)
    try:
        yield starts
    except RolloutError:
        starts.finish(nodes)
        raise
    starts.finish(nodes)


def finish_starts(run: Run, nodes: Sequence[NodeSpec], *, leaves_out: bool = False, goes_on: bool = False) -> None:
    """Run the commands that are due on the nodes. Raises as `Starts.raise_failed`."""
    starts = Starts(run)
    starts.finish(nodes)
    starts.raise_failed(leaves_out=leaves_out, goes_on=goes_on)
