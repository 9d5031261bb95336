"""Where the paths that a node's next start reads lead on its host: now, and after the link of the release is switched.

The shell of the SSH user walks along each path as the kernel does, with the folder of the other release in place of the
link. So a link to the link, and a folder that is a link in both releases, are read as they are. Nothing needs a right,
and the paths are in the input of the shell, not in its arguments.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple

from kafka_rollout.model.configs import provider_files
from kafka_rollout.model.file_access import FileAccess, Use
from kafka_rollout.model.host_state import (
    Absence,
    HostFacts,
    PlaceState,
    StartFileKind,
    StartPath,
    StartPlace,
)
from kafka_rollout.model.starts import KeyTab
from kafka_rollout.model.topology import NodeSpec, ServiceSpec
from kafka_rollout.model.unit_settings import BOUND_PATHS, CLOSED_PATHS, CREDENTIALS, parse_settings
from kafka_rollout.nodes.runtimes.hosts.absences import SHOWN, Prepared, absences_of, is_literal
from kafka_rollout.nodes.runtimes.hosts.class_folders import read_class_files
from kafka_rollout.nodes.runtimes.hosts.commands import (
    HostCommands,
    service_of,
    shown_with_errors,
    unusable,
)
from kafka_rollout.nodes.runtimes.hosts.inner_files import read_inner_files
from kafka_rollout.nodes.runtimes.hosts.package_paths import NamedPath, read_absent, read_barred, read_package_paths
from kafka_rollout.nodes.runtimes.hosts.unit_environment import put_in
from kafka_rollout.nodes.runtimes.hosts.user_access import WALK, Lookup, follow, read_access, read_unit_user, read_way
from kafka_rollout.nodes.runtimes.start_files import all_start_paths, paths_in
from kafka_rollout.releases.facts import Release

# Without one of these paths, systemd ends the start before its first program (226/NAMESPACE, 243/CREDENTIALS).
_SANDBOX = frozenset(
    {
        *("ReadWritePaths", "ReadOnlyPaths", *CLOSED_PATHS, *BOUND_PATHS, *CREDENTIALS, "RootDirectory"),
    }
)
_PROPERTIES = (
    "FragmentPath,DropInPaths,EnvironmentFiles,ExecCondition,ExecStartPre,ExecStart,ExecStartPost,ExecStop,"
    f"WorkingDirectory,{','.join(sorted({*_SANDBOX, *SHOWN}))}"
)
_FILES = frozenset({"FragmentPath", "DropInPaths", "EnvironmentFiles"})
_CONDITION = re.compile(r"(Condition|Assert)(Path|File|Directory)\w+")
_ENVIRONMENT_FILE = re.compile(r"(/\S+) \(ignore_errors=no\)")
_WRITES = re.compile(r"(?:append|file|truncate):(/.+)")
_OUTPUT = re.compile(r"\d*>>?\s*\S+")
_START_SCRIPT = re.compile(r"(/.*)/kafka-server-start(\.sh)?")
_RELATIVE_SCRIPT = re.compile(r"(?<![^\s'\"])((?:[\w.-]+/)+kafka-(?:server-start|run-class)(?:\.sh)?)(?![^\s'\";])")
_CONFIGURATION = re.compile(r"kafka-server-start(?:\.sh)?['\"]?(?:\s+-\S+)*\s+['\"]?([^\s'\"$-][^\s'\"$]*)")
_RESOLVES = re.compile(r"(?:^|[\s(`;&|])(?:readlink|realpath|cd|pwd\s+-P)\s")
_WITH_NAMES = (StartFileKind.JVM, StartFileKind.LOGGING, StartFileKind.AGENT, StartFileKind.NAMED)
"""Of files that can name others."""
_CONDITIONS = (StartFileKind.CONDITION, StartFileKind.BARRED)
_OF_KAFKA = ("org.apache.kafka.", "kafka.")
_FIRST = (StartFileKind.CONFIGURATION, StartFileKind.IDENTITY)
_NO_FOLDER = "/.kafka-rollout-no-release"
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
_AT_STOP = ("ExecStart", "ExecStop", "ExecStopPost")
"""Settings whose commands end after the process, and can remove its lock. Conditions come before all others."""
_PIECES = re.compile(r";|&&|\|\||\||\bthen\b|\belse\b")
_LOCKS = re.compile(r"(?:^|[\s('\"/])(?:rm|rmdir|unlink|touch|mkdir|flock|lockfile|mkfifo|ln|mv|cp|install|tee)\s")
_ASSIGNS = re.compile(r"\s*(?:(?:export|local|readonly|declare)\s+)*(\w+)=")
_YES = ("yes", "true", "on", "1")
_PRIVILEGED = re.compile(r"[-@:|]*[+!]")
_WORD = re.compile(r"""(?:[^\s"']|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|["'])+""")
_USES = {
    StartFileKind.CONFIGURATION: Use.READ,
    StartFileKind.JVM: Use.REACH,
    StartFileKind.UNIT: None,
    StartFileKind.PROGRAM: Use.EXECUTE,
    StartFileKind.CONDITION: None,
    StartFileKind.BARRED: None,
    StartFileKind.KEYS: Use.READ,
    StartFileKind.KEY_TAB: Use.READ,
    StartFileKind.PROVIDED: Use.READ,
    StartFileKind.PLANNED: Use.READ,
    StartFileKind.AGENT: Use.READ,
    StartFileKind.JAR: Use.READ,
    StartFileKind.LIBRARIES: Use.LIST,
    StartFileKind.LOGGING: Use.READ,
    StartFileKind.IDENTITY: Use.ENTER,
    StartFileKind.NAMED: Use.REACH,
    StartFileKind.INNER: Use.REACH,
}
"""How the user of the unit uses a path of each kind; None: systemd uses it, as root."""
_EACH = """\
above=$(readlink -f {above}); link=${{above%/}}/{name}; number=0
while IFS= read -r path; do walk "$path" "" ""; see; now=$at; same=.; echo "$number 0 $seen$same $at$way";
turn=0; for folder in {folders}; do turn=$((turn + 1)); walk "$path" "$link" "$folder"; see; same=.;
if test "$seen" = + && test "$at" != "$now" && test -f "$at" && test -f "$now"; then
cmp -s -- "$now" "$at"; case $? in 0) same==;; 1) same=!;; esac; fi;
echo "$number $turn $seen$same $at$way"; done; number=$((number + 1)); done
"""
_LINE = re.compile(r"(\d+) (\d+) ([+d?-])([.=!]) (/?[^\t]*)((?:\t[^\t]+)*)")


def read_start_paths(
    commands: HostCommands,
    node: NodeSpec,
    releases: Sequence[Release],
    *,
    config: Mapping[str, str],
    planned: Iterable[Mapping[str, str]] = (),
    environment: Sequence[str],
    facts: HostFacts,
    wrapper: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    kept: Sequence[str] = (),
    lines: Sequence[str] = (),
    key_tabs: Sequence[KeyTab] = (),
) -> tuple[StartPath | None, tuple[StartPath, ...], str]:
    """Return the link of the release, the paths, and why they are not all; empty if they are. Without releases, for the
    folder of any other one.

    `planned`: the configurations of the next starts, with the lines that the run changes; `config`: without them.
    `environment`: options in the unit's environment. `variables`: all of it, for the unit's commands. `wrapper`: lines
    of the scripts with which the unit starts Kafka's own, which can have changed since the process started. `kept`:
    options of the next start on each release. `lines`: of all commands of the unit, and of their scripts. `key_tabs`:
    of the JAAS file. A path that the process has open shows that no link is in a hidden folder above. Without a link,
    they are those of the package (package_paths.py).

    Raises RefusedError or TransientError if the host reports none.
    """
    service = service_of(node)
    of_file, privileged, problem = _names_of_unit_file(commands, node, variables or {})
    shown = commands.run(node, f"LC_ALL=C systemctl show --property={_PROPERTIES} {service.unit}").out.splitlines()
    named, directory = _names_of_unit(shown, privileged, variables or {})
    named += [
        one for one in of_file if one.kind is not StartFileKind.BARRED or not _is_lock(one.path, lines, facts.opened)
    ]
    named += [one for line in wrapper for one in _names_of_start(_OUTPUT.sub("", line))]
    named.append(_Named(StartFileKind.CONFIGURATION, service.configuration_file, is_of_unit=False))
    named += [
        _Named(
            StartFileKind.KEY_TAB,
            tab.path,
            is_of_unit=False,
            is_needed=tab.is_required,
            absence=Absence.FATAL if tab.is_required else Absence.DOUBTFUL,
        )
        for tab in key_tabs
    ]
    named += [_Named(*one) for one in all_start_paths(config, facts.arguments, environment)]
    provided = dict.fromkeys(path for one in planned for _, path in provider_files(one))
    named += [_Named(StartFileKind.PLANNED, path, is_of_unit=False, absence=Absence.FATAL) for path in provided]
    if service.package is None:
        logging = {one.path for one in named if one.kind is StartFileKind.LOGGING}
        files = {one.path: one.path in logging for one in named if one.kind in _WITH_NAMES}
        named += [
            _Named(StartFileKind.INNER, one.path, is_of_unit=False, is_needed=one.is_needed)
            for one in read_inner_files(commands, node, files, (*facts.arguments, *environment))
        ]
    class_files, unlisted = tuple[str, ...](), ""
    if service.package is None:
        class_files, unlisted = read_class_files(commands, node, facts.arguments)
        is_needed = not config.get("authorizer.class.name", _OF_KAFKA[0]).startswith(_OF_KAFKA)
        named += [_Named(StartFileKind.NAMED, one, is_of_unit=False, is_needed=is_needed) for one in class_files]
    prepared = Prepared.of(shown, lines)
    absences = _absences(named, directory, absences_of(config, kept), prepared)
    # A path has the first kind under which it is named.
    named.sort(key=lambda one: (one.kind not in _FIRST, one.kind is StartFileKind.INNER))
    wanted: dict[tuple[str, StartFileKind | None], _Named] = {}
    for one in named:
        if one.path and one.path.isprintable():
            key = one.path, one.kind if one.kind in _CONDITIONS else None  # beside every other kind
            first = wanted.setdefault(key, one)
            wanted[key] = first._replace(
                is_of_unit=first.is_of_unit or one.is_of_unit,
                is_needed=first.is_needed or one.is_needed,
                uses=first.all_uses | one.all_uses,
            )
    if service.package is not None:
        absolute = [
            (one, path if path.startswith("/") else f"{directory}/{path}")
            for (path, kind), one in wanted.items()
            if kind is not StartFileKind.BARRED
        ]
        package_paths, unowned = read_package_paths(
            commands, node, [NamedPath(one.kind, path, one.is_needed) for one, path in absolute], releases
        )
        named_here = {
            NamedPath(one.kind, path, one.is_needed): absences[one.path]
            for one, path in absolute
            if absences.get(one.path, Absence.HARMLESS) is not Absence.HARMLESS
        }
        barred = read_barred(commands, node, [path for path, kind in wanted if kind is StartFileKind.BARRED], releases)
        absent = read_absent(commands, node, named_here, releases)
        removed = _removed_paths(commands, node, absolute, prepared=prepared, absences=absences, releases=releases)
        return None, (*package_paths, *absent, *barred, *removed), problem or unowned
    asked = [service.symlink, *(path if path.startswith("/") else f"{directory}/{path}" for path, _ in wanted)]
    keys: list[Release | None] = [*releases] if releases else [None]
    read = follow_link(commands, node, asked, [_NO_FOLDER if key is None else service.folder(key) for key in keys])
    is_changed = read_unit_user(commands, node).is_changed
    uses = [
        one._replace(uses=frozenset()) if is_changed and _is_of_root(one, service) else one for one in wanted.values()
    ]
    places = _with_access(commands, node, read, uses)
    seen = frozenset(facts.opened)
    link = _start_path(StartFileKind.LIBRARIES, service.symlink, _places(0, keys, places, seen))
    link = replace(link, is_resolved=_resolves(service, (*wrapper, *lines)))
    paths = (
        replace(
            _start_path(one.kind, one.path, _places(number, keys, places, seen), linked=link.now.path),
            is_of_unit=one.is_of_unit,
            is_needed=one.is_needed,
            absence=absences.get(one.path, Absence.HARMLESS),
        )
        for number, one in enumerate(wanted.values(), 1)
    )
    found = _with_removed(paths, prepared)
    return (
        link,
        tuple(one for one in found if one.kind is not StartFileKind.INNER or _is_moved(one)),
        problem or unlisted,
    )


def _is_of_root(path: _Named, service: ServiceSpec) -> bool:
    """Return whether a unit that changes the user itself can use a path before."""
    is_wrapper = path.kind is StartFileKind.PROGRAM and not path.path.startswith(f"{service.symlink}/")
    return path.kind is StartFileKind.UNIT or is_wrapper


def _is_moved(path: StartPath) -> bool:
    """Return whether a switch or a stop does something to a path."""
    return bool(path.removed_by) or any(place.path != path.now.path for place in path.after.values())


def _with_removed(paths: Iterable[StartPath], prepared: Prepared) -> Iterator[StartPath]:
    for one in paths:
        setting = prepared.removed_by(
            one.path,
            one.now.path,
            by_systemd=_USES[one.kind] is None,
            has_data=one.kind is StartFileKind.IDENTITY,
        )
        yield replace(one, removed_by=setting)


def _removed_paths(
    commands: HostCommands,
    node: NodeSpec,
    absolute: Sequence[tuple[_Named, str]],
    *,
    prepared: Prepared,
    absences: Mapping[str, Absence],
    releases: Sequence[Release],
) -> tuple[StartPath, ...]:
    """Return the paths that a stop removes, of a node without a link."""
    seen = follow(commands, node, [path for _, path in absolute]) if prepared.removed else {}
    places = {path: StartPlace(path=one.place, state=one.state) for path, one in seen.items()}
    found = (
        StartPath(
            kind=one.kind,
            path=one.path,
            now=places[path],
            after=dict.fromkeys(releases, places[path]),
            is_needed=one.is_needed,
            absence=absences.get(one.path, Absence.HARMLESS),
        )
        for one, path in absolute
        if path in places
    )
    return tuple(one for one in _with_removed(found, prepared) if one.removed_by)


def _resolves(service: ServiceSpec, lines: Sequence[str]) -> bool:
    """Return whether lines name the link and resolve it, or a variable, and name no folder of a release."""
    link = re.compile(rf"(?<![\w./-]){re.escape(service.symlink)}(?![\w.-])")
    folder = re.compile(re.escape(service.installation).replace(re.escape("{release}"), r"\d+\.\d+"))
    resolved = [line for line in lines if _RESOLVES.search(line) and (link.search(line) or "$" in line)]
    return bool(resolved) and any(map(link.search, lines)) and not any(map(folder.search, lines))


def follow_link(
    commands: HostCommands, node: NodeSpec, paths: Sequence[str], folders: Sequence[str]
) -> dict[tuple[int, int], tuple[StartPlace, tuple[str, ...]]]:
    """Return where absolute paths lead, by number of the path and of the folder to which the link of the release leads
    then, from 1 on; 0: as it leads now. With each place, the folders in which a name is looked up.

    Raises RefusedError or TransientError if the host reports none.
    """
    service = service_of(node)
    above, _, name = service.symlink.rpartition("/")
    line = WALK + _EACH.format(
        above=shlex.quote(above or "/"), name=shlex.quote(name), folders=" ".join(map(shlex.quote, folders))
    )
    done = commands.shell.run(service.host, line, text="".join(f"{one}\n" for one in paths))
    read = {key: (place, way) for key, place, way in _parse(done.out)}
    if len(read) != len(paths) * (len(folders) + 1):
        raise unusable(
            done,
            f"Host {service.host} does not report where the paths of node {node.name} lead: {done.problem}.",
            remedy="Log in to the host as the SSH user, and check that its shell is a POSIX shell.",
        )
    return read


class _Named(NamedTuple):
    """A path that a start reads, as in StartPath."""

    kind: StartFileKind
    path: str
    is_of_unit: bool = True
    is_needed: bool = True
    uses: frozenset[Use] | None = None
    """None: that of its kind."""
    absence: Absence = Absence.HARMLESS

    @property
    def all_uses(self) -> frozenset[Use]:
        use = _USES[self.kind]
        return self.uses if self.uses is not None else frozenset(() if use is None else (use,))


def _absences(
    named: Sequence[_Named], directory: str, of_options: Iterator[tuple[str, Absence]], prepared: Prepared
) -> dict[str, Absence]:
    """Return what each path does to the start if it is missing. `directory`: in which the unit starts."""
    found: dict[str, Absence] = {}
    order = [*Absence]
    for path, absence in (*((one.path, one.absence) for one in named), *of_options):
        whole = path if path.startswith("/") else f"{directory}/{path}"
        # A script can start Java in another folder.
        is_known = is_literal(path) and (path.startswith("/") or directory) and not prepared.makes(whole)
        if is_known and order.index(absence) > order.index(found.get(path, Absence.HARMLESS)):
            found[path] = absence if path.startswith("/") else Absence.DOUBTFUL
    return found


def _names_of_unit_file(
    commands: HostCommands, node: NodeSpec, variables: Mapping[str, str]
) -> tuple[list[_Named], frozenset[str] | None, str]:
    """Return what only the file of the unit and its drop-ins show: conditions, assertions, files that systemd opens.

    Also return the paths in commands that systemd runs as root, None if they are unknown; then why all that is unknown.
    `systemctl show` has no text of a condition. A `!` before its path means that the path must not exist, `|` that one
    of several must hold.
    """
    service = service_of(node)
    done = commands.run(node, ["systemctl", "cat", service.unit])
    if done.code != 0:
        return [], None, f"`systemctl cat {service.unit}` on host {service.host} failed: {done.problem}."
    conditions: list[str] = []
    barred: list[str] = []
    others: dict[str, list[str]] = {}
    for setting in parse_settings(done.out):
        name, value = setting.name, setting.value
        if name.startswith(("Condition", "Assert")):
            prefix = name[: len("Assert")] if name.startswith("Assert") else "Condition"
            if not value:
                conditions = [one for one in conditions if not one.startswith(prefix)]
                barred = [one for one in barred if not one.startswith(prefix)]
            elif name == f"{prefix}PathExists" and value.startswith("!"):
                barred.append(f"{prefix}={value[1:].strip()}")
            elif _CONDITION.fullmatch(name) or value.startswith("|"):  # one of several is enough, of whatever type
                conditions.append(f"{prefix}={value}")
        else:
            others[name] = [*others.get(name, ()), value] if value else []
    fatal = Absence.FATAL
    found = [_Named(StartFileKind.CONDITION, path, absence=fatal) for path in _paths_of_conditions(conditions)]
    executed = [value for name in _AT_STOP for value in others.get(name, ())]
    found += [
        _Named(StartFileKind.BARRED, path)
        for path in _paths_of_conditions(barred)
        if not any(_changes(piece, _whole(path)) for text in executed for piece in _PIECES.split(text))
    ]
    for name in ("StandardOutput", "StandardError", "PIDFile"):
        for value in others.get(name, [])[-1:]:
            written = _WRITES.fullmatch(value) or re.fullmatch(r"(/.+)", value)
            if written and "%" not in value:
                absence = Absence.HARMLESS if name == "PIDFile" else fatal
                found.append(_Named(StartFileKind.CONDITION, posixpath.dirname(written[1]), absence=absence))
    found += [
        _Named(StartFileKind.UNIT, value.removeprefix("file:"), absence=fatal)
        for value in others.get("StandardInput", [])[-1:]
        if value.startswith("file:/")
    ]
    as_root = {"ExecStartPre", "ExecStartPost"} if others.get("PermissionsStartOnly", ["no"])[-1] in _YES else set()
    commands_as_root = [
        command
        for name, values in others.items()
        for command in (one for value in values if name.startswith("Exec") for one in _commands_in(value))
        if name in as_root or _PRIVILEGED.match(command)
    ]
    texts = (put_in(text.lstrip("-@:|+!"), variables) for text in commands_as_root)
    return found, frozenset(path for text in texts for path in paths_in(text)), ""


def _commands_in(value: str) -> Iterator[str]:
    """Yield the commands of a setting, which a word `;` separates (systemd.service(5))."""
    begin = 0
    for word in _WORD.finditer(value):
        if word[0] == ";":
            yield value[begin : word.start()].strip()
            begin = word.end()
    yield value[begin:].strip()


def _is_lock(path: str, lines: Sequence[str], opened: Sequence[str]) -> bool:
    """Return whether the start itself can make a path, and remove it at its end. `lines`: of its scripts, which can
    name the folder by a variable. `opened`: by the process."""
    pieces = [piece for line in lines for piece in _PIECES.split(line)]
    name = rf"/{re.escape(posixpath.basename(path))}(?![\w./-])"
    variables = [match[1] for piece in pieces if re.search(name, piece) and (match := _ASSIGNS.match(piece))]
    names = "|".join([name, *(rf"\$\{{?{variable}\b" for variable in variables)])
    return path in opened or any(_changes(piece, names) for piece in pieces)


def _whole(path: str) -> str:
    """Return the pattern of a path that is not a part of another one."""
    return rf"(?<![\w./-]){re.escape(path)}(?![\w./-])"


def _changes(command: str, names: str) -> bool:
    """Return whether a command makes or removes what a pattern names, and does not only ask for it."""
    is_named = re.search(names, command) is not None
    return is_named and (_LOCKS.search(command) is not None or re.search(rf">\s*\S*(?:{names})", command) is not None)


def paths_of_root(commands: HostCommands, node: NodeSpec, variables: Mapping[str, str]) -> frozenset[str] | None:
    """Return the paths in commands of the unit that systemd runs as root; None if they are unknown."""
    return _names_of_unit_file(commands, node, variables)[1]


def _paths_of_conditions(conditions: Sequence[str]) -> Iterator[str]:
    values = [tuple(one.split("=", 1)) for one in conditions]
    for prefix, value in values:
        is_one_of_several = (
            value.startswith("|") and sum(other.startswith("|") for kind, other in values if kind == prefix) > 1
        )
        path = value.lstrip("|").strip()
        if path.startswith("/") and not is_one_of_several and not re.search(r"[%*?\[]", path):
            yield path.rstrip("/") or "/"


def _names_of_unit(
    shown: Sequence[str], privileged: frozenset[str] | None, variables: Mapping[str, str]
) -> tuple[list[_Named], str]:
    """Return what the unit itself names, and the folder in which it starts. `shown`: properties of it. `privileged`:
    paths that root executes; None: those of all commands but ExecStart can be."""
    found: list[_Named] = []
    relative: list[str] = []
    directory = ""
    fatal, harmless = Absence.FATAL, Absence.HARMLESS
    for name, _, value in (line.partition("=") for line in shown):
        if name in _FILES:
            words = re.sub(r"\(ignore_errors=\w+\)", "", value).split()
            must_exist = {match[1] for match in _ENVIRONMENT_FILE.finditer(value)}
            found += [  # systemd reads the files in the folder of a pattern
                _Named(StartFileKind.UNIT, word, absence=fatal if word in must_exist else harmless)
                if is_literal(word)
                else _Named(StartFileKind.UNIT, re.split(r"/[^/]*[*?\[]", word)[0] or "/")
                for word in words
                if word.startswith("/")
            ]
        elif name == "WorkingDirectory" and paths_in(value.lstrip("!-")):
            directory = value.lstrip("!-").rstrip("/")
            absence = harmless if value[:1] in ("!", "-") else fatal
            found.append(_Named(StartFileKind.UNIT, directory, uses=frozenset({Use.ENTER}), absence=absence))
        elif name in _SANDBOX:  # `-` before a path: it can be missing; the source of a mount is before the first colon
            words = [word.rpartition(":")[2] if name in CREDENTIALS else word for word in value.split()]
            paths = [word.lstrip("+").partition(":")[0].rstrip("/") for word in words if not word.startswith("-")]
            found += [
                _Named(StartFileKind.UNIT, path, absence=fatal)
                for path in paths
                if path.startswith("/") and path != "/"
            ]
        for command, ignores_errors in shown_with_errors(value) if name.startswith("Exec") else ():
            is_needed = not ignores_errors and name != "ExecStop"  # without its program, systemd stops with SIGTERM
            for one in _names_of_command(put_in(command, variables)):
                is_of_root = one.path in privileged if privileged is not None else name != "ExecStart"
                uses = frozenset() if is_of_root else one.uses
                found.append(
                    one._replace(is_needed=is_needed, uses=uses, absence=one.absence if is_needed else harmless)
                )
            if name == "ExecStart":
                relative += relative_start_scripts(command)
    found += [_Named(StartFileKind.PROGRAM, posixpath.normpath(f"{directory}/{one}")) for one in relative if directory]
    return found, directory


def relative_start_scripts(command: str) -> list[str]:
    """Return the start scripts of a command below the folder in which the unit starts, unless it leaves this folder."""
    return [] if re.search(r"\b(cd|pushd)\s", command) else _RELATIVE_SCRIPT.findall(command)


def _names_of_command(text: str) -> Iterator[_Named]:
    read = _OUTPUT.sub("", text)
    configuration = _CONFIGURATION.search(read)
    if configuration is not None:
        yield _Named(StartFileKind.CONFIGURATION, configuration[1], absence=Absence.FATAL)
    script = _script_of_shell(read)
    first = read.split()[:1]
    for path in paths_in(read):
        is_program = [path] == first or path == script or "/bin/" in path
        uses = frozenset({Use.READ}) if path == script else None
        # The others can be names of what a command makes, removes or only asks for.
        absence = Absence.FATAL if [path] == first or path == script else Absence.HARMLESS
        kind = StartFileKind.PROGRAM if is_program else StartFileKind.NAMED
        yield _Named(kind, path, uses=uses, absence=absence)
        if (started := _START_SCRIPT.fullmatch(path)) is not None:
            # It executes the other script in its own folder.
            yield _Named(StartFileKind.PROGRAM, f"{started[1]}/kafka-run-class{started[2]}", is_of_unit=False)


def _names_of_start(line: str) -> Iterator[_Named]:
    """Yield the configuration and the start scripts that a line of a script names; it can be one of several."""
    configuration = _CONFIGURATION.search(line)
    if configuration is not None and configuration[1].startswith("/"):
        yield _Named(StartFileKind.CONFIGURATION, configuration[1], is_needed=False, uses=frozenset())
    for path in paths_in(line):
        if _START_SCRIPT.fullmatch(path):
            yield _Named(StartFileKind.PROGRAM, path, is_needed=False, uses=frozenset())


def _script_of_shell(text: str) -> str:
    """Return the file that a shell as the program of a command reads; empty for another program, and for `-c`."""
    program, *words = text.split() or [""]
    if posixpath.basename(program) not in _SHELLS:
        return ""
    options = list(takewhile(lambda word: word.startswith("-"), words))
    is_line = any("c" in option for option in options if not option.startswith("--"))
    return "" if is_line else "".join(words[len(options) : len(options) + 1]).strip("'\"")


def _parse(text: str) -> Iterator[tuple[tuple[int, int], StartPlace, tuple[str, ...]]]:
    """Yield number and turn, the place, and each folder in which a name was looked up."""
    for match in map(_LINE.fullmatch, text.splitlines()):
        if match:
            same = {"=": True, "!": False}.get(match[4])
            place = StartPlace(path=match[5] or "/", state=PlaceState(match[3]), is_same=same)
            yield (int(match[1]), int(match[2])), place, read_way(match[6])


def _with_access(
    commands: HostCommands,
    node: NodeSpec,
    places: Mapping[tuple[int, int], tuple[StartPlace, tuple[str, ...]]],
    named: Sequence[_Named],
) -> dict[tuple[int, int], StartPlace]:
    """Return the places with what the user of the unit can do there. `named`: the path of each number from 1 on."""
    lookups: dict[tuple[tuple[int, int], Use], Lookup] = {}
    for (number, turn), (place, way) in places.items():
        for use in sorted(named[number - 1].all_uses) if number and place.state is not PlaceState.MISSING else ():
            is_list = use is Use.READ and place.state is PlaceState.FOLDER
            lookups[(number, turn), use] = Lookup(way, place.path, Use.LIST if is_list else use)
    found: dict[tuple[int, int], FileAccess] = {}
    for (key, _), access in zip(lookups, read_access(commands, node, list(lookups.values())), strict=True):
        if key not in found or (access.refused and not found[key].refused):
            found[key] = access
    return {key: replace(place, access=found.get(key, place.access)) for key, (place, _) in places.items()}


def _places(
    number: int,
    keys: Sequence[Release | None],
    places: Mapping[tuple[int, int], StartPlace],
    opened: Collection[str],
) -> tuple[StartPlace, dict[Release | None, StartPlace]]:
    """Return the places of a path: now, and by release."""

    def place(turn: int) -> StartPlace:
        found = places[number, turn]
        if found.state is not PlaceState.HIDDEN:
            return found
        is_open = any(one == found.path or one.startswith(f"{found.path}/") for one in opened)
        if not is_open:
            return found
        return replace(found, state=PlaceState.FOLDER, access=replace(found.access, unknown=""))

    return place(0), {key: place(turn) for turn, key in enumerate(keys, 1)}


def _start_path(
    kind: StartFileKind,
    path: str,
    places: tuple[StartPlace, dict[Release | None, StartPlace]],
    *,
    linked: str = "",
) -> StartPath:
    """`linked`: the place of the link."""
    now, after = places
    # A link in the release's folder that leads out of it can be in that of another release too.
    known = {
        key: one
        for key, one in after.items()
        if key is not None or one.path == now.path or not linked or now.path.startswith(f"{linked}/")
    }
    return StartPath(kind=kind, path=path, now=now, after=known)
