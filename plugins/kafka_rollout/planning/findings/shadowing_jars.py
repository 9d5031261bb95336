"""Findings about jars outside of the release that a next start loads instead of those of the release.

kafka-run-class.sh begins the class path with CLASSPATH of its environment, and Java takes a class from the first entry
that has it. A folder of plugins whose kafka-clients is that of the running release then keeps it on the next one: Kafka
4.3.1 with kafka-clients 3.9.1 before its own ends with a NoSuchMethodError.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from kafka_rollout.base.findings import BLOCKER, WARNING, Finding, FindingCode
from kafka_rollout.base.wording import few
from kafka_rollout.model.host_state import HostState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import Release

_SHOWN = 8
JAR_SHADOWS_RELEASE = FindingCode(
    "JAR-SHADOWS-RELEASE",
    (BLOCKER, WARNING),
    "A jar outside of the release is before its jars in the class path, and the release has another version of it. A "
    "blocker for jars of Kafka itself.",
)
_JAR = re.compile(r"(?:.*/)?(.+?)-(\d[^/]*)\.jar")
_SERVER = re.compile(r"kafka_2\.\d+")
_OF_SCRIPT = "/bin/../"  # in the entries that a start script makes from its own place
_CLASS_PATH = frozenset({"-cp", "-classpath", "--class-path"})


def shadowing_jars(node: NodeSpec, host: HostState, releases: Sequence[Release]) -> Iterator[Finding]:
    """Yield the findings of one node, for releases that a switch of the link starts. Packages have folders of their
    own, whose jars are replaced with them."""
    if host.link is None:
        return
    loaded = [path for path in host.facts.loaded_jars if path not in host.facts.removed_jars]
    own = _of_release(loaded, f"{host.link.now.path}/libs", host)
    outside = _before(loaded, own, host)
    for release in releases:
        if not host.link.moves(release):
            continue  # the process that runs has them in the same order
        folder = f"{host.folders.get(release, '')}/libs"
        of_release = dict(filter(None, map(_artifact, host.facts.release_jars.get(release, ()))))
        now = dict(filter(None, map(_artifact, sorted(own))))
        kafkas = _of_kafka(now)
        found: dict[bool, list[str]] = {True: [], False: []}
        for path in sorted({*outside}):
            name, version = _artifact(path) or ("", "")
            is_kafka = name in kafkas
            other = of_release.get(name) or (str(release) if is_kafka else version)
            if posixpath.dirname(path) != folder and version != other:
                found[is_kafka].append(f"{path} ({other} there)")
        for is_kafka, jars in found.items():
            if jars:
                yield JAR_SHADOWS_RELEASE.found(
                    f"node {node.node_id}, release {release}" + ("" if is_kafka else ", libraries"),
                    f"The process of node {node.node_id} on host {host.name} has loaded {few(jars, limit=_SHOWN)}. Its "
                    f"class path has them before the jars of Kafka {release}, so the next start would load them instead"
                    + (": classes of two releases of Kafka, which can end the start." if is_kafka else "."),
                    f"Remove {_what_to_remove(outside, host)}: a release brings them itself. Restart the node and "
                    "check it, then plan again."
                    if is_kafka
                    else f"Check that Kafka {release} and the plugins work with these versions, or remove the jars.",
                    severity=BLOCKER if is_kafka else WARNING,
                )


def _artifact(path: str) -> tuple[str, str] | None:
    match = _JAR.fullmatch(path)
    return (match[1], match[2]) if match else None


def _of_kafka(now: dict[str, str]) -> Collection[str]:
    """Return the artifacts of Kafka itself among those of a release: they have the version of its server."""
    version = next((found for name, found in now.items() if _SERVER.fullmatch(name)), None)
    return {"kafka-clients", *(name for name, found in now.items() if "kafka" in name and found == version)}


def _class_path(host: HostState) -> list[str]:
    return [
        entry
        for option, value in pairwise(host.facts.arguments)
        if option in _CLASS_PATH
        for entry in value.split(":")
        if entry
    ]


def _is_of_script(entry: str, host: HostState) -> bool:
    """Return whether a start script of Kafka has made an entry from its own place, or the entry names the link."""
    folder = posixpath.normpath(posixpath.dirname(entry))
    return _OF_SCRIPT in entry or folder == f"{host.symlink}/libs"


def _of_release(loaded: Sequence[str], now: str, host: HostState) -> set[str]:
    """Return the loaded jars of the release that runs. `now`: the folder to which the link leads, which can have been
    switched since the start, and `libs` in it and each jar can be links."""
    servers = {
        posixpath.dirname(path) for path in loaded if (one := _artifact(path)) is not None and _SERVER.fullmatch(one[0])
    }
    folders = {now} if now in servers or len(servers) != 1 else servers
    own = {path for path in loaded if posixpath.dirname(path) in folders}
    # The scripts write each jar: the name of one that is not in the folder shows a link.
    names = {posixpath.basename(one) for one in _class_path(host) if _is_of_script(one, host)}
    names -= {posixpath.basename(path) for path in own}
    numbers = Counter(posixpath.dirname(path) for path in loaded if posixpath.basename(path) in names)
    for path in sorted(loaded, key=lambda path: -numbers[posixpath.dirname(path)]):
        if (name := posixpath.basename(path)) in names and not _is_named(path, host):
            own.add(path)
            names.remove(name)
    return own


def _is_named(path: str, host: HostState) -> bool:
    """Return whether an entry of the class path that is not of a start script names a jar or its folder."""
    return any(_names(entry, path) for entry in _class_path(host) if not _is_of_script(entry, host))


def _names(entry: str, path: str) -> bool:
    folder = posixpath.normpath(posixpath.dirname(entry))
    return posixpath.normpath(entry) == path or (entry.endswith("/*") and folder == posixpath.dirname(path))


def _before(loaded: Sequence[str], own: Collection[str], host: HostState) -> list[str]:
    """Return the loaded jars that the class path has before those of the release.

    One that no entry names has another class loader, as tiered storage has, unless an entry before the release names no
    loaded jar: this can be a link to its folder.
    """
    others = [path for path in loaded if path not in own]
    entries = _class_path(host)
    if not entries:
        return others  # unknown
    folders = {posixpath.dirname(path) for path in own}
    of_release = [
        at
        for at, one in enumerate(entries)
        if _is_of_script(one, host) or posixpath.normpath(posixpath.dirname(one)) in folders
    ]
    first = entries[: min(of_release, default=len(entries))]
    has_link = any(one.endswith(("/*", ".jar")) and not any(_names(one, path) for path in loaded) for one in first)
    return [
        path
        for path in others
        if any(_names(one, path) for one in first) or (has_link and not any(_names(one, path) for one in entries))
    ]


def _what_to_remove(jars: Sequence[str], host: HostState) -> str:
    """A folder of a release keeps its jars: only the class path must not have it."""
    releases = [*host.folders.values(), *([host.link.now.path] if host.link is not None else [])]
    is_release = any(f"{path}/".startswith(f"{folder}/") for path in jars for folder in releases if folder)
    return "their folder from CLASSPATH" if is_release else "them from that folder, or from CLASSPATH"
