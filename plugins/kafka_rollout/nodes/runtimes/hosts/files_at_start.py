"""What a node on a host reads at its start, as far as the SSH user sees it without a right: dates, names in jars, Java.

The content of keystores and truststores is never read, and never leaves the host: a file that has not changed since the
process started is the one that this process has read. No command needs sudo, except the two that every plan runs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kafka_rollout.base.errors import RefusedError, TransientError, UserError
from kafka_rollout.model.starts import LOGIN_FILE, ClassPlaces, NamedFile, PluginClass
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import MISSING, HostCommands, service_of
from kafka_rollout.nodes.runtimes.hosts.installing import JAR
from kafka_rollout.nodes.runtimes.hosts.login_files import UNREAD, login_file_command, read_login_text
from kafka_rollout.nodes.runtimes.hosts.next_java import find_next_java
from kafka_rollout.nodes.runtimes.hosts.open_files import read_open_files
from kafka_rollout.nodes.runtimes.hosts.unit_state import (
    UnitState,
    certain_options,
    read_java_version,
    read_start,
)
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jvm.java import harmless_options, refusal_of, refused_sizes

_STAT = "stat {follow}--format=%Z -- {path} 2>&1 | sed 's/^/{number} /'"
# The time of each link on the way, and of each folder that was renamed: its entries did not change then.
_WAY = """\
way() { at= left=40 rest=$1; while test -n "$rest"; do part=${rest%%/*};
case $rest in */*) rest=${rest#*/};; *) rest=;; esac; case $part in ''|.) continue;; ..) at=${at%/*}; continue;; esac;
if test -L "$at/$part"; then stat --format=%Z -- "$at/$part" 2>&1; left=$((left - 1)); test "$left" -gt 0 || return;
to=$(readlink -- "$at/$part"); case $to in /*) at=;; esac; rest=$to/$rest; else at=$at/$part;
test -n "$rest" && stat --format='%Z %Y' -- "$at" 2>/dev/null | awk '$1 > $2 {print $1}'; fi; done; }
"""
_MODULE = "module "
# The SSH user must not execute what another user than root can change.
_UNSAFE = r"find -H {home} -xdev \( ! -uid 0 -o -perm /022 \) ! -type l -print -quit"
_SAFE_HOME = re.compile(r"/[\w./+-]+")


def read_named_files(commands: HostCommands, node: NodeSpec, files: Mapping[str, str]) -> tuple[NamedFile, ...]:
    """Return the date of each file, or of a link or a folder on the way to it that was changed later."""
    numbered = list(enumerate(files.items()))
    parts = [
        _STAT.format(follow=follow, path=shlex.quote(path), number=number)
        for number, (_, path) in numbered
        if path.startswith("/")
        for follow in ("-L ", "")
    ]
    parts += [f"way {shlex.quote(path)} | sed 's/^/{number} /'" for number, (_, path) in numbered if path[:1] == "/"]
    parts += [
        f"{login_file_command(path)} | sed 's/^/{number} {_MODULE}/'"
        for number, (setting, path) in numbered
        if setting == LOGIN_FILE and path.startswith("/")
    ]
    lines = commands.run(node, f"export LC_ALL=C; {_WAY}{'; '.join(parts)}").out.splitlines() if parts else []
    answers: dict[int, list[str]] = {}
    modules: dict[int, list[str]] = {}
    for line in lines:
        number, _, text = line.partition(" ")
        if number.isdigit():
            of_file = modules if text.startswith(_MODULE) else answers
            of_file.setdefault(int(number), []).append(text.removeprefix(_MODULE).strip())
    found = []
    for at, (setting, path) in numbered:
        login_modules, key_tabs = read_login_text(modules.get(at, []))
        named = _named_file(setting, path, answers.get(at, []))
        is_hidden = UNREAD in modules.get(at, [])
        found.append(replace(named, login_modules=login_modules, key_tabs=key_tabs, is_hidden=is_hidden))
    return tuple(found)


def _named_file(setting: str, path: str, answers: Sequence[str]) -> NamedFile:
    if not path.startswith("/"):
        return NamedFile(
            setting=setting, path=path, problem="the path is relative to the folder in which the unit starts"
        )
    if len(answers) > 1 and all(answer.isdigit() for answer in answers):
        return NamedFile(setting=setting, path=path, changed_at=float(max(map(int, answers))))
    why = next((answer for answer in answers if not answer.isdigit()), "the host does not report it")
    if MISSING in why:
        return NamedFile(setting=setting, path=path, is_absent=True)
    return NamedFile(setting=setting, path=path, problem=why.rpartition(": ")[2])


def find_node_classes(
    commands: HostCommands, node: NodeSpec, unit: UnitState, release: Release, classes: Sequence[PluginClass]
) -> ClassPlaces:
    """Look for the names of classes in the jars of the release's folder and of the running process.

    A jar in an entry of the class path that the next start does not have is left behind. The directory of a jar has
    the names of its files in plain text.
    """
    service = service_of(node)
    folder = service.package.jars if service.package else f"{service.folder(release)}/libs"
    loaded = list(read_open_files(commands, node, unit.pid).jars)
    own = {jar.rpartition("/")[0] for jar in loaded if JAR.search(f"{jar}\n")}
    _, start = read_start(commands, node, (release,))
    lost = start.options[release].lost_entries
    parts = [f"test -d {folder} && echo there"]
    parts += [f"readlink -f -- {shlex.quote(_folder_of(entry))} | sed 's/^/lost /'" for entry in lost]
    for number, one in enumerate(classes):
        jars = [f"{folder}/*.jar", *map(shlex.quote, loaded)]
        jars += [_pattern(part) for part in one.class_path.split(":") if part.startswith("/")]
        name = shlex.quote(f"{one.name.replace('.', '/')}.class")
        parts.append(f"grep -D skip -lsF -- {name} {' '.join(jars)} | sed 's/^/{number} /'")
    lines = commands.run(node, "; ".join(parts)).out.splitlines()
    jars_of: dict[str, tuple[str, ...]] = {}
    left_behind: dict[str, tuple[str, ...]] = {}
    gaps = {line.removeprefix("lost ") for line in lines if line.startswith("lost ")}
    for number, one in enumerate(classes):
        found = [line.partition(" ")[2] for line in lines if line.partition(" ")[0] == str(number)]
        behind = own - {folder} if one.class_path else (own | gaps) - {folder}
        old = [jar for jar in found if jar in behind or jar.rpartition("/")[0] in behind]
        if stays := tuple(jar for jar in dict.fromkeys(found) if jar not in old):
            jars_of[one.name] = stays
        elif old:
            left_behind[one.name] = tuple(dict.fromkeys(old))
    unknown = "" if loaded else "the jars that the process has loaded cannot be listed"  # Kafka itself is one of them
    if "there" not in lines:
        unknown = f"host {service.host} has no folder {folder} yet"
    return ClassPlaces(folder=folder, jars=jars_of, left_behind=left_behind, unknown=unknown)


def _folder_of(entry: str) -> str:
    """Return the folder of an entry of a class path with all jars of a folder, else the entry."""
    return entry.removesuffix("/*")


def _pattern(part: str) -> str:
    """Return an entry of a class path for the shell: only a last `*` is a pattern, of jars."""
    if part.endswith("/*"):
        return f"{shlex.quote(part.removesuffix('*'))}*.jar"
    return shlex.quote(part)


def find_jvm_problems(
    commands: HostCommands, node: NodeSpec, unit: UnitState, releases: Sequence[Release]
) -> tuple[str, ...]:
    """Start the node's Java as the SSH user with the options of the process that a start on one of the releases has
    too, and with those of the unit's environment.

    Nothing but `-version` runs. Agents, and what reserves memory or writes files, are left out; sizes are compared.
    Raises TransientError if the options are unknown, RefusedError if the Java or a part of them is hidden, UserError if
    another user than root can change the Java.
    """
    of_unit, start = read_start(commands, node, releases)
    java = find_next_java(commands, node, unit.pid, of_unit, start)
    read_java_version(commands, node, java)  # raises without a Java, and for one that the user of the node can change
    for home in (path.rpartition("/bin/")[0] for path in java.paths):
        _refuse_unsafe(commands, node, home)
    seen = certain_options(node, releases, of_unit, start).values()
    found = [problem for one in seen if (problem := refused_sizes(one.arguments))]
    apart = (([word for word in one.arguments if word not in one.environment], one.environment) for one in seen)
    for options in dict.fromkeys(tuple(harmless_options(words)) for parts in apart for words in parts):
        for path in java.paths if options else ():
            done = commands.run(node, ["env", "-i", "timeout", "30", path, *options, "-version"])
            if done.code == 124:
                raise TransientError(
                    f"Java on host {service_of(node).host} did not answer in 30 s.", remedy="Plan again."
                )
            if done.code != 0:
                found.append(refusal_of(done.err))
    return tuple(dict.fromkeys(found))


def _refuse_unsafe(commands: HostCommands, node: NodeSpec, home: str) -> None:
    if not _SAFE_HOME.fullmatch(home):
        raise RefusedError(
            f"The options of the JVM of node {node.name} were not tried: a shell reads characters of {home} specially.",
            remedy="Install Java in a folder without such characters.",
        )
    unsafe = commands.run(node, _UNSAFE.format(home=home))
    if unsafe.code != 0 or unsafe.out.strip():
        raise UserError(
            f"The options of the JVM of node {node.name} were not tried: {unsafe.out.strip() or unsafe.problem} on "
            f"host {service_of(node).host} can be changed by another user than root.",
            remedy="Install Java in a folder that belongs to root, and remove write rights of group and others.",
        )
