"""Events of a log, and lines that are none."""

from __future__ import annotations

import pytest

from kafka_rollout.base.log_lines import LogLayout, is_throwable, parse_events

AT = "2026-11-23 02:00:00,000"
LOADED = f"[{AT}] INFO [GroupCoordinator id=4] Loaded (kafka.coordinator.group.GroupMetadataManager)"


@pytest.mark.parametrize(
    "line",
    [
        f"[{AT}] WARN [Log partition=a-0, dir=/d] Found (x) in a file (org.apache.kafka.storage.LocalLog)",
        f"{AT} WARN [Log partition=a-0, dir=/d] Found (x) in a file (org.apache.kafka.storage.LocalLog) [main]",
    ],
)
def test_an_event_has_a_level_a_message_without_prefix_and_a_logger(line: str) -> None:
    (event,) = parse_events([line])
    assert (event.level, event.class_name, event.message) == ("WARN", "LocalLog", "Found (x) in a file")
    assert event.is_of_kafka


@pytest.mark.parametrize(
    ("line", "layout"),
    [
        (f"[{AT}] INFO  Started (kafka.A)", LogLayout.PADDED),
        (f"{AT} WARN  Started (kafka.A) [main]", LogLayout.PLAIN_PADDED_THREAD),
        (f"[{AT}] INFO Started (kafka.A)", LogLayout.KAFKA),
        (f"[{AT}] ERROR Started (kafka.A)", LogLayout.KAFKA),
        ("[2026-11-28T20:15:00.123Z] INFO Started (kafka.A)", LogLayout.KAFKA),
        ("[2026-11-28T20:15:00.123+01:00] INFO Started (kafka.A)", LogLayout.KAFKA),
        ("[2026-11-28 20:15:00,123 UTC] INFO  Started (kafka.A)", LogLayout.PADDED),
    ],
)
def test_a_padded_level_and_a_zone_are_read(line: str, layout: LogLayout) -> None:
    (event,) = parse_events([line])
    assert (event.message, event.layout) == ("Started", layout)


def test_a_message_with_a_blank_before_it_is_not_in_kafkas_layout() -> None:
    """A log that began in one layout counts no line of the other one."""
    (event,) = parse_events([f"[{AT}] ERROR  Started (kafka.A)"])
    assert event.message == " Started"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no event",
        f"[{AT}] INFO without a logger",
        f'{{"level":"INFO","message":"{LOADED}"}}',
        f"10:00:00 INFO {LOADED}",
        f"[{AT}] INFO a stack frame (Foo.java)",
    ],
)
def test_a_line_in_another_layout_is_no_event(line: str) -> None:
    assert [event.message for event in parse_events([line])] in ([], ["a stack frame"])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("java.lang.IllegalStateException: Unknown (a.b)", True),
        ("Caused by: org.apache.kafka.common.KafkaException: x", True),
        ("\tat kafka.A.b(A.scala:1)", True),
        ("\t... 3 more", True),
        ("kafka.common.OffsetsLoadedException", True),
        (" in state Empty (kafka.coordinator.group.GroupCoordinator)", False),
        ("a group", False),
    ],
)
def test_lines_of_an_exception_are_recognized(line: str, expected: bool) -> None:
    assert is_throwable(line) is expected
