"""Findings about jars outside of the release that a next start loads instead of those of the release.

kafka-run-class.sh begins the class path with CLASSPATH of its environment, and Java takes a class from the first entry
that has it. A folder of plugins whose kafka-clients is that of the running release then keeps it on the next one: Kafka
4.3.1 with kafka-clients 3.9.1 before its own ends with a NoSuchMethodError.
"""

from __future__ import annotations

import posixpath
import re
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
_CLASS_PATH = frozenset({"-cp", "-classpath", "--class-path"})


def shadowing_jars(node: NodeSpec, host: HostState, releases: Sequence[Release]) -> Iterator[Finding]:
    """Yield the findings of one node, for releases that a switch of the link starts. Packages have folders of their
    own, whose jars are replaced with them."""
    if host.link is None:
        return
    own = f"{host.link.now.path}/libs"
    loaded = [path for path in host.facts.loaded_jars if path not in host.facts.removed_jars]
    outside = [path for path in loaded if posixpath.dirname(path) != own and not _is_after(path, own, host)]
    for release in releases:
        if not host.link.moves(release):
            continue  # the process that runs has them in the same order
        folder = f"{host.folders.get(release, '')}/libs"
        of_release = dict(filter(None, map(_artifact, host.facts.release_jars.get(release, ()))))
        now = dict(filter(None, (_artifact(path) for path in loaded if posixpath.dirname(path) == own)))
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
                    "Remove them from that folder, or from CLASSPATH: a release brings them itself. Restart the node "
                    "and check it, then plan again."
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


def _is_after(path: str, own: str, host: HostState) -> bool:
    """Return whether the class path names a jar after those of the release. One that is not found there can be before
    them: its folder can be a link."""
    entries = [
        entry for option, value in pairwise(host.facts.arguments) if option in _CLASS_PATH for entry in value.split(":")
    ]
    folders = [posixpath.normpath(posixpath.dirname(entry)) for entry in entries]
    places = [at for at, entry in enumerate(entries) if path == entry or posixpath.dirname(path) == folders[at]]
    of_release = [at for at, folder in enumerate(folders) if folder in (own, f"{host.symlink}/libs")]
    return bool(places and of_release) and min(places) > min(of_release)
