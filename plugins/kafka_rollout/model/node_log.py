"""Logs of nodes: an excerpt around the last error without possible credentials, and the requests of a broker's log.

From 3.9 on the logger kafka.request.logger writes deprecated requests at INFO, and every request at DEBUG. Older
releases write only at DEBUG (RequestChannel.updateRequestMetrics, RequestConvertToJson). They have a client's address.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafka_rollout.base.log_lines import is_throwable, parse_events
from kafka_rollout.model.state import UNKNOWN_CLIENT, LoggedRequest

READ_LINES = 300
_BEFORE, _AFTER = 10, 30
_LONGEST_LINE = 600
# `ssl.key.password=x`, `"token": "x"`, a JAAS configuration, and the user part of an address.
_SECRET = re.compile(
    r"([\w.-]*(?:passw(?:or)?d|passphrase|secret|token|credential|api[._-]?key)[\w.-]*[\"']?\s*[=:]\s*)"
    r"(\"[^\"]*\"|'[^']*'|[^\s,;]+)",
    re.IGNORECASE,
)
_JAAS = re.compile(r"(jaas\S*\s*[=:]\s*).*", re.IGNORECASE)
_ADDRESS = re.compile(r"://[^/\s@]+@")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExcerpt:
    """`at`: when it was read (epoch seconds). `problem`: why the log could not be read; then `lines` is empty."""

    node_id: int
    name: str
    at: float
    lines: tuple[str, ...] = ()
    problem: str = ""


def cut_excerpt(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines around the last error, or the last lines if there is no error. Hides possible credentials."""
    shown = [line.rstrip() for line in lines]
    events = parse_events(shown)
    errors = [event.number for event in events if event.level in {"ERROR", "FATAL"}]
    throwables = [number for number, line in enumerate(shown) if is_throwable(line)]
    last = max((*errors, *throwables[-1:]), default=len(shown) - 1)
    # The error of a stack trace is its first line.
    start = max((number for number in errors if number <= last), default=last)
    begin = max(0, min(start - _BEFORE, len(shown) - _BEFORE - _AFTER))
    return tuple(hide_credentials(line)[:_LONGEST_LINE] for line in shown[begin : begin + _BEFORE + _AFTER])


def hide_credentials(line: str) -> str:
    """Return the line with `[hidden]` for each value of a setting that can be a credential."""
    line = _ADDRESS.sub("://[hidden]@", _JAAS.sub(r"\1[hidden]", line))
    return _SECRET.sub(r"\1[hidden]", line)


_START = "Completed request:"
_LOGGER = "kafka.request.logger"
# Local and remote address with port, then one or more numbers.
_CONNECTION = re.compile(r"[^-]+-(?P<address>.+):\d+(?:-\d+)+")


def find_logged_requests(lines: Iterable[str]) -> tuple[LoggedRequest, ...]:
    """Return the different requests in these lines, in their order."""
    return tuple(dict.fromkeys(_requests(lines)))


def _requests(lines: Iterable[str]) -> Iterator[LoggedRequest]:
    for event in parse_events(tuple(lines)):
        if event.logger != _LOGGER or not event.message.startswith(_START):
            continue
        try:
            logged = json.loads(event.message.removeprefix(_START))
            header, client = logged["requestHeader"], logged.get("clientInformation", {})
            connection = _CONNECTION.fullmatch(logged["connection"])
            yield LoggedRequest(
                api=str(header["requestApiKeyName"]),
                version=int(header["requestApiVersion"]),
                client_name=str(client.get("softwareName", UNKNOWN_CLIENT)),
                client_version=str(client.get("softwareVersion", UNKNOWN_CLIENT)),
                client_id=str(header.get("clientId") or ""),
                address=connection["address"] if connection else logged["connection"],
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # a line that the log has cut off
