"""The options of the data source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.outside_text import parse_number

SERVERS, PROPERTIES, TOPICS = "kafka.bootstrap.servers", "client.properties", "topics"
REPLICAS, STARTING, MOST = "replicas", "startingOffsets", "maxOffsetsPerTrigger"
OPTIONS: Mapping[str, str] = {
    "path": "A log directory of a broker, a copy of it, the folder of one partition, or a URL of one. It is the "
    "argument of `load`, which takes several.",
    SERVERS: "The brokers of a running cluster, instead of paths.",
    PROPERTIES: "Path of Kafka's client.properties with the credentials, of mode 0600. Every executor reads the file "
    "at this path.",
    TOPICS: "Names of coordinator logs, with commas between. Default: all that exist.",
    REPLICAS: "`leader` reads the leader of each partition, or the copy that an election would choose; `all` reads "
    "each replica. Default: `leader`.",
    STARTING: "Where a new streaming query begins: `earliest` or `latest`. Default: `earliest`.",
    MOST: "The number of offsets that a micro-batch reads at most. Default: no limit.",
}
"""Option → what it does."""
_PATHS = "paths"  # Spark's form of several arguments of `load`
_KNOWN = {name.lower(): name for name in (*OPTIONS, _PATHS)}
_CREDENTIALS = ("sasl.", "ssl.", "security.", "password", "jaas")


class Start(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is read. Either `servers` or `places` is set."""

    servers: str
    places: tuple[str, ...]
    """Paths and URLs."""
    properties: Path | None
    topics: tuple[str, ...]
    """Empty for all."""
    all_replicas: bool
    start: Start
    most: int | None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """Raises UserError for an unknown option or a wrong value. No error quotes a value that can be a secret."""
        options: dict[str, str] = {}
        for name, value in given.items():
            _check_name(name)
            options[_KNOWN[name.lower()]] = value
        places = _paths(options)
        servers = options.get(SERVERS, "").strip()
        if bool(servers) == bool(places):
            raise UserError(
                f"The data source needs either paths or the option {SERVERS}.",
                remedy=f"Use load(PATH), or option({SERVERS!r}, 'HOST:PORT') and load().",
            )
        return cls(
            servers=servers,
            places=places,
            properties=Path(options[PROPERTIES]) if options.get(PROPERTIES) else None,
            topics=tuple(filter(None, map(str.strip, options.get(TOPICS, "").split(",")))),
            all_replicas=_choice(options, REPLICAS, ("leader", "all")) == "all",
            start=Start(_choice(options, STARTING, tuple(map(str, Start)))),
            most=_number(options, MOST),
        )

    def check_topics(self, known: Sequence[str]) -> tuple[str, ...]:
        """Return the topics that were asked, or none. `known`: those of the catalogue."""
        for topic in self.topics:
            if topic not in known:
                raise UserError(f"{topic} is not a coordinator log.", remedy=f"Coordinator logs: {', '.join(known)}.")
        return self.topics


def _check_name(name: str) -> None:
    if name.lower() in _KNOWN:
        return
    if any(part in name.lower() for part in _CREDENTIALS):
        raise UserError(
            f"{name} cannot be an option: Spark shows options in plans and logs.",
            remedy=f"Write it to a file of mode 0600, and name the file with the option {PROPERTIES}.",
        )
    raise UserError(f"The data source has no option {name}.", remedy=f"Its options: {', '.join(OPTIONS)}.")


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    if several := options.get(_PATHS):
        return tuple(json.loads(several))
    return (options["path"],) if options.get("path") else ()


def _choice(options: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    value = options.get(name, choices[0]).strip().lower()
    if value not in choices:
        raise UserError(f"The option {name} cannot be {value!r}.", remedy=f"Use {' or '.join(choices)}.")
    return value


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if not text:
        return None
    number = parse_number(text.strip())
    if not number:
        raise UserError(f"The option {name} cannot be {text!r}.", remedy="Use a number of at least 1.")
    return number
