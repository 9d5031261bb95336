"""Which Java the next start of a unit runs: as kafka-run-class.sh finds it, and not as the last start has found it.

It starts $JAVA_HOME/bin/java, and without JAVA_HOME `java` in PATH. The unit's environment can set both, and so can a
script of the start. The link in PATH (/etc/alternatives) can have been changed since the process started.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_rollout.base.errors import NotObservableError, TransientError
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, rights_of, service_of
from kafka_rollout.nodes.runtimes.hosts.open_files import WHY_HIDDEN, why_hidden
from kafka_rollout.nodes.runtimes.hosts.option_sources import ScriptsOfStart, UnitOptions
from kafka_rollout.nodes.runtimes.hosts.shell_lines import assignments, set_always
from kafka_rollout.nodes.runtimes.hosts.start_environment import is_profile, read_profiles
from kafka_rollout.nodes.runtimes.hosts.text_files import TextFile

_DELETED = " (deleted)"  # the end of /proc/PID/exe
_SYSTEMD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # without PATH in a unit
_OF_KAFKA = ("java", "$JAVA_HOME/bin/java", "${JAVA_HOME}/bin/java")  # JAVA= in kafka-run-class.sh
_DEFAULT = re.compile(r"\$\{JAVA_HOME:?-([^}]*)\}")
_LITERAL = re.compile(r"/[^$`*?\[\]{}~]*")
_ASKS = re.compile(r"-z\s.*JAVA_HOME|\$\{JAVA_HOME:?=")
_SEARCH = re.compile(r"(?:(?:/[^:$`*?\[\]{}~]*|\$PATH|\$\{PATH\}|\$JAVA_HOME/bin|\$\{JAVA_HOME\}/bin)(?::|$))+")
# It prints the folder of the Java in PATH.
_FINDS = re.compile(
    r"JAVA_HOME=[\"']?(?:\$\(|`)(?=.*java)(?:\b(?:dirname|readlink|realpath|which|command|type|sed|java)\b|/usr/bin/java|"
    r"\s-[a-zA-Z]+|[\s$()`\"'|]|s([:/|,@#])[\w./\\$]*\1\1)+\s*(?:;|$|&&|\bexport\b)"
)
_UNREAD = "not all scripts of its start can be read"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextJava:
    """The Java of the next start of a node. Paths are without links."""

    paths: tuple[str, ...]
    """More than one if it is not known which of them the start runs; empty without a Java."""
    of_process: str = ""
    """That of the running process; empty without one."""
    why: str = ""
    """Why it is not known, the end of a sentence."""

    @property
    def has_changed(self) -> bool:
        return bool(self.of_process and self.paths) and self.of_process not in self.paths


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """What the scripts of a start do with JAVA_HOME and PATH."""

    homes: tuple[str, ...] = ()
    """Values that replace that of the unit."""
    defaults: tuple[str, ...] = ()
    """Values that count without one in the unit."""
    searches: tuple[str, ...] = ()
    """Values of PATH."""
    is_certain: bool = False
    """One of `homes` counts at each start."""
    is_searched: bool = False
    """One of `searches` counts at each start."""
    finds: bool = False
    """They can set JAVA_HOME to the folder of the Java in PATH."""
    why: str = ""
    """Why JAVA_HOME can have another value, the end of a sentence; empty: it has none."""
    why_default: str = ""
    """As `why`, if the unit does not set it."""
    why_search: str = ""
    """As `why`, of PATH."""


def _setting_of(texts: Sequence[TextFile], *, is_whole: bool = True, are_profiles: bool = False) -> _Setting:
    homes: list[str] = []
    defaults: list[str] = []
    searches: list[str] = []
    why, why_default, why_search = "" if is_whole else _UNREAD, "", ""
    finds = False
    texts = [one for one in texts if are_profiles or not is_profile(one.path)]
    for text in texts:
        before = ""
        for line in text.lines:
            for name, written in assignments(line):
                value = written.replace('"', "").replace("'", "").rstrip("/")
                default = _DEFAULT.fullmatch(value)
                asks = _ASKS.search(f"{before} {line}") is not None
                if name == "JAVA_HOME" and _LITERAL.fullmatch(value):
                    (defaults if asks else homes).append(value)
                elif name == "JAVA_HOME" and default is not None and _LITERAL.fullmatch(default[1]):
                    defaults.append(default[1].rstrip("/"))
                elif name == "JAVA_HOME" and _FINDS.search(line):
                    finds = finds or not asks
                elif name == "JAVA_HOME" and asks:
                    why_default = f"{text.path} sets {name}"
                elif name == "PATH" and _SEARCH.fullmatch(value):
                    searches.append(value)
                elif name == "PATH":
                    why_search = f"{text.path} sets {name}"
                elif name == "JAVA_HOME" or (name == "JAVA" and value not in _OF_KAFKA):
                    why = f"{text.path} sets {name}"
            before = line
    always = set_always(text.lines for text in texts)
    return _Setting(
        homes=tuple(dict.fromkeys(homes)),
        defaults=tuple(dict.fromkeys(defaults)),
        searches=tuple(dict.fromkeys(searches)),
        is_certain=bool(homes) and not (defaults or finds or why_default) and "JAVA_HOME" in always,
        is_searched=bool(searches) and "PATH" in always,
        finds=finds,
        why=why,
        why_default=why_default,
        why_search=why_search,
    )


def _is_certain(setting: _Setting) -> bool:
    return setting.is_certain and not setting.why


@dataclass(frozen=True, slots=True, kw_only=True)
class _Login:
    """What the profiles of a login shell do with JAVA_HOME."""

    homes: tuple[str, ...] = ()
    """Values that they can give to it."""
    is_certain: bool = False
    """They give it one of these at each start."""
    why: str = ""
    """Why they can do more, the end of a sentence."""


def _login_of(commands: HostCommands, node: NodeSpec, unit: UnitOptions) -> _Login:
    """The process shows what profiles do that are older than it, apart from where their links and commands lead now."""
    profiles = read_profiles(commands, node, unit.variables, unit.started)
    setting = _setting_of(profiles.texts, are_profiles=True)
    homes = (*setting.homes, *setting.defaults)
    unclear = [one for one in (setting.why, setting.why_default) if one]
    unclear += [f"{path}, which its login shell reads, can have changed since its start" for path in profiles.changed]
    unclear += [f"{path}, which its login shell reads, asks another program" for path in profiles.asking]
    return _Login(homes=homes, is_certain=setting.is_certain, why=profiles.why or next(iter(unclear), ""))


def find_next_java(
    commands: HostCommands, node: NodeSpec, pid: int | None, unit: UnitOptions, start: ScriptsOfStart
) -> NextJava:
    """Return the Java of the next start on one of the releases for which `start` was read. `pid`: of the process.

    Raises NotObservableError if JAVA_HOME of the unit has no Java, if what a script or a login does with it does not
    show which Java the next start runs, and if the Java of the process was removed or is hidden (open_files.py) and the
    next one is unknown.
    """
    service = service_of(node)
    given = [one for one in start.given.values() if not (start.java or _is_certain(_setting_of(one.after)))]
    settings = (
        {_Setting()}
        if start.java
        else {
            own if _is_certain(own) and start.is_known else _setting_of(texts, is_whole=start.is_known)
            for release, texts in start.scripts.items()
            for own in [_setting_of(start.given[release].after if release in start.given else ())]
        }
        or {_Setting()}
    )
    logs_in = any(one.logs_in for one in given)
    login = _login_of(commands, node, unit) if logs_in else _Login()
    home = unit.variables.get("JAVA_HOME", "").rstrip("/")
    home = home if home.startswith("/") else ""
    folders = [one for one in unit.variables.get("PATH", unit.search or _SYSTEMD_PATH).split(":") if one[:1] == "/"]
    wanted: dict[str, list[str]] = {}
    why_path = ""
    if start.java:
        wanted["program"] = [start.java]
    else:
        for one in settings:
            of_login = () if one.homes else login.homes
            of_unit = () if login.is_certain else ((home,) if home else one.defaults)
            for value in one.homes or (*of_login, *of_unit):
                wanted[value] = [f"{value}/bin/java"]
            wanted |= {"/usr": ["/usr/bin/java"]} if one.finds else {}
            if one.finds or not (one.homes or login.is_certain or of_unit):
                why_path = why_path or one.why_search or one.why_default
                for number, search in enumerate(one.searches):
                    wanted[f"path {number} {search}"] = [f"{folder}/java" for folder in _expand(search, folders)]
                wanted |= {} if one.is_searched else {"path": [f"{folder}/java" for folder in folders]}
    process, found, hidden, why_unseen = _look(commands, node, pid, wanted)
    needed = [home, *(login.homes if login.is_certain else ())]
    if missing := next((one for one in needed if one in wanted and one not in found), ""):
        where = f"JAVA_HOME of {service.unit}" if missing == home else f"JAVA_HOME in the profiles of {service.unit}"
        raise NotObservableError(
            f"{where} on host {service.host} is {missing}, where the SSH user finds no bin/java.",
            remedy="Correct JAVA_HOME there, or let the SSH user enter this folder.",
        )
    paths = list(dict.fromkeys(found.values()))
    of_process = process.removesuffix(_DELETED)
    is_removed = process.endswith(_DELETED)
    has_kept = bool(home) and of_process == found.get(home) and not is_removed and not login.why
    why = next((one.why for one in settings if one.why and not (has_kept and one.why == _UNREAD)), why_path)
    if not has_kept:
        why = why or next((one.why for one in given if one.why), "")
    if why or login.why:
        raise NotObservableError(
            f"The Java of the next start of node {node.name} on host {service.host} is unknown: {why or login.why}.",
            remedy="Directly before the command that starts Kafka, in its script or in ExecStart=, set JAVA_HOME to a "
            "folder without variables and commands (`export JAVA_HOME=/usr/lib/jvm/...`). Or start Kafka without a "
            f"login, and set JAVA_HOME in the unit (`systemctl edit {service.unit}`) and nowhere else.",
        )
    if not home and not unit.is_whole and not all(map(_is_certain, settings)):
        why = "its environment is unknown in part"
    elif logs_in and not (login.is_certain or home):
        why = "its login shell sets PATH"
    why = why or (f"the SSH user cannot enter {hidden}" if hidden else "")
    if home and not why and len(paths) > 1:
        why = "a script of its start sets JAVA_HOME too"
    if has_kept and not login.homes:
        return NextJava(paths=(of_process,), of_process=of_process)  # the scripts did not replace it
    if not why:
        return NextJava(
            paths=tuple(paths), of_process=of_process, why="its scripts have several values of JAVA_HOME or PATH"
        )
    if why_unseen:
        raise NotObservableError(
            f"The Java of the process of node {node.name} on host {service.host} cannot be read, because {why_unseen}, "
            f"and the Java of its next start is unknown: {why}.",
            remedy=f"Set JAVA_HOME in the unit (`systemctl edit {service.unit}`), and nowhere else.",
        )
    if is_removed and of_process not in paths:
        raise NotObservableError(
            f"The Java of the process of node {node.name} was removed from host {service.host} ({of_process}), such as "
            f"by an update, and the Java of its next start is unknown: {why}.",
            remedy="Restart the node with its new Java (`kafka-rollout restart`), or set JAVA_HOME in the unit.",
        )
    both = dict.fromkeys([*([of_process] if of_process else []), *paths])
    return NextJava(paths=tuple(both), of_process=of_process, why=why)


def _expand(search: str, folders: Sequence[str]) -> list[str]:
    """Return the folders of a value of PATH. It counts only without JAVA_HOME, whose part is left out."""
    parts = [folders if part in ("$PATH", "${PATH}") else [part] for part in search.split(":")]
    return [one for part in parts for one in part if one.startswith("/")]


def _look(
    commands: HostCommands, node: NodeSpec, pid: int | None, wanted: Mapping[str, Sequence[str]]
) -> tuple[str, dict[str, str], str, str]:
    """Return the program of the process, the first Java of each list that exists, without links, a folder before it
    that the SSH user cannot enter, and why the kernel hides the program; empty if it does not."""
    right = rights_of(node).find_java
    # It can have ended since.
    is_there = f"test -d /proc/{pid} && {{ echo Hidden=; {WHY_HIDDEN.format(pid=pid)}}}"
    exe = f"exe=$({shlex.join(right.command(pid=pid))}) || {{ {is_there}; }}"
    parts = [] if pid is None else [exe, 'echo "exe 0 $exe"']
    for number, paths in enumerate(wanted.values()):
        words = " ".join(map(shlex.quote, paths))
        parts.append(
            f'for java in {words}; do if test -x "$java" && test -f "$java"; then '
            f'echo "java {number} $(readlink -f "$java")"; break; fi; folder=${{java%/*}}; '
            f'if test -d "$folder" && ! test -x "$folder"; then echo "hidden {number} $folder"; fi; done'
        )
    done = commands.expect(node, right, commands.run(node, "; ".join([*parts, "true"])))
    lines = done.out.splitlines()
    rows = [line.split(" ", 2) for line in lines if line.count(" ") >= 2]
    keys = list(wanted)
    found = {keys[int(number)]: path for kind, number, path in rows if kind == "java"}
    process = next((path for kind, _, path in rows if kind == "exe"), "")
    folder = next((path for kind, _, path in rows if kind == "hidden"), "")
    hidden = why_hidden(lines) if "Hidden=" in lines else ""
    if "Hidden=" in lines and not hidden:
        raise TransientError(
            f"The tool cannot {right.purpose}: node {node.name}, host {service_of(node).host}.",
            remedy="Check the host, then repeat the step.",
        )
    return process, found, folder, hidden
