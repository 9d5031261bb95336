"""Which files of a partition's folder are its log after a start of Kafka."""

from __future__ import annotations

import pytest

from kafka_rollout.formats.log_files import segment_names


def name(offset: int, suffix: str = "") -> str:
    return f"{offset:020}.log{suffix}"


@pytest.mark.parametrize(
    ("names", "segments"),
    [
        ([name(0), name(9)], [name(0), name(9)]),
        ([name(9), name(0, ".deleted"), name(5, ".cleaned"), "leader-epoch-checkpoint"], [name(9)]),
        ([name(0, ".swap"), name(9)], [name(0, ".swap"), name(9)]),
        ([name(0, ".swap"), name(0), name(4), name(9)], [name(0, ".swap"), name(9)]),
        ([name(0, ".swap"), name(0, ".cleaned"), name(0)], [name(0)]),
        ([name(0, ".swap"), f"{0:020}.index.cleaned", name(9)], [name(9)]),
        ([name(0, ".swap"), name(8, ".cleaned"), name(9)], [name(0, ".swap"), name(9)]),
        ([], []),
    ],
)
def test_a_swap_replaces_the_segments_in_its_range(names: list[str], segments: list[str]) -> None:
    assert list(segment_names(names, lambda swap: 9)) == segments


def test_a_swap_without_records_replaces_the_segment_with_its_offset() -> None:
    assert segment_names([name(4, ".swap"), name(4), name(5)], lambda swap: 4) == (name(4, ".swap"), name(5))
