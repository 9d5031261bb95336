"""The grammar of a node's log: its layouts, and the events that a line can be. `model/node_log.py` concludes from it.

Kafka writes group ids, transactional ids, client ids and reasons (KIP-800) into its messages. Such a text can contain
any words, and with line breaks also whole lines in the layout of the log. Nothing in a line tells the two apart, so an
event is no proof by itself (`model/node_log.py`).

Layouts: `[%d] %p %m (%c)%n`, which Kafka's own configurations and this tool write, with or without the brackets, with
`%-5p`, with a zone after the time, and with `[%t]` at the end (Strimzi).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

_DATE = r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}[,.]\d{3}(?:Z|[+-]\d{2}:?\d{2}| [A-Z]{3,4})?"
# `%-5p` adds a blank to a level of four letters.
_LEVEL = r"(?P<level>TRACE|DEBUG|INFO|WARN|ERROR|FATAL)(?P<pad>(?:(?<=INFO)|(?<=WARN)) (?= ))?"
_START = re.compile(rf"(?P<open>\[?){_DATE}(?P<close>\]?) {_LEVEL} (?P<text>.*)")
_LOGGER = re.compile(r" ?\((?P<logger>[A-Za-z_$][\w$]*(?:\.[\w$]+)+)\)(?P<thread> \[[^\]]*\])?$")
_PREFIX = re.compile(r"(?:\[[^\[\]]{1,100}\]:? )?")
# Lines of a throwable, which follow its event.
_THROWABLE = re.compile(r"\s+at |\s*\.{3} \d+ more|(?:Caused by: |\s+Suppressed: )?[a-z][\w$]*(?:\.[\w$]+)+(?:: |$)")


class LogLayout(StrEnum):
    """The layouts that can be read, in log4j's words."""

    KAFKA = "[%d] %p %m (%c)%n"
    PLAIN = "%d %p %m (%c)%n"
    THREAD = "[%d] %p %m (%c) [%t]%n"
    PLAIN_THREAD = "%d %p %m (%c) [%t]%n"
    PADDED = "[%d] %-5p %m (%c)%n"
    PLAIN_PADDED = "%d %-5p %m (%c)%n"
    PADDED_THREAD = "[%d] %-5p %m (%c) [%t]%n"
    PLAIN_PADDED_THREAD = "%d %-5p %m (%c) [%t]%n"


_LAYOUTS = {
    (True, False, False): LogLayout.KAFKA,
    (False, False, False): LogLayout.PLAIN,
    (True, True, False): LogLayout.THREAD,
    (False, True, False): LogLayout.PLAIN_THREAD,
    (True, False, True): LogLayout.PADDED,
    (False, False, True): LogLayout.PLAIN_PADDED,
    (True, True, True): LogLayout.PADDED_THREAD,
    (False, True, True): LogLayout.PLAIN_PADDED_THREAD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """One event."""

    level: str
    text: str
    """Its message."""
    logger: str
    number: int
    """Its line."""
    layout: LogLayout
    """Of a level with five letters, that without `-5`."""

    @property
    def message(self) -> str:
        """The message without the prefix in brackets, such as `[GroupCoordinator id=1] `."""
        return _PREFIX.sub("", self.text, count=1)

    @property
    def class_name(self) -> str:
        return self.logger.rpartition(".")[2]

    @property
    def is_of_kafka(self) -> bool:
        return self.logger.startswith(("kafka.", "org.apache.kafka."))


def parse_events(lines: Sequence[str]) -> list[LogEvent]:
    """Return the events that have a level, a message and a logger in one line; empty for an unknown layout."""
    found = []
    for number, line in enumerate(lines):
        start = _START.fullmatch(line)
        logger = None if start is None else _LOGGER.search(start["text"])
        if start is None or logger is None or bool(start["open"]) != bool(start["close"]):
            continue
        found.append(
            LogEvent(
                level=start["level"],
                text=start["text"][: logger.start()],
                logger=logger["logger"],
                number=number,
                layout=_LAYOUTS[bool(start["open"]), bool(logger["thread"]), bool(start["pad"])],
            )
        )
    return found


def is_throwable(line: str) -> bool:
    """Return whether a line is one of an exception and its stack trace."""
    return _THROWABLE.match(line) is not None
