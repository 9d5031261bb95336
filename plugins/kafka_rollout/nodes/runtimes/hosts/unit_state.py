"""The host of a node: unit, releases, rights, owners of folders, space, Java.

The commands change nothing; one writes a file in the home folder of the SSH user and removes it. What a command does
not report is listed as unknown. The Java version is that of the file `release` of its installation: the user of the
broker chooses what its process executes, and the SSH user must not execute it.
"""

from __future__ import annotations

import math
import re
import shlex
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import translate
from pathlib import PurePosixPath
from typing import TypedDict, TypeVar

from kafka_rollout.base.errors import NotObservableError, RefusedError, RolloutError, TransientError, UserError
from kafka_rollout.base.outside_text import parse_number
from kafka_rollout.base.wording import few
from kafka_rollout.model.claims import Claims
from kafka_rollout.model.configs import environment_names
from kafka_rollout.model.file_access import FileAccess
from kafka_rollout.model.host_state import (
    SUDO_RS,
    ClosingLines,
    Elsewhere,
    HostFacts,
    HostPath,
    HostState,
    LinkUser,
    MovedListener,
    OwnName,
    PackageProblem,
    RequiredUnit,
    StartFile,
    StartFileKind,
    StartPath,
    StoppedUnit,
    can_change,
)
from kafka_rollout.model.jvm_options import NextOptions
from kafka_rollout.model.log_directories import log_directories, metadata_directory
from kafka_rollout.model.node_log import READ_LINES, can_be_read
from kafka_rollout.model.quorum_addresses import (
    addresses_of_listeners,
    names_of_controllers,
    names_of_listeners,
    ports_of_own_name,
)
from kafka_rollout.model.starts import MAIN_CLASS, overrides_of
from kafka_rollout.model.topology import NodeSpec, ServiceSpec
from kafka_rollout.model.unit_settings import (
    UnitSetting,
    find_stop_actions,
    find_unknown,
    find_unproved,
    parse_settings,
)
from kafka_rollout.nodes.runtimes.claim_files import CLOSED, OPEN, join_claims
from kafka_rollout.nodes.runtimes.hosts.absences import is_literal
from kafka_rollout.nodes.runtimes.hosts.closed_paths import read_closed_paths
from kafka_rollout.nodes.runtimes.hosts.commands import (
    MISSING,
    RECORDS,
    HostCommands,
    read_number,
    read_properties,
    rights_of,
    service_of,
    shown_commands,
    shown_units,
    shown_with_errors,
    unusable,
)
from kafka_rollout.nodes.runtimes.hosts.file_writers import WritingUnit, read_doubt
from kafka_rollout.nodes.runtimes.hosts.installing import is_pinned, is_provided, read_held
from kafka_rollout.nodes.runtimes.hosts.java_processes import read_java_processes
from kafka_rollout.nodes.runtimes.hosts.library_folders import read_library_folders
from kafka_rollout.nodes.runtimes.hosts.link_users import read_link_users
from kafka_rollout.nodes.runtimes.hosts.loaded_files import read_reload
from kafka_rollout.nodes.runtimes.hosts.logging_files import read_logging_files
from kafka_rollout.nodes.runtimes.hosts.login_files import read_key_tabs
from kafka_rollout.nodes.runtimes.hosts.logs import read_journal, read_log_tail
from kafka_rollout.nodes.runtimes.hosts.main_process import FIND_KAFKA, PROCESS
from kafka_rollout.nodes.runtimes.hosts.names import first_address, read_network, read_own_name
from kafka_rollout.nodes.runtimes.hosts.next_java import NextJava, find_next_java
from kafka_rollout.nodes.runtimes.hosts.open_files import read_open_files
from kafka_rollout.nodes.runtimes.hosts.option_sources import ScriptsOfStart, UnitOptions, read_next_start
from kafka_rollout.nodes.runtimes.hosts.overrides import next_overrides, starts_alone, starts_directly
from kafka_rollout.nodes.runtimes.hosts.package_scripts import read_closing_lines
from kafka_rollout.nodes.runtimes.hosts.package_states import find_unfinished
from kafka_rollout.nodes.runtimes.hosts.process_limits import read_differences
from kafka_rollout.nodes.runtimes.hosts.records import TRY_RECORDS, find_full, read_try
from kafka_rollout.nodes.runtimes.hosts.release_folders import ReleaseFolder
from kafka_rollout.nodes.runtimes.hosts.required_units import read_required_units
from kafka_rollout.nodes.runtimes.hosts.rights import (
    EXAMPLE,
    FIRST_WITH_EXPRESSIONS,
    changed_paths,
    excess_rights,
    held_names,
)
from kafka_rollout.nodes.runtimes.hosts.security_labels import read_labels
from kafka_rollout.nodes.runtimes.hosts.shell_lines import assignments
from kafka_rollout.nodes.runtimes.hosts.start_commands import read_start_commands
from kafka_rollout.nodes.runtimes.hosts.start_paths import read_start_paths
from kafka_rollout.nodes.runtimes.hosts.start_writes import read_start_writes
from kafka_rollout.nodes.runtimes.hosts.started_units import StartedUnit, read_started_units
from kafka_rollout.nodes.runtimes.hosts.stopped_units import read_stopped_units
from kafka_rollout.nodes.runtimes.hosts.times import parse_times, read_newer, read_times
from kafka_rollout.nodes.runtimes.hosts.unit_environment import (
    OF_SYSTEMD,
    UnclearError,
    jvm_words,
    parse_file,
    parse_shown,
    put_in,
)
from kafka_rollout.nodes.runtimes.hosts.unit_mounts import read_unit_mounts
from kafka_rollout.nodes.runtimes.hosts.unit_processes import LeftProcesses, left_command, parse_left
from kafka_rollout.nodes.runtimes.hosts.unit_stops import read_unit_stop
from kafka_rollout.nodes.runtimes.hosts.user_access import WALK, read_unit_user
from kafka_rollout.nodes.runtimes.hosts.written_folders import folders_of_run, possible_folders
from kafka_rollout.nodes.runtimes.start_files import all_start_files
from kafka_rollout.releases.facts import Release

_Read = TypeVar("_Read")
_PROPERTIES = (
    "LoadState,ActiveState,SubState,MainPID,ExecMainPID,ExecMainStartTimestamp,NRestarts,TimeoutStopUSec,User,"
    "UnitFileState,ExecStop,ExecStopPost,Id,KillMode,KillSignal,SendSIGKILL,NeedDaemonReload,CanStart,"
    "Transient,FragmentPath,UpheldBy"
)
# Below the home of the SSH user, which hosts can share. Not by names of the inventory, which another one can have.
CLAIMS = '{records}/claims/"$(uname -n)"/{unit}'
_CLAIMS_BEGIN, _CLAIMS_END = "Claims=begin", "Claims=end"
_NO_CLAIMS = re.compile(r"\S*(?:find|sed): .*: No such file or directory")
DOWN = ("inactive", "failed")
_YES_NO = {"yes": True, "no": False}
_SHOWN_COMMANDS = ("show ExecStart", "show ExecCondition")
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_ASKED = "asked"
_FILES = re.compile(r"files +(\d+) +(\d+) (/.*)")
_MOUNTED = "configuration is mounted"
# What lsattr(1) prints, and what it prints for a file system that has no flags.
_FLAGS = re.compile(r"(\S+) +(/.*)")
_NO_FLAGS = re.compile(
    r"lsattr: (?:Operation not supported|Inappropriate ioctl for device) While reading flags on (/.*)"
)
_NAMES = {"i": "the attribute i (immutable)", "a": "the attribute a (append only)"}
_FEW_FILES, _FILES_OF_PACKAGE = 20, 1000
_PACKAGE_FOLDERS = "/var/lib /var/cache"
"""Where package managers keep their state, and what they download."""
_PLACES = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
"""Where systemd finds drop-ins of a unit."""
_OF_SITE = frozenset(
    {
        *(StartFileKind.JVM, StartFileKind.PROGRAM, StartFileKind.KEYS, StartFileKind.KEY_TAB, StartFileKind.PROVIDED),
        *(StartFileKind.PLANNED, StartFileKind.AGENT, StartFileKind.LOGGING, StartFileKind.NAMED, StartFileKind.INNER),
    }
)
"""What commands of a site can make at a start."""
_NEEDED_FILE = re.compile(r"(/\S+) \(ignore_errors=no\)")
_UNIT_FILES = frozenset({"FragmentPath", "DropInPaths", "EnvironmentFiles"})
_TIMES = re.compile(r"(\d+)/(\d+)(/.+)")
_UNKNOWN_DIRECTORY = "/unknown-directory"  # of a node whose directories a config provider has
STAT = "stat --format=%f/%u/%U/%n"
_STATUS = re.compile(r"([0-9a-f]{1,8})/([0-9]{1,10})/([^/]*)/(/.*)")
_MAIN_PROCESS = (
    FIND_KAFKA + 'test -z "$kafka" || echo "Kafka=$kafka"; '
    'echo "Main=$main"; echo "Program=$(cat /proc/$main/comm 2>/dev/null)"'
)
# For each path of the input: `other`, or with wildcards `first`, then `each` with every file `$one`.
_IN_PATTERN = (
    "LC_ALL=C; export LC_ALL; while IFS= read -r file; do case $file in *[*?[]*) IFS=; {first}"
    'for one in $file; do if test -e "$one" || test -L "$one"; then {each}; fi; done;; *) {other};; esac; done; '
)
# Also `all`: the environment of systemd itself, which each unit gets; `started`: now, age of the process (s);
# `pattern`: each EnvironmentFile=; and `unread`: time of the last change (epoch seconds, empty if unknown) and path of
# a file that exists, or can exist, and cannot be read. A path with wildcards is expanded as systemd does (glob(3),
# sorted in the locale C); it is unread if a folder in it cannot be listed.
ARGUMENTS = (
    "LC_ALL=C systemctl show --property=Environment --value {unit} | sed 's/^/env /'; "
    "LC_ALL=C systemctl show-environment | sed 's/^/all /'; "
    "LC_ALL=C systemctl show --property=ExecStart,ExecStartPre,ExecStartPost,ExecCondition,ExecSearchPath {unit} | "
    "sed 's/^/show /'; " + PROCESS + "tr '\\0' '\\n' 2>/dev/null </proc/$pid/cmdline | sed 's/^/arg /'; "
    'age=$(ps -o etimes= -p "$pid" 2>/dev/null) && echo "started $(date +%s)" $age; '
    + WALK.replace("{", "{{").replace("}", "}}")
    + "LC_ALL=C systemctl show --property=EnvironmentFiles --value {unit} | "
    "sed 's/ (ignore_errors=[a-z]*) */&\\n/g' | sed 's/^/pattern /'; "
    "LC_ALL=C systemctl show --property=EnvironmentFiles --value {unit} | "
    "sed 's/ (ignore_errors=[a-z]*) */\\n/g' | {{ "
    'give() {{ if test -f "$1" && test -r "$1"; then sed "s/^/set /" "$1"; echo; echo "end $1"; '
    'elif test -n "$1"; then walk "$1"; see; test "$seen" = - || '
    'echo "unread $(stat -L -c %Z "$1" 2>/dev/null) $1"; fi; }}; '
    'listed() {{ walk "$1/"; see; case $seen in d) test -r "$1/" && test -x "$1/";; "?") false;; esac; }}; '
    + _IN_PATTERN.format(
        each='give "$one"',
        other='give "$file"',
        first='above=${{file%%[*?[]*}}; listed "${{above%/*}}" || echo "unread  $file"; '
        'for one in ${{file%/*}}; do case $one in "${{above%/*}}") ;; *) listed "$one" || echo "unread  $file";; esac; '
        "done; ",
    )
    + "}}"
)
# Each part is the same for every name of a machine. Clones have equal machine ids, containers of a kernel its boot id.
_MACHINE = (
    'echo "Machine=$(cat /proc/sys/kernel/random/boot_id)/$(readlink /proc/self/ns/pid)/'
    '$(cat /etc/machine-id 2>/dev/null)/$(uname -n)"'
)
_MACHINE_ID = re.compile(r"[0-9a-f-]{36}/pid:\[\d+\]/\w*/\S+")
# To the end of its last line: a word of a command can have line breaks.
_EXEC_STOP = re.compile(
    r"^ExecStop(Post)?=(\{(?:(?:(?!^ExecStop)(?s:.))*? ; (?:ignore_errors|flags)=.*|.*))$", re.MULTILINE
)
_VERSION = re.compile(r'^JAVA_VERSION="?(\d+)(?:\.(\d+))?', re.MULTILINE)
# The path without links, then each folder above it.
# Every file, folder and link on the way from a path to its end, as the kernel walks it.
LEADS = (
    f'walk() {{ at= left=40 rest=$1; {STAT} /; while test -n "$rest"; do part=${{rest%%/*}}; '
    "case $rest in */*) rest=${rest#*/};; *) rest=;; esac; "
    'case $part in ""|.) continue;; ..) at=${at%/*}; continue;; esac; '
    f'{STAT} "$at/$part" || return 1; if test -L "$at/$part"; then left=$((left - 1)); test "$left" -gt 0 || return 1; '
    'to=$(readlink "$at/$part"); case $to in /*) at=;; esac; rest=$to/$rest; else at=$at/$part; fi; done; }; '
)
_CHAIN = f'while :; do {STAT} "$path" || exit 1; test "$path" != / || break; path=$(dirname "$path"); done'


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState:
    exists: bool
    active: str
    sub: str
    pid: int | None
    """Its main process; without one, a process that can be Kafka and that systemd has left running (unit_processes.py);
    None without both."""
    last_pid: int | None
    """Its newest main process, which can have exited."""
    started_at: float | None
    """Its newest main process, which can have exited (epoch seconds)."""
    restarts: int
    """By systemd itself, since the last start that a run or an operator requested."""
    stop_s: float | None
    """TimeoutStopSec, after which systemd kills the process; infinity: never; None: not reported."""
    is_root: bool
    """Its process runs as root."""
    masked: bool = False
    """Until the next boot, so that nothing can start it."""
    stop_commands: tuple[str, ...] = ()
    """The words of each ExecStop=, as systemd shows them."""
    after_stop: tuple[str, ...] = ()
    """The words of each ExecStopPost=."""
    name: str = ""
    """Without aliases; empty if it is not known."""
    machine: str = ""
    """What only this running machine reports; empty if it is not known."""
    claims: Claims = field(default_factory=Claims)
    wrapper: str = ""
    """The program of its main process if Kafka is a child of it, such as `sh`."""
    left: LeftProcesses = field(default_factory=LeftProcesses)
    """Read only without a main process."""
    kill_mode: str = ""
    """KillMode; empty if it is not known."""
    kill_signal: int | None = None
    """KillSignal; None: unknown."""
    sends_sigkill: bool = True
    """SendSIGKILL."""
    can_start: bool | None = None
    """CanStart: whether systemd accepts a start by hand; None: unknown."""
    is_transient: bool | None = None
    """Transient; None: unknown."""
    file: str = ""
    """FragmentPath; empty if it is not known."""
    load_state: str = ""
    """LoadState; empty if it is not known."""
    upheld_by: tuple[str, ...] = ()
    """The units that start it again after each stop (Upholds=, since systemd 249)."""
    needs_reload: bool | None = None
    """NeedDaemonReload, which does not show each change of its files (loaded_files.py); None: unknown."""

    @property
    def waits_for_restart(self) -> bool:
        """Whether the process exited and systemd is about to start it again."""
        return self.sub == "auto-restart" or (self.active == "activating" and self.pid is None)

    @property
    def prepares_start(self) -> bool:
        """Whether systemd runs commands before it starts the main process (ExecCondition=, ExecStartPre=)."""
        return self.active == "activating" and self.sub in ("condition", "start-pre")

    @property
    def is_down(self) -> bool:
        """Whether it is known that no process of the unit can be Kafka. systemd alone does not show it."""
        return self.is_given_up and self.left.kafka == ()

    @property
    def is_given_up(self) -> bool:
        """Whether systemd has no process of the unit, and starts none."""
        return self.active in DOWN and self.pid in (None, *(self.left.kafka or ()))

    @property
    def shown_left(self) -> str:
        """The processes in its control group."""
        return few(self.left.names) or "processes that the host does not report"


def show_command(unit: str) -> str:
    """A line for the login shell; needs no right. Times are in UTC."""
    main_process = _MAIN_PROCESS.format(unit=unit)
    left = f'test "${{main:-0}}" != 0 || {{ {left_command(unit)}; }}'
    return f"LC_ALL=C TZ=UTC systemctl show --property={_PROPERTIES} {unit}; {main_process}; {left}; {_MACHINE}"


def claims_folder(unit: str) -> str:
    """Return the folder of a unit's claims, as words of the login shell, below the home of the SSH user."""
    return CLAIMS.format(records=RECORDS, unit=unit)


def claims_command(unit: str) -> str:
    """A line for the login shell. It reads the open claims first: one that is closed at the same time is then seen as
    the closed one. An error is in the output, so that what cannot be read is not missing."""
    folder = claims_folder(unit)
    return (
        f"{{ echo {_CLAIMS_BEGIN}; {{ cd && LC_ALL=C find {folder} -name '{OPEN}' -exec sed 's/^/Open /' {{}} + ; "
        f"LC_ALL=C sed 's/^/Closed /' {folder}/{CLOSED}; }} 2>&1; echo {_CLAIMS_END}; }}"
    )


def parse_claims(text: str) -> Claims:
    """Read the output of `claims_command`."""
    _, begun, rest = text.partition(f"{_CLAIMS_BEGIN}\n")
    shown, ended, _ = rest.partition(f"{_CLAIMS_END}\n")
    if not begun or not ended:
        return Claims(problem="the host did not report them")
    lines = shown.splitlines()
    opened = [line.removeprefix("Open ") for line in lines if line.startswith("Open ")]
    closed = [line.removeprefix("Closed ") for line in lines if line.startswith("Closed ")]
    others = [line for line in lines if not line.startswith(("Open ", "Closed ")) and not _NO_CLAIMS.fullmatch(line)]
    return join_claims(opened, "".join(closed) if closed else None, others[:1])


def parse_unit(text: str) -> UnitState:
    """Read the output of `show_command`."""
    values = read_properties(text)
    is_child = values.get("Kafka", "") not in ("", values.get("Main"))
    left, active = parse_left(text), values.get("ActiveState", "")
    of_left = next(iter(left.kafka or ()), None) if active in DOWN else None
    return UnitState(
        exists=values.get("LoadState") == "loaded",
        active=active,
        sub=values.get("SubState", ""),
        pid=read_number(values.get("MainPID") or "0", "MainPID") or of_left,
        last_pid=read_number(values.get("ExecMainPID") or "0", "ExecMainPID") or None,
        started_at=_time(values.get("ExecMainStartTimestamp", "")),
        restarts=read_number(values.get("NRestarts") or "0", "NRestarts"),
        stop_s=_seconds(values.get("TimeoutStopUSec", "")),
        is_root=values.get("User") in ("", "root", "0"),
        masked=values.get("UnitFileState") == "masked-runtime",
        stop_commands=tuple(
            one for match in _EXEC_STOP.finditer(text) if not match[1] for one in shown_commands(match[2])
        ),
        after_stop=tuple(one for match in _EXEC_STOP.finditer(text) if match[1] for one in shown_commands(match[2])),
        name=values.get("Id", ""),
        machine=found[0] if (found := _MACHINE_ID.fullmatch(values.get("Machine", ""))) else "",
        wrapper=values.get("Program", "") if is_child else "",
        left=left,
        kill_mode=values.get("KillMode", ""),
        kill_signal=parse_number(values.get("KillSignal", "")),
        sends_sigkill=values.get("SendSIGKILL") != "no",
        can_start=_YES_NO.get(values.get("CanStart", "")),
        is_transient=_YES_NO.get(values.get("Transient", "")),
        file=values.get("FragmentPath", ""),
        load_state=values.get("LoadState", ""),
        upheld_by=tuple(shown_units(values.get("UpheldBy", ""))),
        needs_reload=_YES_NO.get(values.get("NeedDaemonReload", "")),
    )


def _time(text: str) -> float | None:
    """`Mon 2026-11-23 06:11:15 UTC`; empty for a unit that was never started."""
    match = re.fullmatch(r"\w+ (\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2})(?:\.\d+)? UTC", text.strip())
    return datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp() if match else None


def _seconds(text: str) -> float | None:
    """`5min`, `1min 30s`, `infinity`; None for another text."""
    if text == "infinity":
        return math.inf
    if not re.fullmatch(r"([\d.]+(us|ms|min|s|h|d|w) ?)+", text):
        return None
    return sum(float(number) * _UNITS_S[unit] for number, unit in re.findall(r"([\d.]+)(us|ms|min|s|h|d|w)", text))


def read_host(
    commands: HostCommands,
    node: NodeSpec,
    unit: UnitState,
    releases: Sequence[Release],
    *,
    installed: Release | None,
    unavailable: Mapping[Release, PackageProblem],
    libs: Mapping[Release, ReleaseFolder],
    now: Callable[[], float],
    read_config: Callable[[], Mapping[str, str]],
    read_planned: Callable[[], Sequence[Mapping[str, str]]],
    others: Mapping[int, ServiceSpec],
    restarts: bool,
    changes_file: Callable[[], bool],
    elsewhere: Elsewhere | None = None,
    back: Release | None = None,
) -> HostState:
    """Return the state. `installed`: the release that the next start runs. `unavailable`: as in HostState. `libs`: the
    folders of releases. `now`: clock of this machine. `read_config`: reads the configuration of the node.
    `read_planned`: reads those that it has on the releases, with the lines that the run changes. `others`: the other
    nodes on the machine, by id. `restarts`: the run installs nothing. `changes_file`: whether it changes the
    configuration. `elsewhere`: as in HostState. `back`: the release to which a rollback leads the link, whose folder is
    among `libs`; None if that is not asked."""
    service = service_of(node)
    left, no_return = _read_left(service, back, libs)
    libs = {release: folder for release, folder in libs.items() if release in releases}
    folders = {release: service.folder(release) for release in releases}
    found = look(commands, node)
    values = dict(line.split(" ", 1) for line in found if " " in line)
    there, brought = _releases(service, folders, installed, libs, unavailable)
    denied = _denied(commands, node, releases, read_config)
    seen = commands.sudo(node, rights_of(node).see_paths)
    excess = _read_excess(commands, node, (service, *others.values()))
    paths = parse_paths(seen.out)
    leads = _read_leads(commands, node, service, paths)
    sees_processes = _sees_processes(commands, node, unit)
    stopped_units, required_units, started_units = _read_other_units(commands, node)
    needs_reload = "NeedDaemonReload=yes" if unit.needs_reload else read_reload(commands, node)
    mounts = read_unit_mounts(commands, node)
    settings, settings_problem = _read_or_unknown(lambda: () if unit.masked else _read_settings(commands, node, unit))
    free = values.get("free", "")
    facts = read_facts(commands, node, libs, unit.pid, now)
    free_bytes = int(free) if free.isdigit() else None
    space, home = values.get("space", ""), values.get("home", "")
    package_bytes = int(space) if space.isdigit() else None
    home_bytes = int(home) if home.isdigit() else None
    refused = read_try(found)
    options = read_unit_options(commands, node)
    start = read_next_start(commands, node, releases or (None,), options)
    config = {} if denied else read_config()
    resolved, names_problem = _read_or_unknown(lambda: _read_names(commands, node, config, unit.pid, facts.arguments))
    link, start_paths, start_paths_problem = _start_paths(
        commands,
        node,
        releases,
        config=config,
        planned=() if denied else read_planned(),
        options=options,
        start=start,
        facts=facts,
    )
    login = values.get("login", "")
    startable = [release for release in releases if release in there | brought]
    writes, writes_problem = _read_or_unknown(
        lambda: (
            *read_start_writes(
                commands,
                node,
                startable,
                process=facts.arguments,
                unit=options,
                start=start,
                brought=brought,
                login=login,
                directories=log_directories(config),
            ),
            *read_library_folders(commands, node, startable, process=facts.arguments, unit=options, start=start),
        )
    )
    written = folders_of_run(
        service,
        releases,
        restarts=restarts,
        installed=installed,
        brought=brought,
        configures=lambda: bool(denied) or changes_file(),
    )
    copies = _parent(service.configuration_file) in written
    fixed = _read_fixed(commands, node, found) if copies and not denied else ()
    installs = service.package is not None and service.release_parent in written
    switches = service.package is None and _parent(service.symlink) in written
    link_users: tuple[LinkUser, ...] | None = ()
    if installs or switches:
        link_users = read_link_users(commands, node, read_java_processes(commands, node, unit.pid))
    unseen = [folder for folder in written if not {f"ro {folder}", f"rw {folder}"} & {*found}]
    held, held_problem = _read_or_unknown(lambda: read_held(commands, node))
    unfinished, unfinished_problem = _read_or_unknown(lambda: find_unfinished(commands, node) if installs else ())
    wanting = {**left, **{release: folder for release, folder in libs.items() if release not in there | brought}}
    java = NextJava(paths=())
    with suppress(NotObservableError):  # JAVA_CHECK names it
        java = find_next_java(commands, node, None if denied else unit.pid, options, start)
    from_ = f"from {service.release_parent}" if service.package else f"through {service.symlink}"
    unknown = {
        f"the attributes of {service.configuration_file} and of its folder (`lsattr`)": fixed is None,
        f"the free space of {_parent(service.configuration_file)}": copies and free_bytes is None,
        f"the free space of {_PACKAGE_FOLDERS.replace(' ', ' and ')}": installs and package_bytes is None,
        "TimeoutStopSec of the unit": unit.stop_s is None,
        "KillMode of the unit": not unit.kill_mode,
        "KillSignal of the unit": unit.kill_signal is None,
        "NeedDaemonReload of the unit": unit.needs_reload is None,
        "CanStart of the unit": unit.can_start is None,
        "Transient of the unit": unit.is_transient is None,
        "FragmentPath of the unit": not unit.file,
        f"the settings of {service.unit} ({settings_problem})": settings is None,
        f"the mounts of {service.unit} (`systemctl show`)": mounts is None,
        f"which files systemd would read of {service.unit} (`systemctl cat`)": needs_reload is None,
        f"the processes in the control group of {service.unit} (/sys/fs/cgroup)": not sees_processes,
        "which machine it is (/proc/sys/kernel/random/boot_id)": not unit.machine,
        f"the units that systemd stops with {service.unit} (`systemctl show`)": stopped_units is None,
        f"the units that {service.unit} requires (`systemctl show`)": required_units is None,
        f"the commands of other units that a start of {service.unit} runs (`systemctl show`)": started_units is None,
        f"whether the file system of {' and '.join(unseen)} is mounted read-only (`findmnt`)": bool(unseen),
        f"what else starts {from_} (`systemctl show`, /proc/*/cmdline)": link_users is None,
        **({} if denied else _unknown_paths(service, paths, seen.err)),
        f"where {', '.join(path for path, way in leads.items() if not way)} leads": not all(leads.values()),
        "the rights of the SSH user (`sudo -n -l`)": excess is None,
        f"a home folder of the SSH user that it can write, for {RECORDS}{f' ({refused})' if refused else ''}": (
            refused != "" and not find_full(refused or "")
        ),
        "the free space of the home folder of the SSH user": home_bytes is None,
        f"which packages are held ({held_problem})": installs and held is None,
        f"the states of its packages ({unfinished_problem})": unfinished is None,
        f"where a start writes ({writes_problem})": writes is None,
        f"whether it resolves the names in its configuration ({names_problem})": names_problem != "",
        f"the journal of {service.unit}": _journal_problem(commands, node) != "",
        **_unknown_of_process(unit, facts, denied),
        **_unknown_of_releases(service, installed, brought, facts),
    }
    return HostState(
        name=service.host,
        unit=service.unit,
        installed=installed,
        symlink=service.package.jars if service.package else service.symlink,
        folders=folders,
        releases=there | brought,
        unavailable=unavailable,
        brought=brought,
        elsewhere=elsewhere,
        unheld=tuple(name for name in held_names(service) if held is not None and name not in held),
        unfinished=unfinished or (),
        lacks={release: folder.lacks for release, folder in wanting.items()},
        repairs={release: folder.repair for release, folder in wanting.items()},
        no_return=no_return,
        unpinned=_unpinned(service, brought),
        can_unpack=service.archive is None or "writable" in found,
        login=login,
        symlink_can_switch=service.package is not None or "link" in found,
        others={node_id: other.host for node_id, other in others.items()},
        stop_timeout_s=unit.stop_s,
        kill_mode=unit.kill_mode,
        kill_signal=unit.kill_signal,
        sends_sigkill=unit.sends_sigkill,
        # The unit is masked while a run installs its package.
        can_start=unit.can_start is not False or unit.masked,
        is_transient=unit.is_transient is True,
        unit_file="" if unit.masked else unit.file,
        upheld_by=unit.upheld_by,
        **read_start_commands(
            commands,
            node,
            options,
            start,
            stop=(*unit.stop_commands, *unit.after_stop),
            others=[command for one in started_units or () for command in one.all_commands],
            directories=log_directories(config),
        ),
        **(resolved or ({},))[0],
        unknown_settings=find_unknown(settings or ()),
        newer_settings=find_unproved(settings or ()),
        process_differences=read_differences(commands, node, [line for text in start.texts for line in text.lines]),
        empty_patterns=options.empty_patterns,
        stop_actions=find_stop_actions(settings or (), unit.kill_signal),
        needs_reload=needs_reload or "",
        mounts=mounts or (),
        stop=read_unit_stop(
            commands,
            node,
            stop=unit.stop_commands,
            after=unit.after_stop,
            pid=unit.pid,
            signal=options.variables.get("SIGNAL", ""),
        ),
        stopped_units=stopped_units or (),
        required_units=required_units or (),
        link_users=link_users or (),
        closing_lines=(
            read_closing_lines(commands, node, [one for one in releases if one != installed], config, options)
            if installs and {*releases} - {installed} and not denied
            else ClosingLines()
        ),
        runs_as_root=unit.is_root and read_unit_user(commands, node).user_id <= 0,
        denied=denied,
        old_sudo=_old_sudo(values.get("sudo", "")),
        excess=excess or (),
        paths=paths,
        leads=leads,
        unread_log=_count_unread(commands, node) if unit.pid is not None else 0,
        written=written,
        free_bytes=free_bytes if copies else None,
        package_bytes=package_bytes if installs else None,
        home_bytes=home_bytes,
        home_full=find_full(refused or ""),
        few_files={
            folder: free
            for folder, free in _read_free_files(found).items()
            if free < (_FILES_OF_PACKAGE if service.package else _FEW_FILES)
            and folder in (*written, *(_PACKAGE_FOLDERS.split() if installs else ()))
        },
        fixed=fixed or (),
        read_only=tuple(line.removeprefix("ro ") for line in found if line.startswith("ro ")),
        facts=facts,
        link=link,
        start_paths=start_paths,
        start_paths_problem=start_paths_problem,
        writes=writes or (),
        start_commands=needed_commands(options),
        options=start.options,
        overrides=frozenset(_overrides_of(facts.arguments, options, start)),
        changed_java=(java.of_process, java.paths[0]) if java.has_changed else None,
        **_read_writing(
            commands,
            node,
            WritingUnit(start, options.variables, (*_files_of(settings or (), unit), *options.files)),
            started_units or (),
            others=[*options.files, *(one.path for one in start_paths if one.kind in _OF_SITE)],
            started=options.started,
            config=config,
        ),
        logging=read_logging_files(commands, node, releases or (None,), facts.arguments),
        labels=read_labels(commands, node, folders),
        environment_names=environment_names(config),
        **_read_variables(
            commands,
            node,
            environment_names(config),
            options,
            start,
            unit_files=_files_of(settings or (), unit),
        ),
        unknown=tuple(what for what, is_unknown in unknown.items() if is_unknown),
    )


def _read_other_units(
    commands: HostCommands, node: NodeSpec
) -> tuple[tuple[StoppedUnit, ...] | None, tuple[RequiredUnit, ...] | None, tuple[StartedUnit, ...] | None]:
    """Return those that stop with the unit of the node, those that it needs, and those that its next start runs."""
    stopped = read_stopped_units(commands, node)
    names = [name for one in stopped or () for name in one.names]
    return stopped, read_required_units(commands, node), read_started_units(commands, node, names)


class _Writing(TypedDict):
    """Fields of HostState."""

    writers: tuple[str, ...]
    writer_doubt: str
    writer_is_newer: bool
    written_files: tuple[tuple[str, str], ...]


def _read_writing(
    commands: HostCommands,
    node: NodeSpec,
    own: WritingUnit,
    units: Iterable[StartedUnit],
    *,
    others: Iterable[str],
    started: int | None,
    config: Mapping[str, str],
) -> _Writing:
    """Return what the next start writes and then reads. `own`: the unit of the node. `units`: others that its start
    runs. `others`: the files that it reads besides its configuration."""
    writing = [own, *(WritingUnit(one.start, one.variables, one.files) for one in units)]
    file = service_of(node).configuration_file
    doubt = read_doubt(commands, node, writing, file, started=started, config=config)
    doubts = {one: read_doubt(commands, node, writing, one, started=started) for one in dict.fromkeys(others)}
    return {
        "writers": tuple(command for one in writing for command in one.find_writers(file)),
        "writer_doubt": str(doubt),
        "writer_is_newer": bool(doubt.newer),
        "written_files": tuple((path, str(one)) for path, one in doubts.items() if str(one) and path != file),
    }


def _sees_processes(commands: HostCommands, node: NodeSpec, unit: UnitState) -> bool:
    """Return whether the host shows after a stop what is left of the process, because it shows the process now."""
    left = parse_left(commands.run(node, left_command(service_of(node).unit)).out)
    return left.kafka is not None and unit.pid in (None, *left.kafka)


def _read_or_unknown(read: Callable[[], tuple[_Read, ...]]) -> tuple[tuple[_Read, ...] | None, str]:
    """Return what was read, or None and why it is unknown."""
    try:
        return read(), ""
    except (TransientError, RefusedError) as error:
        return None, error.sentence.removesuffix(".")


class _Names(TypedDict, total=False):
    """Fields of HostState."""

    unresolved_listeners: tuple[str, ...]
    moved_listeners: tuple[MovedListener, ...]
    unresolved_controllers: tuple[str, ...]
    resolves_controllers: bool
    own_name: OwnName | None


def _read_names(
    commands: HostCommands, node: NodeSpec, config: Mapping[str, str], pid: int | None, arguments: Sequence[str]
) -> tuple[_Names, ...]:
    """Raises TransientError or RefusedError if the host does not show them."""
    listeners, controllers = names_of_listeners(config), names_of_controllers(config)
    names, addresses = list(dict.fromkeys([*listeners, *controllers])), addresses_of_listeners(config)
    ports = ports_of_own_name(config) if config else ()
    own = OwnName(*read_own_name(commands, node, arguments), ports) if ports else None
    if not names and not addresses:
        return ({"own_name": own},)
    network = read_network(commands, node, names, pid)
    moved: list[MovedListener] = []
    for name, ports in listeners.items():
        address = first_address(network.addresses[name], arguments)
        elsewhere = network.elsewhere(address, ports) if address else ()
        if address and (elsewhere or not network.is_own(address)):
            moved.append(MovedListener(name=name, address=address, listens=elsewhere))
    moved += [MovedListener(name=one, address=one) for one in addresses if not network.is_own(one)]
    found: _Names = {
        "own_name": own,
        "unresolved_listeners": tuple(name for name in listeners if not network.addresses[name]),
        "moved_listeners": tuple(moved),
        "unresolved_controllers": tuple(name for name in controllers if not network.addresses[name]),
        "resolves_controllers": any(network.addresses[name] or not alone for name, alone in controllers.items()),
    }
    return (found,)


def _start_paths(
    commands: HostCommands,
    node: NodeSpec,
    releases: Sequence[Release],
    *,
    config: Mapping[str, str],
    planned: Sequence[Mapping[str, str]],
    options: UnitOptions,
    start: ScriptsOfStart,
    facts: HostFacts,
) -> tuple[StartPath | None, tuple[StartPath, ...], str]:
    """Return the link, the paths, and why they are not all; empty if they are."""
    problem = "" if options.unknown is None else options.unknown.sentence
    try:
        link, paths, other = read_start_paths(
            commands,
            node,
            releases,
            config=config,
            planned=planned,
            environment=start.environment,
            facts=facts,
            wrapper=start.wrapper_lines(options.variables),
            variables=options.variables,
            kept=start.kept,
            lines=[line for text in start.texts for line in text.lines],
            key_tabs=read_key_tabs(commands, node, config, (*facts.arguments, *start.environment)),
        )
    except (TransientError, RefusedError) as error:
        return None, (), error.sentence
    return link, paths, problem or other


def _releases(
    service: ServiceSpec,
    folders: Mapping[Release, str],
    installed: Release | None,
    libs: Mapping[Release, ReleaseFolder],
    unavailable: Mapping[Release, PackageProblem],
) -> tuple[frozenset[Release], frozenset[Release]]:
    """Return the releases that are on the host, and those that a run brings to it: not into a folder that exists."""
    if service.package is not None:
        there = frozenset(release for release in folders if release == installed)
        return there, frozenset(folders) - there - unavailable.keys()
    there = frozenset(release for release, folder in libs.items() if not folder.lacks)
    absent = [release for release, folder in libs.items() if not folder.exists]
    return there, frozenset(release for release in absent if is_provided(service, release))


def _read_left(
    service: ServiceSpec, back: Release | None, libs: Mapping[Release, ReleaseFolder]
) -> tuple[dict[Release, ReleaseFolder], Release | None]:
    """Return the folder of `back` and its release if a rollback would be refused; nothing if a run can bring it."""
    folder = None if back is None else libs.get(back)
    if back is None or folder is None or not folder.lacks or (not folder.exists and is_provided(service, back)):
        return {}, None
    return {back: folder}, back


def _unpinned(service: ServiceSpec, brought: Iterable[Release]) -> frozenset[Release]:
    if not service.archive:
        return frozenset()
    return frozenset(release for release in brought if not is_pinned(service, release))


def _old_sudo(printed: str) -> str:
    """Return a sudo that reads no regular expressions, with its version; empty for another one, and if it is not known.

    `printed`: `Sudo version 1.9.5p2`, or `sudo-rs 0.2.8` of the sudo in Rust, which has none in any version.
    """
    if printed.startswith(SUDO_RS):
        return printed
    match = re.search(r"version ((\d+)\.(\d+)(?:\.(\d+))?\S*)", printed)
    if match is None:
        return ""
    version = tuple(int(part or 0) for part in match.group(2, 3, 4))
    return f"sudo {match[1]}" if version < FIRST_WITH_EXPRESSIONS else ""


def _read_excess(commands: HostCommands, node: NodeSpec, services: Sequence[ServiceSpec]) -> tuple[str, ...] | None:
    """Return the rights of the SSH user that a run does not need; None if sudo does not list its rights."""
    listed = commands.run(node, ["sudo", "-n", "-l"])
    return excess_rights(listed.out, services) if listed.code == 0 else None


def _read_leads(
    commands: HostCommands, node: NodeSpec, service: ServiceSpec, paths: Sequence[HostPath]
) -> dict[str, tuple[HostPath, ...]]:
    """Follow the links among what the commands of the package name, as the SSH user."""
    named = set(service.package.root_paths if service.package else ())
    found = {}
    for link in (one.path for one in paths if one.path in named and stat.S_ISLNK(one.mode)):
        done = commands.run(node, f"{LEADS}walk {shlex.quote(link)}")
        found[link] = parse_paths(done.out) if done.code == 0 else ()
    return found


def _unknown_paths(service: ServiceSpec, paths: Iterable[HostPath], err: str) -> dict[str, bool]:
    missing = set(changed_paths(service)) - {path.path for path in paths} - _absent(service, err)
    return {f"owner and mode of {', '.join(sorted(missing))}": bool(missing)}


def _unknown_of_process(unit: UnitState, facts: HostFacts, denied: Sequence[str]) -> dict[str, bool]:
    runs, jars = unit.pid is not None, "the jars that the process has opened"
    if facts.hidden:
        jars += f", because {facts.hidden}, and its command line does not name them"
    return {
        "the command line of the process": runs and not facts.arguments,
        jars: runs and not denied and not facts.loaded_jars,
    }


def _unknown_of_releases(
    service: ServiceSpec, installed: Release | None, brought: Collection[Release], facts: HostFacts
) -> dict[str, bool]:
    return {
        f"the release of the jars in {service.release_parent}": service.package is not None and installed is None,
        "the free space for a release": bool(brought) and facts.release_bytes is None,
    }


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def look(commands: HostCommands, node: NodeSpec) -> list[str]:
    """Return lines that say whether the symlink can be switched, and the SSH user can unpack and record; free bytes."""
    service = service_of(node)
    # Paths of an inventory have no character that a shell treats specially.
    link = f"if test -L {service.symlink} || ! test -e {service.symlink}; then echo link; fi"
    parent = service.release_parent
    unpack = f"if test -d {parent} && test -w {parent}; then echo writable; fi; echo login $(id -un)"
    free = f"echo free $(df --output=avail --block-size=1 {_parent(service.configuration_file)} | tail -1)"
    if service.package is not None:
        free += (
            f"; echo space $(df --output=avail --block-size=1 {_PACKAGE_FOLDERS} | tail -n +2 | sort -n | head -n 1)"
        )
    version = "echo sudo $(sudo -V | head -n 1)"
    records = (
        f"{TRY_RECORDS}; to={RECORDS}; test -d $to || to=.; echo home $(df --output=avail --block-size=1 $to | tail -1)"
    )
    files = (
        f"for folder in {' '.join(possible_folders(service))}{f' {_PACKAGE_FOLDERS}' if service.package else ''}; do "
        'echo "files $(df --output=iavail,itotal $folder | tail -n 1) $folder"; done'
    )
    read_only = (
        f"for folder in {' '.join(possible_folders(service))}; do "
        "options=$(findmnt --noheadings --output OPTIONS --target $folder | tail -n 1); "
        'case ",$options," in *,ro,*) echo "ro $folder";; *,rw,*) echo "rw $folder";; esac; done'
    )
    file = service.configuration_file
    # The list of all mounts needs no right to enter the folder of the file, unlike a question about the file.
    mount = (
        f"file=$(readlink -f {file}); "
        f'if findmnt --noheadings --list --output TARGET | grep -Fxq -- "${{file:-{file}}}"; '
        f'then echo "{_MOUNTED}"; fi'
    )
    lines = (link, unpack, free, version, records, files, read_only, mount)
    return commands.run(node, "; ".join(lines)).out.splitlines()


def _read_fixed(commands: HostCommands, node: NodeSpec, found: Sequence[str]) -> tuple[str, ...] | None:
    """Return why the configuration cannot be renamed, as in HostState; None if that is unknown. `found`: by look()."""
    right = rights_of(node).see_flags
    done = commands.sudo(node, right)
    flags = {match[2]: match[1] for match in map(_FLAGS.fullmatch, done.out.splitlines()) if match}
    without = {match[1] for match in map(_NO_FLAGS.fullmatch, done.err.splitlines()) if match}
    paths = right.arguments[1:]
    if not {*paths} <= {*flags, *without}:
        return None
    fixed = [f"{path} has {_NAMES[flag]}" for path in paths for flag in _NAMES if flag in flags.get(path, "")]
    mounted = [f"{paths[0]} is a mount point"] if _MOUNTED in found else []
    return (*fixed, *mounted)


def _read_free_files(lines: Sequence[str]) -> dict[str, int]:
    """Return how many files can be created in the folders of look(). btrfs has no such number, and reports 0 of 0."""
    found = filter(None, map(_FILES.fullmatch, lines))
    return {match[3]: int(match[1]) for match in found if int(match[2]) > 0}


def parse_paths(text: str) -> tuple[HostPath, ...]:
    """Read the output of STAT."""
    rows = filter(None, map(_STATUS.fullmatch, text.splitlines()))
    return tuple(HostPath(path=row[4], mode=int(row[1], 16), user_id=int(row[2]), owner=row[3]) for row in rows)


def _absent(service: ServiceSpec, err: str) -> set[str]:
    """Return the files of versions of the package, and folders above, that stat did not find: `check` of the package
    finds those that a run needs. A file that stat cannot see stays unknown."""
    files = service.package.version_paths if service.package else ()
    return {
        path
        for path in changed_paths(service)
        if any(f"{file}/".startswith(f"{path}/") for file in files) and f"'{path}': {MISSING}" in err
    }


def _journal_problem(commands: HostCommands, node: NodeSpec) -> str:
    """Return why the journal cannot be read; empty if it can be, or if the node logs to a file."""
    if service_of(node).log_file is not None:
        return ""
    try:
        read_journal(commands, node, 1)
    except (TransientError, RefusedError) as error:
        return error.sentence
    return ""


def _count_unread(commands: HostCommands, node: NodeSpec) -> int:
    """Return the number of the last lines of the log, if none is an event; 0 also if they cannot be read, which is
    another finding."""
    right = rights_of(node).read_log
    lines: tuple[str, ...] = ()
    with suppress(TransientError, RefusedError):
        if right is not None:
            lines = read_log_tail(commands, node, right, READ_LINES)
        else:
            lines = read_journal(commands, node, READ_LINES)
    return 0 if can_be_read(lines) else len(lines)


def needed_commands(options: UnitOptions) -> tuple[str, ...]:
    """Return the commands before the start whose failure ends it, with the variables of the unit."""
    texts = (text for text in options.commands if text.startswith(("ExecCondition=", "ExecStartPre=")))
    found = (command for text in texts for command, ignores_errors in shown_with_errors(text) if not ignores_errors)
    return tuple(put_in(command, options.variables) for command in found)


def _files_of(settings: Iterable[UnitSetting], unit: UnitState) -> tuple[str, ...]:
    """Return the files of the unit, with its drop-ins."""
    return tuple(dict.fromkeys(file for one in settings if (file := one.file or unit.file)))


class _Variables(TypedDict):
    """Fields of HostState."""

    environment_gone: tuple[str, ...]
    environment_newer: tuple[str, ...]


def _read_variables(
    commands: HostCommands,
    node: NodeSpec,
    names: Collection[str],
    options: UnitOptions,
    start: ScriptsOfStart,
    *,
    unit_files: Iterable[str],
) -> _Variables:
    """Return what the next start has of the variables in a configuration. `unit_files`: those of the unit."""
    of_scripts = {name for text in start.texts for line in text.lines for name, _ in assignments(line)}
    known = {*options.variables, *of_scripts} | {name for name in names if OF_SYSTEMD.fullmatch(name)}
    files = [*unit_files, *options.files] if names else []
    gone = tuple(sorted({*names} - known))
    is_certain = options.is_whole and all(not one.unread for one in start.options.values())
    files += ["a part of the environment that the SSH user cannot read"] if gone and not is_certain else []
    return {
        "environment_gone": gone if is_certain else (),
        "environment_newer": read_newer(commands, node, files, options.started),
    }


def _read_settings(commands: HostCommands, node: NodeSpec, unit: UnitState) -> tuple[UnitSetting, ...]:
    """Raises TransientError or RefusedError if the host does not show the files of the unit."""
    service = service_of(node)
    done = commands.run(node, ["systemctl", "cat", service.unit])
    if done.code != 0:
        raise unusable(
            done,
            f"`systemctl cat {service.unit}` on host {service.host} failed: {done.problem}.",
            remedy="Let the SSH user read the files of the unit.",
        )
    settings = tuple(parse_settings(done.out))
    if unit.started_at is None or not (files := tuple(dict.fromkeys(one.file or unit.file for one in settings))):
        return settings
    folders = [f"{place}/{name}.d" for place in _PLACES for name in (service.unit, "service")]
    times = read_times(commands, node, [*files, *folders])
    older = {file for file in files if times.get(file, math.inf) <= unit.started_at}
    changed = [one for one in folders if times.get(one, -math.inf) > unit.started_at]
    # What a drop-in that is gone had set can be in any line of the others, or in none.
    return (
        *(replace(one, is_newer=bool(changed) or (one.file or unit.file) not in older) for one in settings),
        *(UnitSetting("Unit", "", f"(a file was added to {one}, or removed)", one, is_newer=True) for one in changed),
    )


def _denied(
    commands: HostCommands, node: NodeSpec, releases: Sequence[Release], read_config: Callable[[], Mapping[str, str]]
) -> tuple[str, ...]:
    """The lines of sudoers that are missing."""
    rights, host = rights_of(node), service_of(node).host
    reading = rights.read_configuration
    probe = commands.run(node, reading.allowed_command())
    if probe.code != 0:  # without it, the folder of the snapshots is unknown
        return (f"({reading.as_user}) NOPASSWD: {reading.sudoers()}",)
    values = {**EXAMPLE, "release": [*releases, "0.0.0"][0]}
    if package := service_of(node).package:
        known = [version for release in releases if (version := package.version(release))]
        values["version"] = [*known, *package.versions.values(), "0.0.0"][0]
    config = read_config()
    metadata = metadata_directory(config) or _UNKNOWN_DIRECTORY
    wanted = [
        right
        for right in rights.all(metadata, log_directories(config))
        if not any(_UNKNOWN_DIRECTORY in word for word in right.arguments)
    ]
    line = "; ".join(
        f"{shlex.join(right.allowed_command(**values))} >/dev/null 2>&1 || echo {number}"
        for number, right in enumerate(wanted)
    )
    done = commands.run(node, f"{line}; echo {_ASKED} {len(wanted)}")
    answers = done.out.splitlines()
    if answers[-1:] != [f"{_ASKED} {len(wanted)}"] or not all(number.isdigit() for number in answers[:-1]):
        raise unusable(
            done,
            f"Host {host} does not report which commands sudo permits: {(answers or ['no output'])[-1]}.",
            remedy="Run `sudo -n -l` there as the SSH user. Remove what the login prints beside it.",
        )
    refused = [wanted[int(number)] for number in answers[:-1]]
    return tuple(f"({right.as_user}) NOPASSWD: {right.sudoers()}" for right in refused)


def read_facts(
    commands: HostCommands,
    node: NodeSpec,
    libs: Mapping[Release, ReleaseFolder],
    pid: int | None,
    now: Callable[[], float],
) -> HostFacts:
    """Read them with commands that change nothing. `libs`: folders of releases. `now`: clock of this machine."""
    before = now()
    done = commands.run(node, "date +%s.%N")
    text = done.out.strip()
    after = now()
    if not re.fullmatch(r"\d+\.\d+", text):
        raise unusable(
            done,
            f"Host {service_of(node).host} does not report its time: {text or 'no output'}.",
            remedy="Let `date +%s.%N` print the seconds there, as that of GNU coreutils does.",
        )
    clock = float(text)
    opened = read_open_files(commands, node, pid)
    parts = [f"echo free $(df --output=avail --block-size=1 {service_of(node).release_parent} 2>/dev/null | tail -1)"]
    deleted = [jar for jar, is_deleted in opened.jars.items() if is_deleted]
    if deleted:
        parts.append(f'for jar in {shlex.join(deleted)}; do test ! -e "$jar" || echo "again $jar"; done')
    if pid is not None:
        parts.append(f"tr '\\0' '\\n' 2>/dev/null </proc/{pid}/cmdline | sed {shlex.quote('s/^/arg /')}")
    lines = commands.run(node, "; ".join(parts)).out.splitlines()

    def of(kind: str) -> list[str]:
        return [line.removeprefix(f"{kind} ") for line in lines if line.startswith(f"{kind} ")]

    free, again = "".join(of("free")), of("again")
    return HostFacts(
        clock_skew_s=clock - min(max(clock, before), after),
        release_bytes=int(free) if free.isdigit() else None,
        loaded_jars=tuple(opened.jars),
        removed_jars=tuple(jar for jar in deleted if jar not in again),
        replaced_jars=tuple(jar for jar in deleted if jar in again),
        opened=opened.paths,
        hidden=opened.hidden,
        release_jars={release: folder.jars for release, folder in libs.items()},
        arguments=_of_java(of("arg")),
    )


def _of_java(words: Iterable[str]) -> tuple[str, ...]:
    """Return the command line of a process; none of another program, such as a shell above Kafka."""
    process = tuple(words)
    return process if MAIN_CLASS in process or (process and process[0].rpartition("/")[2] == "java") else ()


def read_jvm_arguments(commands: HostCommands, node: NodeSpec, release: Release) -> tuple[str, ...]:
    """Return the arguments of the unit's next start on a release: those of its process that the start has too, and the
    words of the unit's environment, in the order in which Java gets them.

    Raises as `read_certain_options`.
    """
    return read_certain_options(commands, node, (release,))[release].arguments


def read_certain_options(
    commands: HostCommands, node: NodeSpec, releases: Sequence[Release]
) -> Mapping[Release, NextOptions]:
    """Return the options of the unit's next start on each release.

    Raises TransientError if the unit has no process and no environment, and RefusedError if a part is hidden: the SSH
    user cannot read a file with an environment that the process has not read as it is now, or a start script.
    """
    unit, start = read_start(commands, node, releases)
    return certain_options(node, releases, unit, start)


def read_start(
    commands: HostCommands, node: NodeSpec, releases: Sequence[Release]
) -> tuple[UnitOptions, ScriptsOfStart]:
    """Return the environment of the unit, and what its next start executes; without releases, on any."""
    unit = read_unit_options(commands, node)
    return unit, read_next_start(commands, node, releases or (None,), unit)


def certain_options(
    node: NodeSpec, releases: Sequence[Release], unit: UnitOptions, start: ScriptsOfStart
) -> Mapping[Release, NextOptions]:
    """As `read_certain_options`, of what was read."""
    if unit.unknown is not None:
        raise unit.unknown
    for release, options in start.options.items():
        if options.unclear:
            raise RefusedError(
                f"The options of the JVM of node {node.name} on Kafka {release} are unknown in part: "
                f"{few([*dict.fromkeys((*options.unread, *options.why))], limit=3)} on host {service_of(node).host} "
                f"can give it {', '.join(one.option for one in options.unclear)}.",
                remedy="Let the SSH user read the start scripts, or write these options into the unit and remove them "
                "from the scripts.",
            )
    return {release: start.options[release] for release in releases}


def read_closed(commands: HostCommands, node: NodeSpec, config: Mapping[str, str]) -> Mapping[str, FileAccess]:
    """As `read_closed_paths`."""
    return read_closed_paths(commands, node, config, read_unit_options(commands, node))


def read_unit_options(commands: HostCommands, node: NodeSpec) -> UnitOptions:
    """Return the arguments of the unit's process, its variables, and the words of options in them."""
    service = service_of(node)
    done = commands.run(node, ARGUMENTS.format(unit=service.unit))
    lines = done.out.split("\n")
    times = next((line.split()[1:] for line in lines if line.startswith("started ")), [])
    started = int(times[0]) - sum(map(int, times[1:])) if times and all(map(str.isdigit, times)) else None
    unread = [line.split(" ", 2)[1:] for line in lines if line.startswith("unread ")]
    process = _of_java(line.removeprefix("arg ") for line in lines if line.startswith("arg "))
    unknown: RolloutError | None = None
    variables: dict[str, str] = {}
    words: dict[str, tuple[str, ...]] = {}
    try:
        variables, words = _environment(lines, node, service)
    except RefusedError as error:
        unknown = error
    for changed, path in unread:
        if started is None or not changed or int(changed) >= started:
            unknown = RefusedError(
                f"The options of the JVM of node {node.name} are unknown in part: the SSH user cannot read {path} "
                f"on host {service.host}, and no running process has read the file as it is now.",
                remedy=f"Let the SSH user read {path}, or start the node with it.",
            )
    if done.code != 0:  # a shell that gave up has printed a part
        unknown = unusable(
            done,
            f"The environment of unit {service.unit} on host {service.host} cannot be read: {done.problem}.",
            remedy="Correct on the host what this line names, then plan again.",
        )
    files = (*(line[4:] for line in lines if line.startswith("end ")), *(path for _, path in unread))
    if not process and not words and unknown is None:
        unknown = TransientError(
            f"The arguments of the process of unit {service.unit} on host {service.host} are unknown.",
            remedy="Start the node, or set the arguments in the Environment of the unit.",
        )
    return UnitOptions(
        process=process,
        variables=variables,
        environment=words,
        is_whole=not unread and unknown is None,
        unknown=unknown,
        search=next((line[20:] for line in lines if line.startswith("show ExecSearchPath=")), "").replace(" ", ":"),
        commands=tuple(line.removeprefix("show ") for line in lines if line.startswith(_SHOWN_COMMANDS)),
        files=files,
        empty_patterns=tuple(_empty_patterns(lines, files)),
        started=started,
    )


def _empty_patterns(lines: Iterable[str], files: Collection[str]) -> Iterator[str]:
    """Yield the patterns of EnvironmentFile= that no file matches, and without one of which systemd starts nothing.
    `files`: those that exist, or can exist."""
    for line in lines:
        match = _NEEDED_FILE.fullmatch(line.removeprefix("pattern ").strip())
        if match and not is_literal(match[1]):
            parts = [re.compile(translate(part)) for part in match[1].split("/")]
            names = [file.split("/") for file in files]
            has = any(len(one) == len(parts) and all(map(_matches, parts, one)) for one in names)
            if not has:
                yield match[1]


def _matches(pattern: re.Pattern[str], part: str) -> bool:
    return pattern.fullmatch(part) is not None


def _environment(
    lines: Sequence[str], node: NodeSpec, service: ServiceSpec
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return the variables in the lines of ARGUMENTS, and the words of the options in those of the unit, by variable.

    A file counts more than Environment=.
    """
    variables: dict[str, str] = {}
    source, text = f"unit {service.unit}", ""
    try:
        for line in lines:
            if line.startswith("env "):
                variables |= parse_shown(line.removeprefix("env "))
            elif line.startswith("set "):
                text += line.removeprefix("set ") + "\n"
            elif line.startswith("end "):
                source = line.removeprefix("end ")
                variables |= parse_file(text)
                text = ""
        source = f"unit {service.unit}"
        words = jvm_words(variables)
    except UnclearError as error:
        raise RefusedError(
            f"The options of the JVM of node {node.name} are unknown in part: {source} on host {service.host} {error}.",
            remedy="Write the options so that there is one way to read them.",
        ) from error
    manager = dict(line[4:].split("=", 1) for line in lines if line.startswith("all ") and "=" in line)
    return {**{name: value.strip("$'\"") for name, value in manager.items()}, **variables}, words


def read_overrides(commands: HostCommands, node: NodeSpec) -> dict[str, str]:
    """Return the settings in the command line of the unit's next start (overrides.py)."""
    unit = service_of(node).unit
    line = (
        f"LC_ALL=C systemctl show --property=ExecStart --value {unit} | sed 's/^/exec /'; "
        f"{PROCESS.format(unit=unit)}"
        "tr '\\0\\n' '\\n\\r' 2>/dev/null </proc/$pid/cmdline | sed 's/^/arg /'"
    )
    lines = commands.run(node, line).out.split("\n")
    process = [one.removeprefix("arg ").replace("\r", "\n") for one in lines if one.startswith("arg ")]
    written = [text for one in lines if one.startswith("exec ") for text in shown_commands(one)]
    if all(starts_alone(one) for one in written):
        return next_overrides(process, written, ())
    options, start = read_start(commands, node, ())
    return _overrides_of(process, options, start)


def _overrides_of(process: Sequence[str], options: UnitOptions, start: ScriptsOfStart) -> dict[str, str]:
    shown = [one for one in options.commands if one.startswith("ExecStart=")]
    written = [
        put_in(text, options.variables, is_whole=options.is_whole and starts_directly(text))
        for one in shown
        for text in shown_commands(one)
    ]
    return next_overrides(process, written, start.wrapper_lines(options.variables))


def read_start_files(commands: HostCommands, node: NodeSpec, config: Mapping[str, str]) -> tuple[StartFile, ...]:
    """Return the files that the unit's next start reads, with the later time of their content and their inode.

    The SSH user sees a file in a folder that it can enter. A jar that is gone is that of another release. If the
    command line has other settings than the process, the configuration is as new as the unit and its scripts.
    """
    service = service_of(node)
    line = (
        f"LC_ALL=C systemctl show --property=FragmentPath,DropInPaths,EnvironmentFiles {service.unit}; "
        f"{PROCESS.format(unit=service.unit)}"
        "tr '\\0\\n' '\\n\\r' 2>/dev/null </proc/$pid/cmdline | sed 's/^/arg /'; "
        f"LC_ALL=C systemctl show --property=EnvironmentFiles --value {service.unit} | "
        "sed 's/ (ignore_errors=[a-z]*) */\\n/g' | { "
        + _IN_PATTERN.format(first="", each='echo "EnvironmentFiles=$one"', other=":")
        + "}"
    )
    lines = commands.run(node, line).out.split("\n")
    arguments = _of_java(text.removeprefix("arg ").replace("\r", "\n") for text in lines if text.startswith("arg "))
    named = [(StartFileKind.CONFIGURATION, service.configuration_file)]
    for text in lines:
        name, _, value = text.partition("=")
        if name in _UNIT_FILES:
            named += [(StartFileKind.UNIT, word) for word in re.sub(r"\(ignore_errors=\w+\)", "", value).split()]
    options, start = read_start(commands, node, ())
    named += [(StartFileKind.PROGRAM, text.path) for text in start.wrappers]
    named += all_start_files(config, arguments)
    kinds = {path: kind for kind, path in named if path.startswith("/") and path.isprintable()}
    if not kinds:
        return ()
    done = commands.run(node, ["stat", "--dereference", "--format=%Y/%Z%n", *kinds])
    changed = parse_times(done.out)
    absent = {path for path in kinds if f"'{path}': {MISSING}" in done.err}
    if MAIN_CLASS in arguments and _overrides_of(arguments, options, start) != overrides_of(arguments):
        of_unit = [
            changed.get(path) for path, kind in kinds.items() if kind in (StartFileKind.UNIT, StartFileKind.PROGRAM)
        ]
        own = service.configuration_file
        changed |= {own: max(changed[own], *filter(None, of_unit), 0.0)} if own in changed else {}
    removed = {path for path in absent if kinds[path] is not StartFileKind.JAR}
    left_at = _read_folder_times(commands, node, removed)
    return tuple(
        StartFile(path=path, kind=kind, changed_at=left_at.get(path, changed.get(path)), is_absent=path in removed)
        for path, kind in kinds.items()
        if path not in absent or path in removed
    )


def _read_folder_times(commands: HostCommands, node: NodeSpec, paths: Collection[str]) -> dict[str, float]:
    """Return when the content of the nearest folder above each path has changed, as far as the SSH user sees it."""
    folders = {path: [str(one) for one in PurePosixPath(path).parents] for path in paths}
    asked = dict.fromkeys(one for above in folders.values() for one in above)
    if not asked:
        return {}
    done = commands.run(node, ["stat", "--dereference", "--format=%Y/%Z%n", *asked])
    times = {match[3]: float(match[1]) for match in map(_TIMES.fullmatch, done.out.splitlines()) if match}
    missing = {one for one in asked if f"'{one}': {MISSING}" in done.err}
    nearest = {path: next((one for one in above if one not in missing), "") for path, above in folders.items()}
    return {path: times[one] for path, one in nearest.items() if one in times}


def read_java_version(commands: HostCommands, node: NodeSpec, java: NextJava) -> int:
    """Return the feature version of the Java of the next start.

    Raises UserError if the user of the node can change a file that counts, and NotObservableError without a file, and
    if the start can run one of several versions.
    """
    versions = {path: _version_of(commands, node, path) for path in java.paths or ("",)}
    if len(set(versions.values())) > 1:
        raise NotObservableError(
            f"The next start of node {node.name} runs "
            f"{' or '.join(f'Java {version} ({path})' for path, version in versions.items())}: {java.why}.",
            remedy=f"Set JAVA_HOME in the unit (`systemctl edit {service_of(node).unit}`), and nowhere else.",
        )
    return next(iter(versions.values()))


def _version_of(commands: HostCommands, node: NodeSpec, java: str) -> int:
    service = service_of(node)
    home = java.rpartition("/bin/")[0]
    places = [f"{home}/release", *([f"{home.removesuffix('/jre')}/release"] if home.endswith("/jre") else [])]
    for place in places if home else ():
        line = f'path=$(readlink -e {shlex.quote(place)}) && test -f "$path" && {{ {_CHAIN}; }}'
        done = commands.run(node, line)
        paths = parse_paths(done.out)
        if done.code != 0 or not paths or paths[-1].path != "/":
            continue
        if unsafe := [path.path for path in paths if can_change(path, service.user)]:
            raise UserError(
                f"The Java version of node {node.name} is unknown: {', '.join(unsafe)} on host {service.host} can be "
                f"changed by {service.user} or by every user.",
                remedy="Install Java in a folder that belongs to root, and remove write rights of group and others.",
            )
        match = _VERSION.search(commands.run(node, ["cat", paths[0].path]).out)
        if match is not None:
            return int(match[2] or 0) if match[1] == "1" else int(match[1])
    raise NotObservableError(
        f"The Java version of node {node.name} on host {service.host} is unknown: there is no {places[0]} that has it."
        if home
        else f"Host {service.host} has no Java for node {node.name}.",
        remedy="Install a Java runtime that has this file, such as a package of the distribution or of Temurin. If it "
        "is installed, set JAVA_HOME in the unit.",
    )
