"""What a node's next start writes, and whether the user of its unit can: in the folder of each release, too.

kafka-run-class.sh writes its logs to `logs` beside its own folder unless LOG_DIR is set, so to the folder of the
release, which the user of the unit often cannot change. Its log directories can be closed to the user since the node
started. A JVM that cannot open its log of the garbage collection, and a
shell that cannot open the file of an output, end before Kafka starts. Nothing needs a right.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from kafka_rollout.model.file_access import FileAccess, UnitUser, Use
from kafka_rollout.model.host_state import PlaceState, StartPlace, StartWrite
from kafka_rollout.model.jvm_options import NextOptions, shown_option
from kafka_rollout.model.starts import MAIN_CLASS, properties_of
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.model.unit_settings import FOLDERS_OF_USER, MADE_FOLDERS, OF_HOMES, OF_WRITES
from kafka_rollout.nodes.runtimes.hosts.absences import bound
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of, shown_commands
from kafka_rollout.nodes.runtimes.hosts.option_sources import ScriptsOfStart, UnitOptions
from kafka_rollout.nodes.runtimes.hosts.overrides import is_of_shell
from kafka_rollout.nodes.runtimes.hosts.shell_lines import OUTPUT, ReplacedVariables, assignments
from kafka_rollout.nodes.runtimes.hosts.start_paths import follow_link, paths_of_root, relative_start_scripts
from kafka_rollout.nodes.runtimes.hosts.unit_environment import put_in
from kafka_rollout.nodes.runtimes.hosts.user_access import Followed, Lookup, read_access, read_unit_user
from kafka_rollout.nodes.runtimes.start_files import paths_in
from kafka_rollout.releases.facts import Release

_LOG_DIR = "-Dkafka.logs.dir="
_GC_LOG = re.compile(r"-Xlog:[^:]*:(?:file=)?\"?(/[^\":]+)|-Xloggc:(/[^:]+)")
_START_SCRIPT = re.compile(r"(?:^|[\s'\"])(/\S*)/kafka-server-start(?:\.sh)?(?=$|[\s'\"])")
_DEFAULT = re.compile(r"\$\{LOG_DIR:?[-=]([^}]+)\}")
_STARTS = re.compile(r"kafka-(?:server-start|run-class)|^\s*exec\s+\d*&?>")
_PREPARES = re.compile(r"(?:^|[\s/])(?:mkdir|install|chown|chmod|setfacl|ln)\s")
_DIRECTORIES = {**FOLDERS_OF_USER, "RuntimeDirectory": MADE_FOLDERS["RuntimeDirectory"]}
_SANDBOX = (*OF_WRITES, *OF_HOMES, "BindPaths", "TemporaryFileSystem")
_TMP = ("/tmp", "/var/tmp")  # noqa: S108 - of the unit
_USR = ("/usr", "/boot", "/efi")
_PROTECTED = {
    ("ProtectSystem", "yes"): _USR,
    ("ProtectSystem", "full"): (*_USR, "/etc"),
    ("ProtectSystem", "strict"): ("/",),
    ("ProtectHome", "read-only"): ("/home", "/root", "/run/user"),
}
"""Setting and value → the folders that the process cannot write."""


class _Write(NamedTuple):
    """A file or a folder that a start writes."""

    path: str
    is_needed: bool = True
    """The node does not start without it."""
    is_log: bool = False
    """It is in the folder that the scripts make, or this folder."""
    is_data: bool = False
    """It is a log directory, which Kafka makes with the folders above."""
    is_of_shell: bool = False
    """A shell opens it before Kafka."""


def read_start_writes(
    commands: HostCommands,
    node: NodeSpec,
    releases: Sequence[Release],
    *,
    process: Sequence[str],
    unit: UnitOptions,
    start: ScriptsOfStart,
    brought: Collection[Release],
    login: str,
    directories: Sequence[str] = (),
) -> tuple[StartWrite, ...]:
    """Return what a start on each release writes; for packages, the log directories alone. `process`: the command line
    of the node's. `brought`: the releases that a run unpacks as the SSH user `login`. `directories`: of the logs.

    Raises RefusedError or TransientError if the host does not report where the paths lead.
    """
    service = service_of(node)
    sandbox = read_sandbox(commands, node, unit)
    data = [_Write(path, is_data=True) for path in directories if path.startswith("/")]
    wanted = [
        (release, write)
        for release in releases
        for write in (*data, *(() if service.package else _writes(node, release, process, unit, start)))
        if write.path.isprintable() and not sandbox.prepares(posixpath.normpath(write.path))
    ]
    if not wanted:
        return ()
    folders = [one for one in (*sandbox.read_only, *sandbox.writable) if one.isprintable()]
    switches = [] if service.package else [*releases]
    every = [service.symlink or "/", *folders, *(one for _, write in wanted for one in ways(write.path))]
    paths = list(dict.fromkeys(every))
    followed = follow_link(commands, node, paths, [service.folder(release) for release in switches])
    of_path = {path: number for number, path in enumerate(paths)}

    def lead(path: str, release: Release) -> tuple[StartPlace, tuple[str, ...]]:
        return followed[of_path[path], switches.index(release) + 1 if switches else 0]

    lookups: list[Lookup] = []
    for release, write in wanted:
        found_at = nearest(write.path, {path: lead(path, release)[0] for path in ways(write.path)})
        place, way = lead(found_at, release)
        lookups.append(Lookup(way, place.path, Use.WRITE if place.state is PlaceState.FILE else Use.CREATE))
    user = read_unit_user(commands, node)
    found = []
    for (release, write), asked in zip(wanted, read_access(commands, node, lookups), strict=True):
        folder, place = lead(service.symlink or "/", release)[0].path, lead(write.path, release)[0]
        parent = lead(posixpath.dirname(write.path), release)[0]
        moves = bool(switches) and is_below(place.path, folder)
        if user.is_changed and write.is_of_shell:
            continue  # it can be root that opens it
        if sandbox.prepares(place.path):
            continue  # through a link, as a log directory that leads to that of StateDirectory=
        forms = (posixpath.normpath(write.path), place.path)
        if setting := sandbox.why_read_only(forms, {one: lead(one, release)[0].path for one in folders}):
            refused = f"cannot write there: it is read-only for the unit ({setting})"
            access = FileAccess(user=user.name, refused=refused, place=setting)
        elif moves and release in brought:
            access = _access_after_unpacking(user, folder, login)
        elif parent.state is PlaceState.HIDDEN or (asked.refused and place.state is PlaceState.HIDDEN):
            access = FileAccess(user=user.name, unknown=f"the SSH user cannot enter the folders above {place.path}")
        elif not (asked.refused or write.is_log or write.is_data) and parent.state is PlaceState.MISSING:
            refused = f"cannot create a file in {parent.path}, which does not exist"
            access = FileAccess(user=user.name, refused=refused, place=parent.path)
        else:
            access = asked
        found.append(
            StartWrite(
                release=release,
                path=write.path,
                place=place.path,
                access=access,
                moves=moves,
                is_log=write.is_log,
                is_needed=write.is_needed,
            )
        )
    return tuple(found)


def _access_after_unpacking(user: UnitUser, folder: str, login: str) -> FileAccess:
    if user.unknown or user.passes_modes or user.name == login:
        return FileAccess(user=user.name, unknown=user.unknown)
    refused = f"cannot create files in {folder}, which the run unpacks as user {login or 'of SSH'} with mode 0755"
    return FileAccess(user=user.name, refused=refused, place=folder)


def ways(path: str) -> list[str]:
    """Return a path and each folder above, as the path names it."""
    return [path, *map(str, PurePosixPath(path).parents)]


def nearest(path: str, places: Mapping[str, StartPlace | Followed]) -> str:
    """Return the path, or the nearest folder above that the SSH user sees."""
    seen = (PlaceState.FILE, PlaceState.FOLDER)
    return next((one for one in ways(path) if one in places and places[one].state in seen), "/")


def is_below(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


class UnitSandbox(NamedTuple):
    """What the unit makes of folders before the start (systemd.exec(5))."""

    prepared: list[str]
    """Folders that systemd or a command of root before the start makes, mounts or gives to the user."""
    read_only: dict[str, str]
    """Folder that the process cannot write → the setting."""
    writable: list[str]
    """Folders below them that it can."""
    private: tuple[str, ...] = ()
    """Folders in whose place systemd makes empty ones on their file systems."""
    mounted: Mapping[str, str] = MappingProxyType({})
    """Folder in whose place the unit has another one, on any file system → the setting."""
    is_disconnected: bool = False
    """Those of `private` are on a file system of their own."""

    def prepares(self, path: str) -> bool:
        return any(is_below(path, folder) for folder in self.prepared)

    def is_private(self, path: str) -> bool:
        return path in self.private

    def is_below_private(self, path: str) -> bool:
        return any(is_below(path, folder) and path != folder for folder in self.private)

    def why_mounted(self, path: str) -> str:
        """Return the setting by which only the unit sees what is there; empty without one."""
        return next((setting for folder, setting in self.mounted.items() if is_below(path, folder)), "")

    def why_read_only(self, places: Collection[str], resolved: Mapping[str, str]) -> str:
        """Return the setting that forbids writing to a file or folder, of which each of `places` is a path; empty
        without one. `resolved`: folder → the same without links."""

        def depth(folder: str) -> int:
            forms = (folder, resolved.get(folder, folder))
            return max((len(one) for one in forms for place in places if is_below(place, one)), default=-1)

        deepest = max(self.read_only, key=depth, default="")
        is_free = any(depth(folder) >= depth(deepest) for folder in self.writable)
        return "" if not deepest or depth(deepest) < 0 or is_free else self.read_only[deepest]


def read_sandbox(commands: HostCommands, node: NodeSpec, unit: UnitOptions) -> UnitSandbox:
    """Return what the unit makes of folders before its start."""
    names = ",".join((*_DIRECTORIES, *_SANDBOX))
    shown = commands.run(node, f"LC_ALL=C systemctl show --property={names} {service_of(node).unit}").out
    prepared: list[str] = []
    read_only: dict[str, str] = {}
    writable = ["/dev", "/proc", "/sys"]
    private, is_disconnected = tuple[str, ...](), False
    mounted: dict[str, str] = {}
    for name, _, value in (line.partition("=") for line in shown.splitlines()):
        paths = [word.lstrip("-+") for word in value.split() if word.lstrip("-+").startswith("/")]
        if name in _DIRECTORIES:
            prepared += [f"{_DIRECTORIES[name]}/{word.partition(':')[0]}" for word in value.split()]
        elif name == "BindPaths":
            prepared += map(bound, paths)
            mounted |= {bound(path): f"{name}={path}" for path in paths}
        elif name == "TemporaryFileSystem":
            mounted |= {path.partition(":")[0]: f"{name}={path}" for path in paths}
        elif name in ("ProtectSystem", "ProtectHome"):
            read_only |= dict.fromkeys(_PROTECTED.get((name, value), ()), f"{name}={value}")
        elif name == "ReadOnlyPaths":
            read_only |= {path: f"ReadOnlyPaths={path}" for path in paths}
        elif name == "ReadWritePaths":
            writable += paths
        elif name == "PrivateTmp" and value not in ("", "no"):
            private, is_disconnected = _TMP, value == "disconnected"
            writable += _TMP
    prepares = [command for command in _commands(unit, "ExecStartPre=") if _PREPARES.search(command)]
    of_root = (paths_of_root(commands, node, unit.variables) if prepares else None) or ()
    prepared += [path for command in prepares for path in paths_in(command) if path in of_root and "bin/" not in path]
    return UnitSandbox(prepared, read_only, writable, private, mounted, is_disconnected)


def _commands(unit: UnitOptions, setting: str) -> list[str]:
    """Return the commands of the unit, with the values of its variables."""
    shown = (text for text in unit.commands if text.startswith(setting))
    return [put_in(command, unit.variables) for text in shown for command in shown_commands(text)]


def _writes(
    node: NodeSpec, release: Release, process: Sequence[str], unit: UnitOptions, start: ScriptsOfStart
) -> Iterator[_Write]:
    own = process[: process.index(MAIN_CLASS)] if MAIN_CLASS in process else process
    options = start.options.get(release, NextOptions())
    lost = {one.option for one in (*options.lost, *options.gone)}
    of_process = next((word.removeprefix(_LOG_DIR) for word in own if word.startswith(_LOG_DIR)), "")
    wrapper = start.wrapper_lines(unit.variables)
    folder = _log_folder(release, own, unit, start, wrapper)
    if node.service and any(map(relative_start_scripts, _commands(unit, "ExecStart="))):
        # The scripts then name the folder of the running release itself.
        of_release = re.escape(node.service.installation).replace(re.escape("{release}"), r"\d+\.\d+\.\d+")
        folder = re.sub(rf"^{of_release}(?=/)", node.service.symlink, folder)
    starts = [line for line in wrapper if _STARTS.search(line)]
    starts += [command for command in _commands(unit, "ExecStart=") if is_of_shell(command)]
    has_gc_log = _has_gc_log(unit)
    if folder:
        log_file = node.service.log_file if node.service else None
        is_needed = log_file is not None and is_below(log_file, posixpath.normpath(folder))
        yield _Write(folder, is_needed=is_needed or (not own and has_gc_log), is_log=True)
    for word in own:
        if (path := _gc_log(word)) and has_gc_log:
            if of_process and is_below(path, of_process):
                yield from [_Write(folder + path.removeprefix(of_process), is_log=True)] if folder else []
            elif shown_option(word) not in lost:
                yield _Write(path)
    yield from (_Write(path) for word in options.environment if (path := _gc_log(word)))
    kept = (*(word for word in own if shown_option(word) not in lost), *options.environment)
    if (temporary := properties_of(kept).get("java.io.tmpdir", "")).startswith("/"):
        yield _Write(temporary)
    yield from (
        _Write(path, is_of_shell=True)
        for line in starts
        for path in OUTPUT.findall(line)
        if not path.startswith(("/dev/", "/proc/"))
    )


def _gc_log(word: str) -> str:
    match = _GC_LOG.match(word)
    return (match[1] or match[2]) if match else ""


def _has_gc_log(unit: UnitOptions) -> bool:
    """Return whether the scripts let the JVM write the log of the garbage collection to LOG_DIR."""
    return not unit.variables.get("KAFKA_GC_LOG_OPTS") and "-loggc" in unit.variables.get("EXTRA_ARGS", "-loggc")


def _log_folder(
    release: Release, process: Sequence[str], unit: UnitOptions, start: ScriptsOfStart, wrapper: Sequence[str]
) -> str:
    """Return LOG_DIR of a start on the release; empty if Kafka's scripts do not run, and if it is not known.

    What a script outside of the release or the environment sets counts more than the default of the scripts, also if it
    was changed since the process started.
    """
    scripts = [text for text in start.scripts.get(release, ()) if text not in start.wrappers]
    of_scripts = [
        value
        for text in scripts
        for line in text.lines
        for name, value in assignments(line)
        if name == "LOG_DIR" and not text.path.startswith("unit ")
    ]
    of_wrapper = [value for line in wrapper for name, value in assignments(line) if name == "LOG_DIR"]
    of_unit = [unit.variables.get("LOG_DIR", "")]
    # A script that asks for the variable sets only what is not set.
    asks = of_unit[0] != "" and ReplacedVariables.of([wrapper]).is_replaced("LOG_DIR") is False
    for value in (*(() if asks else of_wrapper[::-1]), *of_unit, *of_scripts):
        default = _DEFAULT.search(value)
        plain = (default[1] if default else value).strip("\"'").rstrip("/")
        if plain.startswith("/") and "$" not in plain:
            return plain
    word = next((one for one in process if one.startswith(_LOG_DIR)), "")
    options = start.options.get(release, NextOptions())
    if word and shown_option(word) not in {one.option for one in (*options.lost, *options.gone)}:
        return word.removeprefix(_LOG_DIR) if word.startswith(f"{_LOG_DIR}/") else ""
    # The default, `$base_dir/logs`, if a start of now or the scripts of the release show that they run.
    if not word and (process or not of_scripts):
        return ""
    lines = (*_commands(unit, "ExecStart="), *wrapper)
    folders = [match[1] for line in lines for match in _START_SCRIPT.finditer(line)]
    return f"{folders[0]}/../logs" if folders else ""
