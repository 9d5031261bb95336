"""Numbers of variable length are written as Kafka's ByteUtils writes them."""

from __future__ import annotations

import pytest

from kafka_rollout.formats.messages import unsigned_varint, zigzag_varint


@pytest.mark.parametrize(
    ("value", "unsigned", "signed"),
    [
        (0, "00", "00"),
        (1, "01", "02"),
        (63, "3f", "7e"),
        (64, "40", "8001"),
        (127, "7f", "fe01"),
        (300, "ac02", "d804"),
    ],
)
def test_a_number_is_written_in_groups_of_seven_bits(value: int, unsigned: str, signed: str) -> None:
    assert (unsigned_varint(value).hex(), zigzag_varint(value).hex()) == (unsigned, signed)


@pytest.mark.parametrize(("value", "signed"), [(-1, "01"), (-64, "7f"), (-65, "8101")])
def test_a_negative_number_is_written_with_its_sign_in_the_lowest_bit(value: int, signed: str) -> None:
    assert zigzag_varint(value).hex() == signed
