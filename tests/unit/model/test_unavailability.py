"""Topics whose unavailability is accepted, by name and by pattern."""

from __future__ import annotations

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.model.plan import accepted_topics, find_acceptance


@pytest.mark.parametrize(
    ("topic", "found"),
    [
        ("tmp-1", "tmp-*"),
        ("audit", "audit"),
        ("audit2", ""),
        ("Tmp-1", ""),
        ("__consumer_offsets", ""),
        ("__share_group_state", "__share*"),
    ],
)
def test_a_wildcard_does_not_contain_internal_topics(topic: str, found: str) -> None:
    patterns = ("*-nothing", "tmp-*", "audit", "__share*", "?_consumer_offsets")
    assert find_acceptance(patterns, topic) == found


def test_every_topic_but_the_internal_ones_is_one_star() -> None:
    assert [find_acceptance(["*"], topic) for topic in ("orders", "_schemas", "__transaction_state")] == ["*", "*", ""]


def test_patterns_are_cleaned_and_checked() -> None:
    assert accepted_topics([" b", "a", "b ", ""]) == ("a", "b")
    with pytest.raises(UserError, match="'orders,audit' is not the name or pattern of a topic"):
        accepted_topics(["orders,audit"])
