"""Levels and releases, as `kafka-features.sh` accepts them."""

from __future__ import annotations

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.cli.options import read_feature, read_level, read_release


@pytest.mark.parametrize(
    ("text", "level"), [("25", 25), ("4.0-IV3", 25), ("4.0-iv3", 25), ("4.0", 25), ("3.9-IV0", 21)]
)
def test_a_level_has_a_number_and_a_name(text: str, level: int) -> None:
    assert read_level(text) == level


@pytest.mark.parametrize("text", ["abc", "0", "-1", "9.9-IV1", "4.0.0", ""])
def test_another_text_is_refused_with_both_forms(text: str) -> None:
    with pytest.raises(UserError, match=r"is not a metadata\.version\. Use a number or a name, .* 25 or 4\.0-IV3"):
        read_level(text)


@pytest.mark.parametrize(
    ("text", "feature"),
    [
        ("metadata.version=4.0-IV3", "metadata.version:25"),
        ("metadata.version:29,group.version=1", "metadata.version:29,group.version=1"),
        ("group.version=one", "group.version=one"),
        ("group.version", "group.version"),
    ],
)
def test_a_level_of_metadata_version_can_have_its_name(text: str, feature: str) -> None:
    assert read_feature(text) == feature


def test_two_numbers_are_the_newest_release_of_a_minor_line() -> None:
    assert str(read_release("4.0")) == "4.0.2"
    assert str(read_release("4.0.1")) == "4.0.1"
    with pytest.raises(UserError, match="'4' is not a Kafka release"):
        read_release("4")
