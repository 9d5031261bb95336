"""The folders of unpacked releases on a host: whether one has the jars of its release, whole, and of no other one.

Only then its release is installed: a folder can be left by an interrupted unpacking or by a full disk, and can have
another archive in it. No command needs a right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from kafka_rollout.base.wording import few
from kafka_rollout.model.host_state import CLOSED
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of
from kafka_rollout.nodes.runtimes.hosts.installing import JAR
from kafka_rollout.releases.facts import Release

# A jar ends with the end of its directory (APPNOTE.TXT 4.3.16), which a file that was cut does not have: 22 bytes, and
# a comment of at most 65,535. Paths of an inventory have no character that a shell treats specially.
_LIST = (
    "test -e {folder} && echo 'folder {folder}'; "
    "if cd {folder}/libs 2>/dev/null; then echo 'libs {folder}'; for jar in *.jar; do "
    'if ! test -e "$jar"; then :; elif ! test -r "$jar"; then echo "unread $jar"; '
    'elif tail -c 65557 "$jar" | grep -qaF "$end"; then echo "jar $jar"; else echo "cut $jar"; fi; done; '
    'elif test -e {folder} && {{ ! test -x {folder} || test -e {folder}/libs; }}; then echo "closed {folder}"; fi'
)
_END = "export LC_ALL=C; end=$(printf 'PK\\005\\006')"
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
    """The SSH user can enter it."""
    is_closed: bool = False
    """The SSH user cannot enter it, so it is unknown what it has."""
    whole: frozenset[str] = frozenset()
    cut: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    lacks: str = ""
    """Why a node cannot start the release from it, as the end of a sentence; empty if it can."""

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
    lines = "; ".join([_END, *(_LIST.format(folder=folder) for folder in folders.values())])
    there, closed = set[str](), set[str]()
    found: dict[str, dict[str, set[str]]] = {}
    of_folder: dict[str, set[str]] = {}
    for line in commands.run(node, lines).out.splitlines():
        kind, _, name = line.partition(" ")
        if kind == "folder":
            there.add(name)
        elif kind == "closed":
            closed.add(name)
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
            is_closed=path in closed,
            whole=whole,
            cut=cut,
            unread=unread,
        )
        read[release] = replace(folder, lacks=why_not_installed(folder, release, identify, artifacts(release)))
    return read


def why_not_installed(
    folder: ReleaseFolder, release: Release, identify: Callable[[str], Release | None], artifacts: Collection[str]
) -> str:
    """Return why a node cannot start the release from the folder, as the end of a sentence; empty if it can.

    `identify`: version in the name of a jar → its release, for builds of vendors, which can have other libraries.
    `artifacts`: of the release's broker. A library can have another version than in the archive.
    """
    libs = f"{folder.path}/libs"
    if folder.is_closed:
        return f"{libs} {CLOSED}"
    if not folder.has_libs:
        return f"there is no {libs}"
    versions = {match[1] for name in folder.jars if (match := JAR.search(f"/{name}\n"))}
    is_apache = {str(release)} >= versions
    wanted = {_plain(name) for name in artifacts} | {_KAFKA}
    wanted = {name for name in wanted if _OWN.fullmatch(name) or (is_apache and not _LOGGING.fullmatch(name))}
    named = [match for name in folder.jars if (match := _NAME.fullmatch(name)) and match["artifact"] in wanted]
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
            return f"jars in {libs} {what} ({few(broken)})"
    return ""


def _plain(artifact: str) -> str:
    """Return the name without the version of Scala."""
    return re.sub(r"_2\.\d+$", "", artifact)
