"""Findings about paths of a node that are other files for its unit than for the tool."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafka_rollout.base.findings import BLOCKER, WARNING, Finding, FindingCode
from kafka_rollout.base.wording import few
from kafka_rollout.model.host_state import HostState, StartFileKind, UnitMount
from kafka_rollout.model.topology import NodeSpec

_SHOWN = 8
UNIT_SEES_OTHER_FILE = FindingCode(
    "UNIT-SEES-OTHER-FILE",
    (BLOCKER, WARNING),
    "Only the unit of a node sees a mount above a path of the node, so the tool reads another file there than the node "
    "does. A blocker for the configuration, the log directories, the log and the releases.",
)
_KINDS = {
    StartFileKind.CONFIGURATION: BLOCKER,
    StartFileKind.IDENTITY: BLOCKER,
    StartFileKind.LIBRARIES: BLOCKER,
    StartFileKind.PROGRAM: WARNING,
    StartFileKind.KEYS: WARNING,
    StartFileKind.KEY_TAB: WARNING,
    StartFileKind.PROVIDED: WARNING,
    StartFileKind.PLANNED: WARNING,
    StartFileKind.AGENT: WARNING,
    StartFileKind.JAR: WARNING,
    StartFileKind.LOGGING: WARNING,
    StartFileKind.JVM: WARNING,
    StartFileKind.NAMED: WARNING,
    StartFileKind.INNER: WARNING,
    StartFileKind.UNIT: None,
    StartFileKind.CONDITION: None,
    StartFileKind.BARRED: None,
}
"""None: systemd reads it, outside of the mounts of the unit."""
_NO_FILE = frozenset({StartFileKind.JVM, StartFileKind.NAMED})
"""Also folders that the tool does not read, such as `-Djava.io.tmpdir=/tmp`."""


class _Named(NamedTuple):
    path: str
    place: str
    """Without links."""
    is_blocker: bool
    is_folder: bool
    """The tool reads files below it."""
    is_file: bool = True
    """Itself counts, not only a folder above."""


def unit_mount_findings(node: NodeSpec, host: HostState) -> Iterator[Finding]:
    """Yield a finding for each mount that shows the node other files than the host has for the tool."""
    found: defaultdict[UnitMount, dict[str, bool]] = defaultdict(dict)
    for one in _paths(node, host):
        for mount in _other_files(one, host.mounts):
            found[mount][one.path] = one.is_blocker or found[mount].get(one.path, False)
    for mount, paths in found.items():
        is_blocker = any(paths.values())
        yield UNIT_SEES_OTHER_FILE.found(
            f"node {node.node_id}, {mount.setting}, {mount.path}",
            f"{host.unit} on host {host.name} has {mount.setting}, so node {node.node_id} sees other files than the "
            f"tool in {few(paths, limit=_SHOWN)}. "
            + (
                "A run would read and change files that the node does not use."
                if is_blocker
                else "Those were not checked."
            ),
            f"Remove {mount.setting} (`systemctl edit {host.unit}`), and name the folder itself in the configuration, "
            "the unit and the inventory; or mount it for the whole host (/etc/fstab). Restart the node, then plan "
            "again."
            + (
                ""
                if is_blocker
                else f" Or check by hand what the tool reports of {'it' if len(paths) == 1 else 'them'}."
            ),
            severity=BLOCKER if is_blocker else WARNING,
        )


def _paths(node: NodeSpec, host: HostState) -> Iterator[_Named]:
    link = () if host.link is None else (host.link.now.path,)
    own = [] if node.service is None else [node.service.configuration_file, node.service.log_file or ""]
    for path in (*own, host.symlink, *host.folders.values(), *link):
        if path.startswith("/"):
            yield _Named(path, path, is_blocker=True, is_folder=path not in own)
    for one in host.start_paths:
        severity = _KINDS[one.kind]
        if severity is not None:
            is_folder = one.kind in {StartFileKind.IDENTITY, StartFileKind.LIBRARIES}
            is_file = one.kind not in _NO_FILE
            yield _Named(one.path, one.now.path, severity is BLOCKER, is_folder, is_file)


def _other_files(named: _Named, mounts: Sequence[UnitMount]) -> Iterator[UnitMount]:
    """Yield the deepest mount above a path if it shows other files, and each one below a folder that does."""
    above = [one for one in mounts if _is_at(named.path, one.path) or _is_at(named.place, one.place)]
    deepest = max((len(one.place) for one in above), default=0)
    yield from (
        one
        for one in above
        if len(one.place) == deepest and not one.is_same and (named.is_file or named.place != one.place)
    )
    if named.is_folder:
        yield from (one for one in mounts if one not in above and not one.is_same and _is_at(one.place, named.place))


def _is_at(path: str, folder: str) -> bool:
    """Return whether a path is a folder, or below it."""
    return folder == "/" or f"{path}/".startswith(f"{folder}/")
