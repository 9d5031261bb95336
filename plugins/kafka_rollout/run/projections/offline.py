"""The offline downgrade of a run: what was done since the last undo, and the outages.

The record keeps only what cannot be observed afterwards: the voters before the first stop, and which log was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_rollout.metadata_log.log_choice import ChosenLog
from kafka_rollout.model.plan import Plan
from kafka_rollout.run.events import Event, events_of, has, newest
from kafka_rollout.run.step_events import (
    LiveKept,
    OfflineInstalled,
    OfflineLeftBehind,
    OfflineLogChosen,
    OfflineNoReturn,
    OfflineRestored,
    OfflineSnapshotWritten,
    OfflineStopping,
    OfflineUndoing,
    OfflineUndone,
    OfflineUnreached,
    Started,
    Stopped,
    Stopping,
)


def events_of_this_try(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events since the last undo. Earlier events do not count."""
    undone = [index for index, event in enumerate(events) if isinstance(event, OfflineUndone)]
    return events[undone[-1] + 1 if undone else 0 :]


def stop_has_begun(events: Sequence[Event]) -> bool:
    return has(events_of_this_try(events), OfflineStopping)


def voters_before_stop(events: Sequence[Event]) -> tuple[int, ...] | None:
    """Return the quorum's voters before the first stop of this try."""
    stopping = newest(events_of_this_try(events), OfflineStopping)
    return None if stopping is None else stopping.voters


def chosen_log(events: Sequence[Event]) -> ChosenLog | None:
    chosen = newest(events_of_this_try(events), OfflineLogChosen)
    return None if chosen is None else chosen.log


def snapshot_is_written(events: Sequence[Event]) -> bool:
    return has(events_of_this_try(events), OfflineSnapshotWritten)


def snapshot_host(events: Sequence[Event]) -> str:
    """Return the machine with the snapshot of this try; empty if unknown."""
    written = events_of(events_of_this_try(events), OfflineSnapshotWritten)
    return written[-1].host if written else ""


def installed_on(events: Sequence[Event]) -> Mapping[int, OfflineInstalled]:
    """Return node id → installation, of this try."""
    return {event.node_id: event for event in events_of(events_of_this_try(events), OfflineInstalled)}


def left_behind(events: Sequence[Event]) -> Mapping[int, str]:
    """Return node id → reason, of the controllers that were left out and were not installed or started since."""
    left: dict[int, str] = {}
    for event in events_of_this_try(events):
        match event:
            case OfflineLeftBehind():
                left[event.node_id] = event.sentence
            case OfflineInstalled() | Stopping() | Started():
                left.pop(event.node_id, None)
    return left


def unreached(events: Sequence[Event]) -> Mapping[int, str]:
    """Return node id → reason, of the nodes whose hosts did not respond to the installation of the snapshot."""
    tried = events_of_this_try(events)
    installed = installed_on(events)
    return {one.node_id: one.sentence for one in events_of(tried, OfflineUnreached) if one.node_id not in installed}


def last_acts(events: Sequence[Event]) -> Mapping[int, Stopped | Started]:
    """Return node id → the last stop or start that was finished, of this try."""
    return {event.node_id: event for event in events_of_this_try(events) if isinstance(event, Stopped | Started)}


def describe_unreached(events: Sequence[Event], node_id: int) -> str:
    """Return the remedy for a node whose host did not respond to the installation; empty for other nodes."""
    if node_id not in unreached(events):
        return ""
    return (
        "the snapshot is not installed there, because its host did not respond. When the host responds, continue this "
        "run from the stop of all nodes: it stops this node if it runs, installs the snapshot and starts the node"
    )


def describe_lost_disk(events: Sequence[Event], plan: Plan, node_id: int) -> str:
    """Return the remedy for a node that had no log when the snapshot was installed; empty for other nodes."""
    installed = installed_on(events).get(node_id)
    if installed is None or installed.had_log:
        return ""
    return (
        "its metadata log was missing when the snapshot was installed. Give it a new disk and format it on "
        f"{plan.target} (kafka-storage.sh format -t {plan.cluster_id} -c server.properties "
        "--ignore-formatted, in a dynamic quorum with --no-initial-controllers). Then continue this run, "
        "which starts the node"
    )


def restored_nodes(events: Sequence[Event]) -> frozenset[int]:
    """Return the nodes whose metadata logs this try has restored from their backups."""
    return frozenset(event.node_id for event in events_of(events_of_this_try(events), OfflineRestored))


def is_undoing(events: Sequence[Event]) -> bool:
    turns = [one for one in events_of_this_try(events) if isinstance(one, OfflineUndoing | LiveKept)]
    return bool(turns) and isinstance(turns[-1], OfflineUndoing)


def has_event(events: Sequence[Event], kind: type[Event]) -> bool:
    """Return whether this try has an event of a kind."""
    return has(events_of_this_try(events), kind)


def has_passed_no_return(events: Sequence[Event]) -> bool:
    return has_event(events, OfflineNoReturn)


def can_be_undone(events: Sequence[Event]) -> bool:
    """Return whether an undo is possible by the history. Before an undo, the metadata logs decide."""
    return stop_has_begun(events) and not has_passed_no_return(events)


def unwritable_before(events: Sequence[Event]) -> tuple[str, ...]:
    """Return the topic-partitions that were below their min.insync.replicas before the last stop of all nodes."""
    stopping = newest(events, OfflineStopping)
    return () if stopping is None else stopping.unwritable
