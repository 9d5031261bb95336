"""The numbers of a pace prove something on a cluster with clients."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kafka_rollout.model.pace import NO_CLIENTS, PACES, Pace, PaceNumbers
from kafka_rollout.releases.documents.catalogue import get_catalogue


def watched_s(numbers: PaceNumbers) -> float:
    return numbers.soak_s + (numbers.checks - 1) * numbers.interval_s


@pytest.mark.parametrize("pace", list(Pace))
def test_a_pace_watches_a_node_for_longer_than_controllers_wait_for_a_silent_broker(pace: Pace) -> None:
    """A broker that fails right after the first check is fenced before the last one."""
    catalogue = get_catalogue()
    named = (catalogue.get(release).config_defaults.get("broker.session.timeout.ms") for release in catalogue)
    timeouts_s = {int(value) / 1000 for value in named if value is not None}
    assert timeouts_s == {9.0}
    assert watched_s(PACES[pace]) > max(timeouts_s) > watched_s(NO_CLIENTS)


def test_a_faster_pace_has_no_larger_number() -> None:
    for slower, faster in pairwise(Pace):
        assert PACES[slower].at_least(PACES[faster]) == PACES[slower]
