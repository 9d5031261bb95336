"""The folders of unpacked releases on a host: whether one has the jars of its release, whole, and of no other one, and
the user of the unit can start it.

Only then its release is installed: a folder can be left by an interrupted unpacking or by a full disk, can have another
archive in it, and can belong to the user who unpacked it alone. No command needs a right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from kafka_rollout.base.wording import few
from kafka_rollout.model.file_access import Use
from kafka_rollout.model.host_state import CLOSED, PlaceState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of
from kafka_rollout.nodes.runtimes.hosts.installing import JAR
from kafka_rollout.nodes.runtimes.hosts.user_access import (
    WALK,
    Lookup,
    follow,
    read_access,
    repair_of,
    why_refused,
)
from kafka_rollout.releases.facts import Release

# A jar ends with the end of its directory (APPNOTE.TXT 4.3.16), which a file that was cut does not have: 22 bytes, and
# a comment of at most 65,535. Paths of an inventory have no character that a shell treats specially.
_LIST = (
    "test -e {folder} && echo 'folder {folder}'; walk {folder}/libs/any; "
    'if test -n "$closed"; then echo "closed {folder} $closed"; '
    "elif test -d {folder}/libs && ! test -r {folder}/libs; then echo 'closed {folder} {folder}/libs'; "
    "elif cd {folder}/libs 2>/dev/null; then echo 'libs {folder}'; for jar in *.jar; do "
    'if ! test -e "$jar"; then :; elif ! test -f "$jar" || ! test -r "$jar"; then echo "unread $jar"; '
    'elif tail -c 65557 "$jar" | grep -qaF "$end"; then echo "jar $jar"; else echo "cut $jar"; fi; done; fi'
)
# What shows that a start runs the scripts of a folder: the unit, or the class path of its process. One that the folder
# behind the link does not have is not run.
_END = "export LC_ALL=C; end=$(printf 'PK\\005\\006')"
_SCRIPTS = (
    "LC_ALL=C systemctl show --property=ExecStart {unit} | grep -q kafka-server-start && runs=1; "
    "pid=$(systemctl show --property=MainPID --value {unit}); "
    "tr '\\0' '\\n' 2>/dev/null </proc/$pid/cmdline | grep -q 'bin/\\.\\./libs/' && runs=1; "
    'test -z "$runs" || for script in {names}; do '
    '{{ test -e {link}/$script || ! test -x {link}/bin/; }} && echo "script $script"; done'
)
_SCRIPT_USES = {"bin/kafka-server-start.sh": Use.READ, "bin/kafka-run-class.sh": Use.EXECUTE}
_NAME = re.compile(
    r"(?P<artifact>.+?)(?:_2\.\d+)?-(?P<version>\d.*)(?<!-sources)(?<!-javadoc)(?<!-scaladoc)(?<!-test)\.jar"
)
# Operators replace the binding of SLF4J and its library, also in folders of releases that run.
_LOGGING = re.compile(r"slf4j-.*|reload4j|log4j-.*")
_KAFKA = "kafka"  # the artifact of kafka.Kafka, without the version of Scala
_OWN = re.compile(rf"{_KAFKA}(-.*)?")
_PLAIN = re.compile(r"\d+\.\d+\.\d+")
ArtifactsOf = Callable[[Release], Collection[str]]
"""Release → the names of the artifacts of a broker's jars (`kafka-clients`), empty if they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFolder:
    """What `libs` of a folder has. Names of jars."""

    path: str
    exists: bool = False
    has_libs: bool = False
    """The SSH user can enter and list it."""
    closed: str = ""
    """The folder, or one above or below, which hides `libs` from the SSH user."""
    whole: frozenset[str] = frozenset()
    cut: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    lacks: str = ""
    """Why a node cannot start the release from it, as the end of a sentence; empty if it can."""
    repair: str = ""
    """What an operator must do then, sentences; empty: see `how_to_install`."""

    @property
    def jars(self) -> frozenset[str]:
        return self.whole | self.cut | self.unread


def read_release_folders(
    commands: HostCommands,
    node: NodeSpec,
    releases: Iterable[Release],
    identify: Callable[[str], Release | None],
    artifacts: ArtifactsOf,
) -> dict[Release, ReleaseFolder]:
    """Return the folder of each release, none for packages. `identify`: version in the name of a jar → its release."""
    service = service_of(node)
    folders = {} if service.package else {release: service.folder(release) for release in releases}
    if not folders:
        return {}
    scripts = _SCRIPTS.format(unit=service.unit, link=service.symlink, names=" ".join(_SCRIPT_USES))
    lines = WALK + "; ".join([_END, *(_LIST.format(folder=folder) for folder in folders.values()), scripts])
    there = set[str]()
    closed: dict[str, str] = {}
    found: dict[str, dict[str, set[str]]] = {}
    of_folder: dict[str, set[str]] = {}
    shown = commands.run(node, lines).out.splitlines()
    for line in shown:
        kind, _, name = line.partition(" ")
        if kind == "folder":
            there.add(name)
        elif kind == "closed":
            folder_name, _, closed_by = name.partition(" ")
            closed[folder_name] = closed_by.rstrip("/") or "/"
        elif kind == "libs":
            of_folder = found.setdefault(name, {"jar": set(), "cut": set(), "unread": set()})
        elif kind in of_folder:
            of_folder[kind].add(name)
    read = {}
    for release, path in folders.items():
        names = {kind: frozenset(jars) for kind, jars in found.get(path, {}).items()}
        whole, cut, unread = (names.get(kind, frozenset[str]()) for kind in ("jar", "cut", "unread"))
        folder = ReleaseFolder(
            path=path,
            exists=path in there,
            has_libs=path in found,
            closed=closed.get(path, ""),
            whole=whole,
            cut=cut,
            unread=unread,
        )
        is_above = f"{path}/".startswith(f"{folder.closed.rstrip('/')}/") and folder.closed not in ("", path)
        read[release] = replace(
            folder,
            lacks=why_not_installed(folder, release, identify, artifacts(release)),
            repair=f"Let the SSH user enter {folder.closed}: run `chmod a+x {folder.closed}` as its owner."
            if is_above
            else "",
        )
    return _with_access(
        commands, node, read, artifacts, scripts=[name for name in _SCRIPT_USES if f"script {name}" in shown]
    )


def _with_access(
    commands: HostCommands,
    node: NodeSpec,
    folders: dict[Release, ReleaseFolder],
    artifacts: ArtifactsOf,
    *,
    scripts: Sequence[str],
) -> dict[Release, ReleaseFolder]:
    """Return the folders; those that the user of the unit cannot start lack that. `scripts`: what a start runs."""
    uses = {
        release: {
            f"{folder.path}/libs": Use.LIST,
            **{
                f"{folder.path}/libs/{jar}": Use.READ
                for jar in sorted(match[0] for match in _wanted_jars(folder, release, artifacts(release))[1])
            },
            **{f"{folder.path}/{name}": _SCRIPT_USES[name] for name in scripts},
        }
        for release, folder in folders.items()
        if not folder.lacks
    }
    followed = follow(commands, node, [path for paths in uses.values() for path in paths]) if uses else {}
    lookups = {
        path: Lookup(followed[path].way, followed[path].place, use)
        for paths in uses.values()
        for path, use in paths.items()
        if path in followed and followed[path].state is not PlaceState.MISSING
    }
    access = dict(zip(lookups, read_access(commands, node, list(lookups.values())), strict=True))
    found = {**folders}
    for release, paths in uses.items():
        folder = folders[release]
        refused = next((access[path] for path in paths if path in access and access[path].refused), None)
        absent = next((path for path in paths if path in followed and path not in access), None)
        if refused is not None:
            found[release] = replace(folder, lacks=why_refused(refused), repair=repair_of(refused, folder.path))
        elif absent is not None:
            found[release] = replace(folder, lacks=f"there is no {absent}")
    return found


def why_not_installed(
    folder: ReleaseFolder, release: Release, identify: Callable[[str], Release | None], artifacts: Collection[str]
) -> str:
    """Return why a node cannot start the release from the folder, as the end of a sentence; empty if it can.

    `identify`: version in the name of a jar → its release, for builds of vendors, which can have other libraries.
    `artifacts`: of the release's broker. A library can have another version than in the archive.
    """
    libs = f"{folder.path}/libs"
    if folder.closed:
        return f"{libs} {CLOSED}, who cannot enter and list {folder.closed}"
    if not folder.has_libs:
        return f"there is no {libs}"
    versions = {match[1] for name in folder.jars if (match := JAR.search(f"/{name}\n"))}
    wanted, named = _wanted_jars(folder, release, artifacts)
    versions |= {match["version"] for match in named if _OWN.fullmatch(match["artifact"])}
    if len(versions) > 1:
        return f"{libs} has jars of {' and '.join(sorted(versions))}"
    for version in versions - {str(release)}:
        if _PLAIN.fullmatch(version) or identify(version) != release:
            return f"{libs} has the jars of {version}"
    if missing := sorted(wanted - {match["artifact"] for match in named}):
        return f"{libs} lacks {len(missing)} of {len(wanted)} jars of Kafka {release} ({few(missing)})"
    for names, what in ((folder.cut, "are not whole"), (folder.unread, CLOSED)):
        if broken := sorted(match[0] for match in named if match[0] in names):
            return f"jars in {libs} ({few(broken)}) {what}"
    return ""


def _wanted_jars(
    folder: ReleaseFolder, release: Release, artifacts: Collection[str]
) -> tuple[set[str], list[re.Match[str]]]:
    """Return the artifacts that a start of the release needs, and the jars of the folder that are one."""
    versions = {match[1] for name in folder.jars if (match := JAR.search(f"/{name}\n"))}
    is_apache = {str(release)} >= versions
    wanted = {_plain(name) for name in artifacts} | {_KAFKA}
    wanted = {name for name in wanted if _OWN.fullmatch(name) or (is_apache and not _LOGGING.fullmatch(name))}
    return wanted, [match for name in folder.jars if (match := _NAME.fullmatch(name)) and match["artifact"] in wanted]


def _plain(artifact: str) -> str:
    """Return the name without the version of Scala."""
    return re.sub(r"_2\.\d+$", "", artifact)
