"""Which stopped node's log holds everything that was committed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.metadata_log.log_choice import EPOCHS_ABOVE, OFFSETS_BEYOND, NodeLog, choose_log


def log(
    node_id: int, epoch: int, end: int, *, known: int | None = None, voters: frozenset[int] = frozenset()
) -> NodeLog:
    known = epoch if known is None else known
    return NodeLog(node_id=node_id, epoch=epoch, end_offset=end, known_epoch=known, voters=voters)


VOTERS = (1, 2, 3)


def test_the_highest_epoch_wins_before_the_longest_log() -> None:
    """A leader that lost its majority went on writing; nothing of that was committed."""
    chosen = choose_log([log(1, 5, 900), log(2, 6, 300), log(3, 6, 310)], VOTERS, {})
    assert (chosen.node_id, chosen.epoch, chosen.end_offset) == (3, 6, 310)


def test_a_broker_that_fetched_further_is_no_voter_and_is_not_chosen() -> None:
    assert choose_log([log(1, 6, 300), log(2, 6, 300), log(11, 6, 320)], VOTERS, {}).node_id == 1


def test_the_snapshots_epoch_is_above_every_epoch_that_anybody_has_heard_of() -> None:
    """Also of one that voted in an election of which no log has a record."""
    assert (
        choose_log([log(1, 6, 300), log(2, 6, 300, known=9), log(11, 6, 300)], VOTERS, {}).snapshot_epoch
        == 9 + EPOCHS_ABOVE
    )


@pytest.mark.parametrize("at_hand", [(), (1,)])
def test_less_than_a_majority_of_the_voters_is_refused_and_says_what_is_missing(at_hand: tuple[int, ...]) -> None:
    logs = [log(node_id, 6, 300) for node_id in (*at_hand, 11, 12)]
    with pytest.raises(RefusedError, match=r"2 are needed.*the disk of 2 is gone"):
        choose_log(logs, VOTERS, {2: "the disk of 2 is gone"})


def test_a_majority_of_the_voters_that_the_chosen_log_names_is_needed_as_well() -> None:
    """A dynamic quorum that grew: what the inventory calls the voters is not what has to be asked."""
    grown = frozenset({1, 2, 3, 4, 5})
    with pytest.raises(RefusedError, match="2 of 5 voters"):
        choose_log([log(1, 6, 300, voters=grown), log(2, 6, 299, voters=grown)], VOTERS, {})
    logs = [log(1, 6, 300, voters=grown), log(2, 6, 299, voters=grown), log(5, 6, 301, voters=grown)]
    chosen = choose_log(logs, VOTERS, {})
    assert (chosen.node_id, chosen.voters) == (5, (1, 2, 3, 4, 5))


DIRECTORIES = {1: "one", 2: "two", 3: "three"}


def dynamic(node_id: int, end: int, directory: str) -> NodeLog:
    of_voters = frozenset(DIRECTORIES)
    return replace(log(node_id, 6, end, voters=of_voters), directory_id=directory, voter_directories=DIRECTORIES)


def test_a_directory_that_was_formatted_again_is_no_voter() -> None:
    """A record that nodes 2 and 3 committed before the disk of node 3 was replaced is in the log of node 2 alone."""
    behind, again = dynamic(1, 290, "one"), dynamic(3, 295, "new")
    with pytest.raises(
        RefusedError, match=r"1 of 3 voters.*node 3: its directory is another one than that of the voter"
    ):
        choose_log([behind, again], VOTERS, {2: "node 2: gone"})
    assert choose_log([behind, dynamic(2, 300, "two"), again], VOTERS, {}).node_id == 2
    assert choose_log([behind, dynamic(3, 295, "three")], VOTERS, {2: "node 2: gone"}).node_id == 3
    broker = replace(log(11, 6, 310), directory_id="eleven", voter_directories=DIRECTORIES)
    assert choose_log([behind, dynamic(2, 300, "two"), broker], VOTERS, {}).node_id == 2


def test_a_voter_without_the_id_of_its_directory_is_unknown() -> None:
    with pytest.raises(RefusedError, match="1 of 3 voters"):
        choose_log([dynamic(1, 290, "one"), dynamic(3, 295, "")], VOTERS, {})


def test_an_old_log_that_knows_only_itself_does_not_make_a_majority() -> None:
    with pytest.raises(RefusedError, match="1 of 3 voters"):
        choose_log([log(1, 2, 40, voters=frozenset({1}))], VOTERS, {})


def test_what_was_chosen_survives_the_runs_record() -> None:
    chosen = choose_log([log(1, 6, 300), log(2, 6, 300)], VOTERS, {3: "node 3: gone"})
    assert chosen.snapshot == f"{300:020}-{6 + EPOCHS_ABOVE:010}.checkpoint"


def test_a_live_snapshot_ends_beyond_the_log_of_every_node_also_of_a_broker_that_has_more_than_the_controllers() -> (
    None
):
    logs = [log(1, 6, 300), log(2, 6, 300), log(11, 6, 320)]
    offline, live = choose_log(logs, VOTERS, {}), choose_log(logs, VOTERS, {}, live=True)
    assert offline.snapshot == f"{300:020}-{6 + EPOCHS_ABOVE:010}.checkpoint"
    assert live.snapshot == f"{320 + OFFSETS_BEYOND:020}-{6 + EPOCHS_ABOVE:010}.checkpoint"
    assert (live.node_id, live.end_offset) == (1, 300), "the records are those of the controllers"
