"""Logs of nodes: what the log of a process has shown since its start, its first error, and an excerpt.

The only module that reads logs of nodes for the steps. `model/node_log.py` concludes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_rollout.base.errors import RefusedError, RolloutError, TransientError
from kafka_rollout.model.node_log import (
    READ_LINES,
    LogExcerpt,
    SeenLog,
    cut_excerpt,
    find_first_error,
    find_logged_requests,
    read_part,
)
from kafka_rollout.model.state import ClusterState, LoggedRequest
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import LogSeen

if TYPE_CHECKING:
    from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts

_REQUEST_LINES = 2_000
_PARTS = 8  # of a log that is read at once; the next call continues
_RECORD_EVERY_S = 60.0  # the position, so that another process continues there


class _Positions:
    """The newest reading of each node's log in this process. The run history has those with something new."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str, int], SeenLog] = {}

    def load(self, ports: ReadPorts, node: NodeSpec) -> tuple[SeenLog | None, float]:
        """Return what was seen of the log, and when the history got it (epoch seconds)."""
        recorded = [event for event in events_of(ports.run.events(), LogSeen) if event.node_id == node.node_id]
        if not recorded:
            return None, 0.0
        seen, at = recorded[-1].seen, recorded[-1].at
        newest = self._newest.get(self._key(ports, node))
        # Another process can have recorded more since.
        return (newest if newest is not None and _facts(newest) == _facts(seen) else seen), at

    def keep(self, ports: ReadPorts, node: NodeSpec, seen: SeenLog) -> None:
        self._newest[self._key(ports, node)] = seen

    def _key(self, ports: ReadPorts, node: NodeSpec) -> tuple[str, str, int]:
        return ports.cluster.name, ports.run_id, node.node_id


_POSITIONS = _Positions()


def read_log(ports: ClusterPorts, node: NodeSpec, earlier: Mapping[int, SeenLog] | None = None) -> SeenLog | None:
    """Read on in the log of the node's newest process; return everything that it has shown.

    Every line is read once. What it shows is kept in the run history, so that a rotation cannot lose it. None if no log
    can be read, or if the node has had no process. `earlier`: node id →
    what another run has seen; it counts where this run has read nothing.
    """
    before, recorded_at = _POSITIONS.load(ports, node)
    process = ports.runtime.process(node)
    if before is None and earlier is not None:
        before = earlier.get(node.node_id)
    own = before if before is not None and before.is_of(process.pid or before.pid, process.started_at) else None
    part = ports.runtime.process_log(node, own.position if own else "")
    if part is None:
        return own
    if own is not None and not own.is_of(part.pid, part.started_at):  # the process ended in between
        own, part = None, ports.runtime.process_log(node) or part
    seen = read_part(own, part)
    for _ in range(_PARTS - 1):
        if not part.is_cut or (more := ports.runtime.process_log(node, seen.position)) is None:
            break
        part, seen = more, read_part(seen, more)
    now = ports.clock.now()
    if own is None or _facts(seen) != _facts(own) or now - recorded_at >= _RECORD_EVERY_S:
        ports.run.record(LogSeen(at=now, node_id=node.node_id, seen=seen))
    _POSITIONS.keep(ports, node, seen)
    return seen


def read_broker_log(
    ports: ClusterPorts, node: NodeSpec, earlier: Mapping[int, SeenLog] | None = None
) -> SeenLog | None:
    """Read on in the log of a broker; None if it cannot be read now. `earlier`: as in `read_log`."""
    try:
        return read_log(ports, node, earlier) if node.is_broker else None
    except (TransientError, RefusedError):
        return None


def _facts(seen: SeenLog) -> SeenLog:
    return replace(seen, position="", lines=0)


def read_log_excerpt(ports: ReadPorts, node: NodeSpec) -> LogExcerpt:
    """Return the lines of the node's log around its last error. A log that cannot be read is in `problem`."""
    found = LogExcerpt(node_id=node.node_id, name=node.name, at=ports.clock.now())
    try:
        return replace(found, lines=cut_excerpt(ports.runtime.log_tail(node, lines=READ_LINES)))
    except RolloutError as error:
        return replace(found, problem=error.sentence)


def read_error_line(ports: ReadPorts, node: NodeSpec) -> tuple[str, str]:
    """Return the first error that the node's newest process has logged at its end, else its last line; and why there is
    none."""
    try:
        shown = _first_error(ports, node)
    except RolloutError as error:
        return "", f"its log cannot be read: {error.sentence}"
    return shown, "" if shown else "its log is empty"


def read_last_error(ports: ReadPorts, node: NodeSpec) -> str:
    """Return the same as the end of a sentence."""
    shown, without = read_error_line(ports, node)
    return without or f"its log shows: {shown}"


def _first_error(ports: ReadPorts, node: NodeSpec) -> str:
    """Without lines of the process itself, for example of one that this tool did not start, use the last lines."""
    own = find_first_error(ports.runtime.log_tail(node, lines=READ_LINES, own=True))
    return own or find_first_error(ports.runtime.log_tail(node, lines=80))


def with_log_errors(ports: ReadPorts, state: ClusterState) -> ClusterState:
    """Add the first error in the log of each node that does not respond; none of a log that cannot be read."""
    found = {}
    for node in ports.cluster.nodes if ports.cluster.manages_nodes else ():
        seen = state.nodes.get(node.node_id)
        if seen is not None and seen.features is None:
            with suppress(RolloutError):
                found[node.node_id] = replace(seen, log_error=_first_error(ports, node))
    return replace(state, nodes={**state.nodes, **found}) if found else state


def read_logged_requests(ports: ReadPorts, nodes: Iterable[NodeSpec]) -> tuple[LoggedRequest, ...]:
    """Return the requests in the last lines of these brokers' logs; none of a log that cannot be read."""
    found: dict[LoggedRequest, None] = {}
    for node in nodes:
        with suppress(TransientError, RefusedError):
            found |= dict.fromkeys(find_logged_requests(ports.runtime.log_tail(node, lines=_REQUEST_LINES)))
    return tuple(found)
