"""Lists of nodes are short, and no node is left out."""

from __future__ import annotations

import pytest

from kafka_rollout.base.wording import count, few_sentences, nodes


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([3], "node 3"),
        ([3, 1, 2], "nodes 1, 2, 3"),
        (range(1, 9), "nodes 1, 2, 3, 4, 5, 6, 7, 8"),
        (range(1, 10), "nodes 1 to 9"),
        ([1, 2, *range(101, 301), 400], "nodes 1, 2, 101 to 300, 400"),
        (range(1, 20, 2), "nodes 1, 3, 5, 7, 9, 11, 13, 15, 17, 19"),
    ],
)
def test_many_nodes_have_ranges(ids: list[int], text: str) -> None:
    assert nodes(ids) == text


def test_numbers_have_separators() -> None:
    assert (count(1, "topic"), count(1204, "topic")) == ("1 topic", "1,204 topics")


def test_the_sentences_that_are_not_listed_are_counted_in_a_sentence() -> None:
    assert few_sentences(["A is missing.", "B is missing."], limit=2) == "A is missing. B is missing."
    assert few_sentences(["A is missing.", "B is missing.", "C."], limit=1) == "A is missing. And 2 more."
