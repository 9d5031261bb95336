"""Whether a leader was elected on the snapshot of a live downgrade, decided from the files of stopped controllers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.metadata_log.log_choice import (
    ChosenLog,
    NodeLog,
    SnapshotUse,
    decide_snapshot_use,
    epoch_after_return,
)

VOTERS = (1, 2, 3)
EPOCH = 104
CHOSEN = ChosenLog(
    node_id=1,
    end_offset=50,
    epoch=3,
    snapshot_epoch=EPOCH,
    voters=VOTERS,
    read=(1, 2, 3, 11),
    not_read=(),
    snapshot_offset=1050,
)
CONTROLLER = NodeLog(
    node_id=1,
    epoch=EPOCH,
    end_offset=1050,
    known_epoch=4,
    voters=frozenset(VOTERS),
    newest_epoch=EPOCH,
    snapshots=frozenset({CHOSEN.snapshot}),
)
BROKER = NodeLog(node_id=11, epoch=3, end_offset=50, known_epoch=4, voters=frozenset(VOTERS), newest_epoch=3)
INSTALLED = {node_id: replace(CONTROLLER, node_id=node_id) for node_id in VOTERS}


def test_a_majority_of_controllers_without_a_later_leader_can_use_the_old_logs_again() -> None:
    assert decide_snapshot_use(CHOSEN, VOTERS, INSTALLED, [BROKER]) is SnapshotUse.UNUSED
    two = {node_id: INSTALLED[node_id] for node_id in (1, 3)}
    assert decide_snapshot_use(CHOSEN, VOTERS, two, [BROKER]) is SnapshotUse.UNUSED


def test_a_controller_that_was_formatted_again_is_not_a_stopped_voter() -> None:
    """It cannot vote, and has stored no epoch of an election of the other two."""
    directories = {node_id: f"directory-{node_id}" for node_id in VOTERS}
    known = {
        node_id: replace(one, directory_id=directories[node_id], voter_directories=directories)
        for node_id, one in INSTALLED.items()
    }
    two = {1: known[1], 3: known[3]}
    assert decide_snapshot_use(CHOSEN, VOTERS, two, [BROKER]) is SnapshotUse.UNUSED
    again = {1: known[1], 3: replace(known[3], directory_id="new")}
    assert decide_snapshot_use(CHOSEN, VOTERS, again, [BROKER]) is SnapshotUse.UNKNOWN


@pytest.mark.parametrize(
    "shows",
    [{"newest_epoch": EPOCH + 1}, {"known_epoch": EPOCH + 1, "leader_id": 2}],
    ids=["a batch of a later epoch", "a later leader in quorum-state"],
)
def test_one_controller_that_knows_a_later_leader_is_enough(shows: dict[str, int]) -> None:
    elected = {**INSTALLED, 2: replace(INSTALLED[2], **shows)}  # type: ignore[arg-type]
    assert decide_snapshot_use(CHOSEN, VOTERS, elected, [BROKER]) is SnapshotUse.USED


@pytest.mark.parametrize("name", [CHOSEN.snapshot, CHOSEN.snapshot.replace(".", "-2614081.") + ".part"])
def test_a_broker_that_fetches_the_snapshot_proves_a_leader_although_no_controller_shows_one(name: str) -> None:
    fetched = replace(BROKER, snapshots=frozenset({name}))
    assert decide_snapshot_use(CHOSEN, VOTERS, INSTALLED, [BROKER, fetched]) is SnapshotUse.USED


def test_a_broker_with_a_record_of_a_later_epoch_proves_a_leader() -> None:
    assert decide_snapshot_use(CHOSEN, VOTERS, INSTALLED, [replace(BROKER, newest_epoch=EPOCH + 1)]) is SnapshotUse.USED


def test_less_than_a_majority_proves_nothing() -> None:
    assert decide_snapshot_use(CHOSEN, VOTERS, {1: INSTALLED[1]}, [BROKER]) is SnapshotUse.UNKNOWN


def test_a_vote_for_a_controller_that_cannot_be_read_can_have_elected_it() -> None:
    voted = {1: INSTALLED[1], 2: replace(INSTALLED[2], known_epoch=EPOCH + 1, voted_id=3)}
    assert decide_snapshot_use(CHOSEN, VOTERS, voted, [BROKER]) is SnapshotUse.UNKNOWN
    lost_election = {**voted, 3: replace(INSTALLED[3], known_epoch=EPOCH + 1, voted_id=3)}
    assert decide_snapshot_use(CHOSEN, VOTERS, lost_election, [BROKER]) is SnapshotUse.UNUSED


def test_the_epoch_of_the_return_is_above_every_epoch_that_a_node_knows() -> None:
    logs = [*INSTALLED.values(), replace(BROKER, known_epoch=EPOCH + 7)]
    assert epoch_after_return(CHOSEN, logs) == EPOCH + 8
    assert epoch_after_return(CHOSEN, []) == EPOCH + 1
