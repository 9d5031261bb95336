"""What a plan must know about the host of a node, and the starts that a runtime recorded."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from kafka_rollout.model.file_access import FileAccess
from kafka_rollout.model.jvm_options import NextOptions
from kafka_rollout.model.logging_files import LoggingFiles
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What a plan reads of a host in addition to the unit."""

    clock_skew_s: float = 0.0
    """Its clock minus the clock of this machine, without the time of the query."""
    release_bytes: int | None = None
    """Free on the file system of the installations, if known."""
    loaded_jars: tuple[str, ...] = ()
    """Of the paths that the process has open, also those whose file was removed or replaced since."""
    removed_jars: tuple[str, ...] = ()
    """Those whose file was removed, and whose path has none now."""
    replaced_jars: tuple[str, ...] = ()
    """Those whose file was removed, and whose path has another one."""
    opened: tuple[str, ...] = ()
    """All absolute paths that the process has open."""
    hidden: str = ""
    """Why the kernel hides the open files of the process, a part of a sentence: `loaded_jars` and `opened` are then
    what its command line names; empty: they are not hidden."""
    release_jars: Mapping[Release, frozenset[str]] = field(default_factory=dict)
    """Names of the jars in the folder of each release."""
    arguments: tuple[str, ...] = ()
    """Command line of the process; empty without a process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPath:
    """A file or folder on a host."""

    path: str
    mode: int
    """With its kind, as stat reports it, without following a link."""
    user_id: int
    owner: str


def can_change(path: HostPath, user: str) -> bool:
    """Return whether `user`, or a user whose name is not known, can change a file or the entries of a folder.

    The write right of the group counts for every group: with an access control list it is the mask of all its entries.
    """
    is_owner = path.owner == user and path.user_id != 0
    shared = path.mode & (stat.S_IWGRP | stat.S_IWOTH) != 0
    return not stat.S_ISLNK(path.mode) and (is_owner or shared)


CLOSED = "cannot be read by the SSH user"
"""What the jars of a folder are whose content is unknown, as the end of a sentence."""


def how_to_install(release: Release, folder: str, lacks: str, login: str) -> str:
    """Return the remedy for a folder that `lacks` a release. `login`: the SSH user, if known."""
    if CLOSED in lacks:
        user = login or "USER"
        return (
            f"Let the SSH user read {folder}: run `setfacl -R -m u:{user}:rX {folder}` as root. The jars of Kafka are "
            "public."
        )
    return f"Unpack the archive of {release} to {folder}, which must not exist before."


SUDO_RS = "sudo-rs"
"""How the sudo in Rust names itself, the default of Ubuntu from 25.10 on."""


class StartFileKind(StrEnum):
    """What a node reads at its start. Values are words of sentences."""

    CONFIGURATION = "server.properties"
    JVM = "options of the JVM"
    UNIT = "the unit and its environment"
    PROGRAM = "program of the unit"
    CONDITION = "condition of the unit"
    BARRED = "condition of the unit that a path does not exist"
    """A path that must exist, whatever its content is: of a condition or an assertion, or the folder of a file that
    systemd or the node writes."""
    KEYS = "keystore, truststore or JAAS file"
    KEY_TAB = "key tab of the JAAS file"
    PROVIDED = "file of a config provider"
    PLANNED = "file of a config provider in lines that the run changes"
    AGENT = "Java agent"
    JAR = "jar"
    LIBRARIES = "jars of the release"
    """Of the start script's own class path, which it makes of each release."""
    LOGGING = "logging configuration"
    IDENTITY = "meta.properties"
    NAMED = "file that a setting names"
    INNER = "file that a file of the options names"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFile:
    path: str
    kind: StartFileKind
    changed_at: float | None
    """Of the content or its place, whichever is later, in epoch seconds; None: not seen."""
    is_absent: bool = False
    """It does not exist. `changed_at` is then that of the nearest folder above: it was not removed later."""


class PlaceState(StrEnum):
    """What is at a place, as far as the SSH user sees."""

    FILE = "+"
    FOLDER = "d"
    MISSING = "-"
    HIDDEN = "?"
    """The SSH user cannot enter a folder above. The place is right if no link is in this folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlace:
    """Where a path leads."""

    path: str
    """Without links."""
    state: PlaceState
    is_same: bool | None = None
    """Whether the file has the content of the one to which the path leads now; None: unknown."""
    access: FileAccess = field(default_factory=FileAccess)
    """What the user of the unit can do there, as the start uses it."""


class Absence(StrEnum):
    """What a path that does not exist does to the next start of a node. From harmless to fatal."""

    HARMLESS = "harmless"
    """Nothing, or the unit makes the path itself, or it is unknown how the start uses it."""
    DOUBTFUL = "doubtful"
    """An option or a setting names it."""
    FATAL = "fatal"
    """The node does not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPath:
    """A path that the next start of a node reads."""

    kind: StartFileKind
    path: str
    """As the start names it."""
    now: StartPlace
    after: Mapping[Release | None, StartPlace]
    """Where it leads when the link of the release points to the folder of a release; None: of any other one. A release
    is missing if this is unknown."""
    is_of_unit: bool = False
    """The unit or its environment names it, and not only the process that runs now."""
    is_needed: bool = True
    """False if systemd starts the node without it."""
    absence: Absence = Absence.HARMLESS
    """What the next start does if the path does not exist."""
    is_edited: bool | None = False
    """Whether it belongs to a package, was edited in its place, and is replaced by an installation; None: unknown."""
    removed_by: str = ""
    """The setting of the unit by which systemd removes the path at its stop, such as `RuntimeDirectory=kafka`; empty if
    it stays, or if the start makes it again."""
    is_resolved: bool = False
    """The start resolves this link itself (`readlink`, `cd`), and names no folder of a release."""

    def moves(self, release: Release | None) -> bool:
        """Return whether the path leads elsewhere after a switch."""
        return release in self.after and self.after[release].path != self.now.path


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWrite:
    """A file or a folder that the next start of a node on a release writes."""

    release: Release
    path: str
    """As the start names it."""
    place: str
    """Without links, as far as the SSH user sees."""
    access: FileAccess
    """Whether the user of the unit can write there."""
    moves: bool
    """It is in the folder of the release."""
    is_log: bool = False
    """It is LOG_DIR of Kafka's scripts, or a file in it."""
    is_needed: bool = True
    """False if the node starts without it."""
    codecs: tuple[str, ...] = ()
    """The compressions whose library the node unpacks there, and loads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaProcess:
    """A Java program on a host that is not the node's own."""

    pid: int = 0
    """0: it does not run, or is not known."""
    unit: str = ""
    """The service of its control group; empty: none, or unknown."""
    command: tuple[str, ...] = ()
    """Its words; empty: unknown."""
    program: str = ""
    """Its main class or its jar, `java` if its words show neither; empty: it is kafka.Kafka, a broker or controller."""
    configuration: str = ""
    """Of Kafka: its file as in its command line; empty: unknown."""
    user: str = ""
    """Name of its user."""
    user_id: int | None = None
    node_id: str = ""
    """As in its file; empty: unknown."""
    roles: str = ""
    """As in its file; empty: unknown."""
    has_own_root: bool = False
    """Its paths are not those of the host, as in a container."""
    node: NodeSpec | None = None
    """The node of the inventory."""

    @property
    def is_kafka(self) -> bool:
        return not self.program

    @property
    def name(self) -> str:
        """Its unit or its process, with its file or its program."""
        name = self.unit or (f"process {self.pid}" if self.pid else "a Kafka")
        shown = self.program or self.configuration
        return f"{name} ({shown})" if shown else name


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUser:
    """Another unit or process of a host that starts through the link of a node, or from its package."""

    name: str
    """Of the unit; without one, of the process."""
    process: JavaProcess | None = None
    """None: no process shows it, but the text of the unit, or its files."""
    starts_kafka: bool = False
    """It is a broker or a controller, and not another program of the archive."""
    doubt: str = ""
    """Why it is unknown that its next start goes there, a part of a sentence; empty: it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingLines:
    """Lines in scripts of packages that can close what a start uses to the user of the unit."""

    user: str = ""
    """Of the unit."""
    lines: tuple[str, ...] = ()
    """Each after the name of its script."""
    unread: tuple[str, ...] = ()
    """The packages whose scripts are unknown, in part or at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStop:
    """What systemd executes when it stops a unit, and whom this can reach."""

    commands: tuple[str, ...] = ()
    """The words of each ExecStop=."""
    lines: tuple[tuple[str, str], ...] = ()
    """Path and line of the scripts that these commands run, without comments."""
    after: tuple[str, ...] = ()
    """The words of each ExecStopPost=, which runs after the process has ended."""
    scripts: Mapping[str, str] = field(default_factory=dict)
    """Path of a script of these commands, or of one that it runs → its text without comments. Only scripts of a shell
    that were read to the end."""
    pid_files: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Path of a file that these texts name → the process ids in it; empty without the file. Those that cannot be read
    are left out."""
    signal: str = ""
    """The variable SIGNAL in the environment of the unit, as kafka-server-stop.sh reads it; empty: none."""
    user_id: int | None = None
    """With which systemd runs the commands, which need not be that of the process; None: unknown."""
    is_privileged: bool = True
    """A command can have other rights than those of this user."""
    own: frozenset[int] = frozenset()
    """The processes of Kafka in its control group."""
    processes: tuple[JavaProcess, ...] | None = ()
    """Of Kafka outside of its control group; None: the host does not show them."""
    programs: tuple[JavaProcess, ...] = ()
    """Other Java programs outside of it, as far as the host shows them."""
    grouped: tuple[JavaProcess, ...] = ()
    """Java programs in its control group that are not the node, as far as the host shows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedUnit:
    """Another unit that systemd stops when the unit of a node is stopped."""

    names: tuple[str, ...]
    """Its own, then its aliases."""
    of: str
    """The unit that stops it: that of the node, or another stopped one."""
    settings: tuple[str, ...]
    """Its own that name `of`, such as Requires."""

    @property
    def name(self) -> str:
        return self.names[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredUnit:
    """Another unit that the unit of a node requires, or that one of those requires."""

    name: str
    of: str
    """The unit that requires it: that of the node, or another required one."""
    settings: tuple[str, ...]
    """Of `of` that name it: Requires, Requisite, BindsTo."""
    load_state: str
    """Such as loaded, not-found or masked."""
    active_state: str
    is_done: bool = False
    """It has done its work, or a condition of it is not met: systemd is content if it is not active."""
    runs_again: bool = False
    """It has done its work and does not remain active (Type=oneshot): each start of the node starts it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitMount:
    """A mount that only the processes of a unit see."""

    setting: str
    """That makes it, such as `BindPaths=/mnt/fast:/var/lib/kafka:rbind`."""
    path: str
    """Where it is."""
    place: str
    """The same without links, as far as the SSH user sees."""
    is_same: bool
    """It shows what the host itself has there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """A link of the release that leads to another folder than the inventory has for its release."""

    release: Release
    link: str
    """The folder to which it leads."""
    folder: str
    """That of the inventory."""
    folder_exists: bool
    can_return: bool
    """Whether the rights of a run permit to lead it there again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedListener:
    """A host in `listeners` of a node to whose address the next start cannot bind as the process did."""

    name: str
    address: str
    listens: tuple[str, ...] = ()
    """Where the process listens, for an address of loopback; empty: the host does not have the address."""


class OwnName(NamedTuple):
    """The name with which a node registers listeners that have no host."""

    name: str
    """Of the host."""
    canonical: str
    """That Kafka takes; empty if the host cannot resolve its own name."""
    ports: tuple[int, ...]
    """Of these listeners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """The host of a node, as a plan must know it."""

    name: str
    """As in the inventory."""
    unit: str
    """The node's service."""
    symlink: str
    folders: Mapping[Release, str]
    releases: frozenset[Release]
    """Installed on the host, or available to a run, of those in `folders` (release → folder)."""
    symlink_can_switch: bool
    """False if a file or a folder has its name."""
    stop_timeout_s: float | None
    """Then the service manager kills a process that shuts down; infinity: never; None: unknown."""
    kill_mode: str = "control-group"
    """KillMode of the unit; empty: unknown."""
    kill_signal: int | None = 15
    """The number of the signal with which it stops the process; None: unknown."""
    sends_sigkill: bool = True
    """False (SendSIGKILL=no): after `stop_timeout_s`, it leaves the process alive and calls the unit failed."""
    needs_reload: str = ""
    """How the files of the unit have changed since the service manager has read them, as the end of a sentence: what is
    known of it is older; empty: they have not."""
    can_start: bool = True
    """False if the service manager refuses a start by hand."""
    is_transient: bool = False
    """The service manager forgets the unit at its stop."""
    unit_file: str = ""
    """The main file of the unit; empty: unknown."""
    upheld_by: tuple[str, ...] = ()
    """Units by which systemd starts it again after each stop (Upholds=)."""
    start_conditions: tuple[str, ...] = ()
    """Commands of the unit and of scripts before Kafka whose next result is unknown, and which can keep the node from
    running (model/start_conditions.py)."""
    start_removals: tuple[tuple[str, str], ...] = ()
    """Commands of a start or a stop that remove data of a log directory, each with this directory."""
    unresolved_listeners: tuple[str, ...] = ()
    """Host names in `listeners` of the node that the host cannot resolve."""
    moved_listeners: tuple[MovedListener, ...] = ()
    """Host names in `listeners` that lead to another place than that at which the process listens."""
    own_name: OwnName | None = None
    """None if each listener has a host."""
    registered_as: str = ""
    """The host under which the cluster knows the node at one of these listeners; empty: unknown, or at another one."""
    unresolved_controllers: tuple[str, ...] = ()
    """Host names in controller.quorum.voters and controller.quorum.bootstrap.servers that it cannot resolve."""
    resolves_controllers: bool = True
    """One of these names, or an address, is left."""
    unknown_settings: tuple[str, ...] = ()
    """Settings in the files of the unit that no check reads, each as `Name=value` (model/unit_settings.py)."""
    newer_settings: tuple[str, ...] = ()
    """Settings of its resources and its sandbox in files that can be newer than the process, each as `Name=value`."""
    process_differences: tuple[str, ...] = ()
    """What the next process cannot do by the settings of the unit, and the one that runs can, as ends of sentences."""
    empty_patterns: tuple[str, ...] = ()
    """Patterns of EnvironmentFile= without a match, and without which systemd starts nothing."""
    stop_actions: tuple[str, ...] = ()
    """Settings by which systemd acts on the host at each stop of the unit, each as `Name=value`."""
    mounts: tuple[UnitMount, ...] = ()
    """Of the unit of the node."""
    installed: Release | None = None
    """That of the next start; None: unknown."""
    brought: frozenset[Release] = frozenset()
    """Those of `releases` that the run puts there."""
    lacks: Mapping[Release, str] = field(default_factory=dict)
    """Release of `folders` → why a node cannot start it, as the end of a sentence."""
    repairs: Mapping[Release, str] = field(default_factory=dict)
    """Release of `lacks` → what an operator must do, sentences; empty: see `how_to_install`."""
    no_return: Release | None = None
    """The release that the node runs, if its folder `lacks` something without which a rollback is refused; None also
    if the run does not leave it."""
    unpinned: frozenset[Release] = frozenset()
    """Those whose archive is verified only by a file next to it."""
    unavailable: Mapping[Release, PackageProblem] = field(default_factory=dict)
    """Releases whose package cannot be installed, or of which this is unknown; also of those that run now."""
    elsewhere: Elsewhere | None = None
    """None if the link leads to the folder of the release that is installed."""
    unheld: tuple[str, ...] = ()
    """Packages of the installation that an upgrade of the host's packages can replace (apt-mark hold)."""
    unfinished: tuple[str, ...] = ()
    """Packages of the host that its package manager has left unfinished, each with its state, if the run installs."""
    can_unpack: bool = True
    """Whether the SSH user `login` can write into the folder of the releases."""
    login: str = ""
    others: Mapping[int, str] = field(default_factory=dict)
    """The other nodes on the same machine → their host in the inventory."""
    start_commands: tuple[str, ...] = ()
    """The words of each ExecCondition= and ExecStartPre= of the unit without which systemd does not start the node."""
    stop: UnitStop = field(default_factory=UnitStop)
    stopped_units: tuple[StoppedUnit, ...] = ()
    """Those that systemd stops with the unit, nearest first."""
    required_units: tuple[RequiredUnit, ...] = ()
    link_users: tuple[LinkUser, ...] = ()
    """What else starts through the link that the run switches, or from the package that it installs."""
    closing_lines: ClosingLines = field(default_factory=ClosingLines)
    """Of the packages that the run installs or replaces."""
    runs_as_root: bool = False
    """The process."""
    denied: tuple[str, ...] = ()
    """Commands that sudo refuses."""
    old_sudo: str = ""
    """Its sudo with the version, if it does not read the regular expressions of the printed sudoers file."""
    excess: tuple[str, ...] = ()
    """Rights with which the SSH user can become root."""
    paths: tuple[HostPath, ...] = ()
    """Of the files and folders that a run changes, with every folder above."""
    unread_log: int = 0
    """How many lines at the end of its log are all in a layout that gates cannot read; 0 if they can read one."""
    leads: Mapping[str, tuple[HostPath, ...]] = field(default_factory=dict)
    """Program or file of the package's commands that is a link → every file, folder and link on the way to its end;
    empty: unknown."""
    written: tuple[str, ...] = ()
    """Folders in which the run writes."""
    free_bytes: int | None = None
    """Of the configuration's file system, if the run writes there and it is known."""
    package_bytes: int | None = None
    """Of the file system of /var/lib and /var/cache, if the run installs a package and it is known; if they have two,
    of the fuller one."""
    home_bytes: int | None = None
    """Of the file system of the SSH user's home folder, if known."""
    home_full: str = ""
    """What refuses the records of a run in the home folder of the SSH user, in the words of the host, such as a quota;
    empty if they can be written."""
    few_files: Mapping[str, int] = field(default_factory=dict)
    """Folder in which the run writes → the few files that can be created on its file system."""
    fixed: tuple[str, ...] = ()
    """Why no other file can be renamed to the configuration, if the run writes it, as the ends of sentences."""
    read_only: tuple[str, ...] = ()
    """Folders in which some runs write, on a file system that is mounted read-only."""
    facts: HostFacts = field(default_factory=HostFacts)
    link: StartPath | None = None
    """The link of the release; None without one, and if the host did not report it."""
    start_paths: tuple[StartPath, ...] = ()
    """What the next start reads; without a link, what it reads of the package and what another file names."""
    start_paths_problem: str = ""
    """Why `start_paths` are not all, a sentence."""
    writes: tuple[StartWrite, ...] = ()
    """What the next start writes, by release."""
    overrides: frozenset[str] = frozenset()
    """The settings in the command line of the next start."""
    changed_java: tuple[str, str] | None = None
    """The Java of the process and that of the next start, without links, if they differ."""
    options: Mapping[Release | None, NextOptions] = field(default_factory=dict)
    """The options of the next start on each release; None: on any other one than the installed."""
    writers: tuple[str, ...] = ()
    """Commands of a start that write configuration_file as a whole, each after its script or its unit, which can be
    another one that the start runs."""
    writer_doubt: str = ""
    """Why the next of them can write another configuration than the file has, as the end of a sentence; empty: none."""
    writer_is_newer: bool = False
    """What it makes the file from is newer than the process. Else that is unknown."""
    written_files: tuple[tuple[str, str], ...] = ()
    """Other files that the next start reads, and that it can write in another way than the last one, each with the
    reason as in `writer_doubt`."""
    logging: Mapping[Release | None, LoggingFiles] = field(default_factory=dict)
    """The logging configurations that the start scripts take from the folders; without a file of the operator."""
    labels: Mapping[Release | None, Mapping[str, str]] = field(default_factory=dict)
    """Release → file of its folder → SELinux type; None: of the running one. Empty if SELinux enforces nothing."""
    environment_names: frozenset[str] = frozenset()
    """The variables that the configuration takes from the environment of the process."""
    environment_gone: tuple[str, ...] = ()
    """Those of them that neither the unit nor a script of the next start sets."""
    environment_newer: tuple[str, ...] = ()
    """Files that set the others, and which can be newer than the process."""
    unknown: tuple[str, ...] = ()
    """What the host did not report."""

    def starts_installed(self, release: Release) -> bool:
        """Return whether a start on the release is one of what is installed now."""
        if self.link is not None:
            return release in self.link.after and not self.link.moves(release)
        return release in self.releases and release not in self.brought


ADD_PACKAGE = (
    "Add the package to the repository of the host (with apt, then run `apt-get update` there as root), or correct "
    "`package` in the inventory: `install` can also name files on the host (docs/packages.md)."
)
CORRECT_TRIAL = (
    "Run this command on the host as root, and correct what it reports: a list or a credential of a repository, a "
    "lock, a signature or a dependency. If it loads the package, repeat the step."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageProblem:
    """Why the package of a release cannot be installed."""

    sentence: str
    remedy: str = ADD_PACKAGE
    is_unknown: bool = False
    """The host did not show whether the package can be installed."""


BOOTSTRAP = "bootstrap.checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryIdentity:
    """What meta.properties of one directory says. An id that it does not have is "" (directory.id: before KIP-858)."""

    path: str
    cluster_id: str = ""
    directory_id: str = ""
    is_of_metadata: bool = False
    """The directory is the node's metadata.log.dir."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFormat:
    """What a starting node reads of one of its directories."""

    meta: bytes | None = None
    """Its meta.properties; None without one."""
    identity: DirectoryIdentity | None = None
    """What meta.properties says."""
    bootstrap: bytes | None = None
    """Its bootstrap.checkpoint, if it was read."""
    has_metadata_log: bool = False
    """Whether it was found there."""
    problem: str = ""
    """Why the directory could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What an installation of a node has besides its release, and loses when another one is installed."""

    link: str = ""
    """The folder to which the link of the release leads, without a release in a package; empty: unknown."""
    held: tuple[str, ...] = ()
    """Its packages that are held (apt-mark hold)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord:
    """One start of a node's process."""

    release: Release
    started_at: float
    pid: int
    log_place: str = ""
    """Where its log file, and the file of what the JVM prints, ended before the start (`nodes/runtimes/log_files.py`);
    empty if it is not known."""
    output_place: str = ""
    """Where its log file, and the file of what the JVM prints, ended before the start (`nodes/runtimes/log_files.py`);
    empty if it is not known."""

    def is_of(self, pid: int | None, started_at: float | None) -> bool:
        """The kernel keeps start times in hundredths of a second, systemd in seconds; an id can be used again."""
        return pid == self.pid and started_at is not None and abs(started_at - self.started_at) < 1.0
