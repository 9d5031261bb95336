"""Requests in the log of a broker (logger kafka.request.logger), which contains the address of a client.

From 3.9 on the logger writes deprecated requests at INFO, and every request at DEBUG. Older releases write only at
DEBUG (RequestChannel.updateRequestMetrics, RequestConvertToJson).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from kafka_rollout.base.log_lines import parse_events
from kafka_rollout.model.state import UNKNOWN_CLIENT, LoggedRequest

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
