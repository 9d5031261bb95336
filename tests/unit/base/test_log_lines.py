"""Events of a log, and texts of clients that look like events."""

from __future__ import annotations

import pytest

from kafka_rollout.base.log_lines import is_throwable, parse_events

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
    assert event.is_certain


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


def test_the_values_of_a_configuration_are_not_doubtful() -> None:
    """Kafka writes them in several lines at each start; their last line has the logger alone."""
    log = [
        LOADED,
        f"[{AT}] INFO KafkaConfig values: ",
        "\tadvertised.listeners = null",
        "\tzone = (a.b)",
        " (kafka.server.KafkaConfig)",
        LOADED,
    ]
    assert [event.is_certain for event in parse_events(log)] == [True, True]


@pytest.mark.parametrize(
    "text",
    [
        f"x\n{LOADED}\ny",
        f"x (kafka.a.B)\n{LOADED}\ny",  # the first line looks complete
        f"x\n (kafka.a.B)\n{LOADED}\ny",  # the text seems to end before the line
        f"x\n{LOADED}\n{LOADED.replace('Loaded', 'Removed')}\ny",
    ],
)
def test_a_line_that_a_text_with_line_breaks_can_have_written_is_doubtful(text: str) -> None:
    log = f"[{AT}] INFO [GroupCoordinator 4]: Preparing group {text} in state Empty (kafka.coordinator.group.X)"
    assert not any(event.is_certain for event in parse_events(log.split("\n")) if event.message == "Loaded")


def test_a_text_reaches_no_farther_than_kafka_s_longest_string() -> None:
    filler = [f"[{AT}] INFO {'x' * 1000} (kafka.a.B)"] * 40
    log = [LOADED, *filler, f"[{AT}] INFO group x", "y (kafka.a.B)", *filler, LOADED]
    events = [event for event in parse_events(log) if event.message == "Loaded"]
    assert [event.is_certain for event in events] == [True, True]


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
