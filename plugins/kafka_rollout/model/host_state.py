"""What a plan must know about the host of a node, and the starts that a runtime recorded."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kafka_rollout.releases.facts import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What a plan reads of a host in addition to the unit.

    `clock_skew_s`: its clock minus the clock of this machine, without the time of the query. `release_bytes`: free on
    the file system of the installations, if known. `loaded_jars`: paths that the process has open. `release_jars`:
    names of the jars in the folder of each release. `arguments`: command line of the process; empty without a process.
    """

    clock_skew_s: float = 0.0
    release_bytes: int | None = None
    loaded_jars: tuple[str, ...] = ()
    release_jars: Mapping[Release, frozenset[str]] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPath:
    """A file or folder on a host. `mode`: with its kind, as stat reports it, without following a link."""

    path: str
    mode: int
    user_id: int
    owner: str


def can_change(path: HostPath, user: str) -> bool:
    """Return whether `user`, or a user whose name is not known, can change a file or the entries of a folder.

    The write right of the group counts for every group: with an access control list it is the mask of all its entries.
    """
    is_owner = path.owner == user and path.user_id != 0
    shared = path.mode & (stat.S_IWGRP | stat.S_IWOTH) != 0
    return not stat.S_ISLNK(path.mode) and (is_owner or shared)


FIRST_WITH_FILTERS = Release(3, 7, 0)
"""kafka-server-stop.sh of earlier releases ignores --node-id and --process-role (KIP-979)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """The host of a node, as a plan must know it. `name`: as in the inventory. `unit`: the node's service.

    `releases`: installed on the host, or available to a run, of those in `folders` (release → folder).
    `unavailable`: release → why its package cannot be installed, a sentence; also of the releases that run now.
    `symlink_can_switch`: False if a file or a folder has its name. `brought`: those of `releases` that
    the run puts there; `unpinned`: those whose archive is verified only by a file next to it. `can_unpack`: whether the
    SSH user `login` can write into the folder of the releases. `stop_timeout_s`: then the service manager kills a
    process that shuts down; infinity: never; None: unknown. `stop_commands`: the words of each ExecStop= of the unit.
    `filters_stops`: the installed release has a kafka-server-stop.sh with filters (KIP-979). `runs_as_root`: the
    process. `denied`: commands that sudo refuses. `excess`: rights with which the SSH user can become root. `paths`: of
    the files and folders that a run changes, with every folder above. `free_bytes`: of the configuration's file system,
    if known. `unknown`: what the host did not report.
    """

    name: str
    unit: str
    symlink: str
    folders: Mapping[Release, str]
    releases: frozenset[Release]
    symlink_can_switch: bool
    stop_timeout_s: float | None
    brought: frozenset[Release] = frozenset()
    unpinned: frozenset[Release] = frozenset()
    unavailable: Mapping[Release, str] = field(default_factory=dict)
    can_unpack: bool = True
    login: str = ""
    stop_commands: tuple[str, ...] = ()
    filters_stops: bool = True
    runs_as_root: bool = False
    denied: tuple[str, ...] = ()
    excess: tuple[str, ...] = ()
    paths: tuple[HostPath, ...] = ()
    free_bytes: int | None = None
    facts: HostFacts = field(default_factory=HostFacts)
    unknown: tuple[str, ...] = ()


BOOTSTRAP = "bootstrap.checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryIdentity:
    """What meta.properties of one directory says. An id that it does not have is "" (directory.id: before KIP-858).

    `is_of_metadata`: the directory is the node's metadata.log.dir.
    """

    path: str
    cluster_id: str = ""
    directory_id: str = ""
    is_of_metadata: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFormat:
    """What a starting node reads of one of its directories.

    `meta`: its meta.properties; None without one. `bootstrap`: its bootstrap.checkpoint, if it was read.
    `identity`: what meta.properties says. `has_metadata_log`: whether it was found there. `problem`: why the directory
    could not be read.
    """

    meta: bytes | None = None
    identity: DirectoryIdentity | None = None
    bootstrap: bytes | None = None
    has_metadata_log: bool = False
    problem: str = ""


class StartFileKind(StrEnum):
    """A file that a node reads at its start. Values are words of sentences."""

    CONFIGURATION = "server.properties"
    JVM = "options of the JVM"
    UNIT = "the unit and its environment"
    KEYS = "keystore, truststore or JAAS file"
    JAR = "jar"
    LOGGING = "logging configuration"
    IDENTITY = "meta.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFile:
    """`changed_at`: of the content or its place, whichever is later, in epoch seconds; None: not seen."""

    path: str
    kind: StartFileKind
    changed_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord:
    """One start of a node's process.

    `log_place`, `output_place`: where its log file, and the file of what the JVM prints, ended before the start
    (`nodes/runtimes/log_files.py`); empty if it is not known.
    """

    release: Release
    started_at: float
    pid: int
    log_place: str = ""
    output_place: str = ""

    def is_of(self, pid: int | None, started_at: float | None) -> bool:
        """The kernel keeps start times in hundredths of a second, systemd in seconds; an id can be used again."""
        return pid == self.pid and started_at is not None and abs(started_at - self.started_at) < 1.0
