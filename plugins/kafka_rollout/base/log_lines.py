"""Lines of a node's log: the events in Kafka's layout, without text that a client can choose.

Kafka writes group ids, transactional ids, client ids and reasons (KIP-800) into its messages. A text inside a message
can contain any words, and with a line break also a whole line in the layout of the log. So an event counts only by its
level, its logger and the beginning of its message, and not at all where a text with a line break can have written it.

Layouts: `[%d] %p %m (%c)%n`, which Kafka's own configurations and this tool write, with or without the brackets, and
with `[%t]` at the end (Strimzi). Nothing is known about a log in another layout.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_DATE = r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}[,.]\d{3}"
_START = re.compile(rf"\[?{_DATE}\]? (?P<level>TRACE|DEBUG|INFO|WARN|ERROR|FATAL) (?P<text>.*)")
_LOGGER = re.compile(r" ?\((?P<logger>[A-Za-z_$][\w$]*(?:\.[\w$]+)+)\)(?: \[[^\]]*\])?$")
_PREFIX = re.compile(r"(?:\[[^\[\]]{1,100}\]:? )?")
# Lines of a throwable, which follow its event.
_THROWABLE = re.compile(r"\s+at |\s*\.{3} \d+ more|(?:Caused by: |\s+Suppressed: )?[a-z][\w$]*(?:\.[\w$]+)+(?:: |$)")
_STARTED = re.compile(r"Registered signal handlers for [A-Z, ]+")  # LoggingSignalHandler, early in each start
_VALUES = re.compile(r"\w+ values: ?$")  # AbstractConfig.logAll
# Kafka's strings have at most 32,767 bytes (Type.STRING), so a text cannot have written a line farther away.
_LONGEST_TEXT = 32_767


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """One event. `message`: without the prefix in brackets, such as `[GroupCoordinator id=1] `. `number`: its line.

    `is_certain`: no text with a line break can have written it.
    """

    level: str
    message: str
    logger: str
    number: int
    is_certain: bool = True

    @property
    def class_name(self) -> str:
        return self.logger.rpartition(".")[2]

    @property
    def is_of_kafka(self) -> bool:
        return self.logger.startswith(("kafka.", "org.apache.kafka."))


def parse_events(lines: Sequence[str]) -> list[LogEvent]:
    """Return the events that have a level, a message and a logger in one line; empty for an unknown layout."""
    doubtful = _doubtful(lines)
    return [
        LogEvent(
            level=start["level"],
            message=_PREFIX.sub("", start["text"][: logger.start()], count=1),
            logger=logger["logger"],
            number=number,
            is_certain=number not in doubtful,
        )
        for number, line in enumerate(lines)
        if (start := _START.fullmatch(line)) and (logger := _LOGGER.search(start["text"]))
    ]


def find_start(events: Sequence[LogEvent]) -> int | None:
    """Return the number of the line in which the node's last start begins; None if the log does not show it."""
    of_start = (event for event in events if event.is_certain and event.class_name == "LoggingSignalHandler")
    numbers = (event.number for event in of_start if event.is_of_kafka and _STARTED.fullmatch(event.message))
    return max(numbers, default=None)


def events_since_start(lines: Sequence[str]) -> list[LogEvent] | None:
    """Return Kafka's own events since the node's last start; None if the log does not show the start."""
    events = [event for event in parse_events(lines) if event.is_of_kafka]
    begin = find_start(events)
    return None if begin is None else [event for event in events if event.number >= begin]


def is_throwable(line: str) -> bool:
    """Return whether a line is one of an exception and its stack trace."""
    return _THROWABLE.match(line) is not None


def _doubtful(lines: Sequence[str]) -> set[int]:
    """Return the numbers of lines that a text with a line break can have written.

    Such a text leaves traces: the line in which it begins has no logger at its end, or the line in which it ends has a
    logger, but no date at its beginning. Lines after the one and before the other are doubtful, as far as a text can
    reach. The values of a configuration, which Kafka itself writes in several lines, are no such text.
    """
    doubtful: set[int] = set()
    in_values = False
    for number, line in enumerate(lines):
        start, has_logger = _START.fullmatch(line), _LOGGER.search(line) is not None
        if in_values and (line.startswith("\t") or _LOGGER.fullmatch(line)):
            in_values = line.startswith("\t")
        elif start is not None and not has_logger:
            in_values = _VALUES.search(start["text"]) is not None
            if not in_values:
                doubtful.update(_near(lines, range(number + 1, len(lines))))
        elif start is None and has_logger and not is_throwable(line):
            doubtful.update(_near(lines, range(number - 1, -1, -1)))
    return doubtful


def _near(lines: Sequence[str], numbers: range) -> Iterator[int]:
    reached = 0
    for number in numbers:
        yield number
        reached += len(lines[number]) + 1
        if reached > _LONGEST_TEXT:
            return
