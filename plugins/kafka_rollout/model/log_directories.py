"""The log directories of a node, as its configuration names them.

Each has one spelling: `/data//kafka/` and `/data/./kafka` are one directory, and sudo permits the text of a path. So
this module alone reads the settings that name them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_rollout.base.host_paths import one_spelling
from kafka_rollout.model.configs import is_reference

DIRECTORY_KEYS = ("log.dirs", "log.dir", "metadata.log.dir")
DEFAULTS = {"log.dir": "/tmp/kafka-logs"}  # noqa: S108


ASSIGNED_FROM = 17
"""metadata.version 3.7-IV2: the first level at which replicas are assigned to log directories (KIP-858)."""

PARTITION = re.compile(r"(.+)-(\d+)")
"""Name of a partition's folder. Those of deleted, moving and stray partitions have a further ending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectory:
    """The names in a log directory that decide whether a node starts (formats/log_files.py)."""

    folders: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    """`FOLDER/FILE` of the files that no start parses, if it reads the folder."""
    unreadable: frozenset[str] = frozenset()
    """`FOLDER` or `FOLDER/FILE` that the user of the node cannot read."""

    def seen_in(self, other: LogDirectory) -> LogDirectory:
        """Return what two listings have in common: a broker renames a folder that moves between directories."""
        return LogDirectory(
            folders=self.folders & other.folders,
            refused=self.refused & other.refused,
            unreadable=self.unreadable & other.unreadable,
        )


def named_directories(config: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Return the directories of one setting; none of a config provider."""
    value = config.get(key, "")
    names = [] if is_reference(value) else [name.strip() for name in value.split(",")]
    return tuple(one_spelling(name) for name in names if name)


def obeyed_keys(config: Mapping[str, str]) -> tuple[str, ...]:
    """Return the settings that name the directories: with log.dirs, Kafka ignores log.dir (KafkaConfig.logDirs)."""
    return ("log.dirs" if config.get("log.dirs") else "log.dir", "metadata.log.dir")


def data_directories(config: Mapping[str, str]) -> tuple[str, ...]:
    """Return log.dirs, or log.dir without them; none of a config provider."""
    return named_directories(config, obeyed_keys(config)[0])


def metadata_directory(config: Mapping[str, str]) -> str | None:
    """Return metadata.log.dir, by default the first of log.dirs; None without one, or if a config provider has it."""
    own = config.get("metadata.log.dir")
    return next(iter(named_directories(config, "metadata.log.dir") if own else data_directories(config)), None)


def log_directories(config: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories of a node: log.dirs, and metadata.log.dir. Those of config providers are left out."""
    return tuple(dict.fromkeys((*data_directories(config), *named_directories(config, "metadata.log.dir"))))


def has_several(config: Mapping[str, str]) -> bool | None:
    """Return whether a broker has several directories (KafkaConfig.logDirs); None if a config provider has them."""
    if is_reference(config.get(obeyed_keys(config)[0], "")):
        return None
    return len(data_directories(config)) > 1
