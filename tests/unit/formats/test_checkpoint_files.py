"""Checkpoint files are refused where a broker stops at them (CheckpointFile.CheckpointReadBuffer)."""

from __future__ import annotations

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.formats.checkpoint_files import parse_epochs, parse_offsets, write_epochs


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0\n2\n1 0\n", "it should have 2 entries, and has 1"),
        ("0\n1\n1 0\n2 9\n", "it should have 1 entries, and has 2"),
        ("0\n1\n", "it should have 1 entries, and has 0"),
        ("\0" * 30, "its version is"),
        ("1\n1\n0 0\n", "its version is '1', not 0"),
        ("\n", "its version is ''"),
        ("0\none\n0 0\n", "'one' is not the number of its entries"),
        ("0\n-1\n", "'-1' is not the number of its entries"),
        ("0\n1\n 1 0\n", "is not an epoch"),
        ("0\n2\n1 0\n\n", "'' is not an epoch"),
    ],
)
def test_a_text_at_which_a_broker_stops_is_refused_with_the_name_of_the_file(text: str, why: str) -> None:
    with pytest.raises(UserError, match=why) as caught:
        parse_epochs(text, "a/leader-epoch-checkpoint")
    assert caught.value.sentence.startswith("a/leader-epoch-checkpoint is damaged: ")


@pytest.mark.parametrize("text", ["0\n1\norders 0\n", "0\n2\norders 0 9\n", "1\n1\norders 0 9\n"])
def test_start_offsets_are_read_as_strictly(text: str) -> None:
    with pytest.raises(UserError, match="log-start-offset-checkpoint is damaged"):
        parse_offsets(text)


def test_what_a_broker_accepts_is_read() -> None:
    for text in ("", "0\n", "0", "0\n0\n"):
        assert parse_epochs(text) == ()
    assert parse_epochs("0\r\n2\r\n1\t0\r\n7  57") == ((1, 0), (7, 57))
    assert parse_epochs(write_epochs(((1, 0), (7, 57)))) == ((1, 0), (7, 57))
    assert parse_offsets("0\n1\norders 3 9\n") == {("orders", 3): 9}
