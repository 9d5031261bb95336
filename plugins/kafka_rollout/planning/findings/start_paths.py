"""Findings about paths of a node's next start that lead elsewhere when a run switches the link of the release.

The process that runs has read the files of the old release's folder. So a file that it has read, and that has not
changed since, shows nothing about a start after the switch: what counts is where the path leads then.
"""

from __future__ import annotations

import posixpath
import stat
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import assert_never

from kafka_rollout.base.findings import BLOCKER, INFO, WARNING, Finding, FindingCode
from kafka_rollout.base.wording import few
from kafka_rollout.model.file_access import FileAccess, Use
from kafka_rollout.model.host_state import Absence, HostState, PlaceState, StartFileKind, StartPath, StartPlace
from kafka_rollout.model.package_managers import is_apt
from kafka_rollout.model.topology import NodeSpec, ServiceSpec
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.start_scripts import COMMANDS

_SHOWN = 8
_OF_EACH = frozenset({"", "bin", "libs", "config", *(f"bin/{name}" for name in COMMANDS)})
"""What each release has below its folder."""

START_PATH_SWITCHED = FindingCode(
    "START-PATH-SWITCHED",
    (BLOCKER, WARNING),
    "A path that a start reads leads through the link of the release, or belongs to its package: after the change, to "
    "another file or to none.",
)
START_PATH_UNKNOWN = FindingCode(
    "START-PATH-UNKNOWN",
    (WARNING, INFO),
    "Where such a path leads after the switch, whether it exists, or whether the user of the unit can use it, is "
    "unknown; an info if only a link in a hidden folder can matter, and for the use of a path that no switch changes.",
)
START_NOT_SWITCHED = FindingCode(
    "START-NOT-SWITCHED", BLOCKER, "The unit of a node does not start through the link of the release."
)
START_FILE_FORBIDDEN = FindingCode(
    "START-FILE-FORBIDDEN",
    (BLOCKER, WARNING),
    "The user of the unit cannot enter, read, write or execute a file or a folder as the next start of the node does.",
)
START_PATH_MISSING = FindingCode(
    "START-PATH-MISSING",
    (BLOCKER, WARNING),
    "A file or a folder that the next start of a node needs does not exist. A process that runs does not show that.",
)
START_PATH_PRESENT = FindingCode(
    "START-PATH-PRESENT",
    BLOCKER,
    "A path exists that must not exist for a start (ConditionPathExists=! of the unit), so systemd skips the next "
    "start of the node without an error.",
)
START_PATH_REMOVED = FindingCode(
    "START-PATH-REMOVED",
    (BLOCKER, WARNING),
    "systemd removes a path at the stop of a unit (RuntimeDirectory=, PrivateTmp=), and the next start needs it and "
    "does not make it. `systemctl restart` can keep it, so the restarts of a site do not show it.",
)
START_PATH_CODES = (
    *(START_PATH_SWITCHED, START_PATH_UNKNOWN, START_NOT_SWITCHED, START_FILE_FORBIDDEN),
    *(START_PATH_MISSING, START_PATH_PRESENT, START_PATH_REMOVED),
)


class Fate(StrEnum):
    """What a switch does to a path."""

    STAYS = "stays"
    REPLACED = "replaced"
    """What it leads to is never right on the other release, whether it exists there or not."""
    MISSING = "missing"
    OTHER = "other"
    """A file of the other folder, whose content differs or is not known."""
    HIDDEN = "hidden"
    """It stays, unless a link in a folder that the SSH user cannot enter leads through the link of the release."""
    UNKNOWN = "unknown"


def fate_of(path: StartPath, release: Release | None, host: HostState) -> Fate:
    """Return what the switch to a release does to a path; None: to any other release."""
    after = path.after.get(release)
    if after is None:
        return Fate.STAYS if release is None else Fate.UNKNOWN
    if after.path == path.now.path:
        is_seen = path.now.state is not PlaceState.HIDDEN or _has_no_link(path.now.path, host)
        return Fate.STAYS if is_seen else Fate.HIDDEN
    match path.kind:
        case StartFileKind.CONFIGURATION | StartFileKind.IDENTITY:
            return Fate.REPLACED
        case StartFileKind.BARRED:
            return Fate.UNKNOWN if after.state is PlaceState.HIDDEN else Fate.STAYS
        case StartFileKind.LIBRARIES:
            return Fate.STAYS  # the jars of each release; what is added to them is FOREIGN-JARS and PLUGIN-CLASS
        case StartFileKind.PROGRAM | StartFileKind.CONDITION | StartFileKind.AGENT | StartFileKind.JAR:
            exists = Fate.STAYS  # another release can bring another one
        case StartFileKind.PLANNED:
            exists = Fate.STAYS  # no start has read the one of now
        case StartFileKind.JVM | StartFileKind.UNIT | StartFileKind.KEYS | StartFileKind.LOGGING | StartFileKind.NAMED:
            exists = Fate.STAYS if after.is_same else Fate.OTHER
        case StartFileKind.PROVIDED | StartFileKind.KEY_TAB | StartFileKind.INNER:
            exists = Fate.STAYS if after.is_same else Fate.OTHER
        case _:
            assert_never(path.kind)
    match after.state:
        case PlaceState.FOLDER:
            return Fate.STAYS
        case PlaceState.FILE:
            return exists
        case PlaceState.HIDDEN:
            return Fate.UNKNOWN
        case PlaceState.MISSING:
            return _missing(path, release, host)
        case _:
            assert_never(after.state)


def _missing(path: StartPath, release: Release | None, host: HostState) -> Fate:
    """Return the fate of a path that leads to nothing in the folder of the release."""
    if path.now.state is PlaceState.MISSING:
        return Fate.STAYS  # nor does it now
    linked = "" if host.link is None else host.link.now.path
    if path.kind is StartFileKind.JAR and posixpath.dirname(path.now.path) == f"{linked}/libs":
        return Fate.STAYS  # a jar of the release with its version, or FOREIGN-JARS
    below = path.now.path.removeprefix(linked).strip("/")
    return Fate.STAYS if below in _OF_EACH and not _is_there(release, host) else Fate.MISSING


def _has_no_link(path: str, host: HostState) -> bool:
    """Return whether a plan sees with its rights that neither a file nor a folder above it is a link."""
    modes = {one.path: one.mode for one in host.paths}
    above = [str(folder) for folder in PurePosixPath(path).parents]
    return all(one in modes and not stat.S_ISLNK(modes[one]) for one in (path, *above))


def _is_there(release: Release | None, host: HostState) -> bool:
    return release is not None and release in host.releases and release not in host.brought


@dataclass(frozen=True, slots=True, kw_only=True)
class _Switch:
    """The switch of a node's link."""

    node_id: int
    service: ServiceSpec
    host: HostState
    release: Release | None
    """None if it is not known yet."""

    @property
    def subject(self) -> str:
        return f"node {self.node_id}" + ("" if self.release is None else f", release {self.release}")


def start_path_findings(node: NodeSpec, host: HostState, releases: Sequence[Release]) -> Iterator[Finding]:
    """Yield the findings of one node. Without `releases`, those that are true of every switch."""
    service = node.service
    if service is None:
        return
    if service.package is not None:
        yield from _package_findings(node, host, releases)
        yield from _missing_findings(node, service, host, releases)
        yield from _present_findings(node, service, host, releases)
        yield from _deleted_data_findings(node, service, host)
        yield from _removed_findings(node, service, host)
        return
    unknown: dict[Fate, dict[str, None]] = {Fate.UNKNOWN: {}, Fate.HIDDEN: {}}
    for release in (*releases,) or (None,):
        switch = _Switch(node_id=node.node_id, service=service, host=host, release=release)
        found: defaultdict[tuple[Fate, StartFileKind, bool], list[StartPath]] = defaultdict(list)
        for path in host.start_paths:
            found[fate_of(path, release, host), path.kind, path.is_needed].append(path)
        for (fate, kind, is_needed), paths in found.items():
            if fate in unknown:
                unknown[fate] |= {path.path: None for path in paths}
            elif fate is not Fate.STAYS:
                yield _switched(switch, fate, kind, paths, is_needed=is_needed)
        yield from _not_switched(switch)
    for fate, names in unknown.items():
        if names:
            yield START_PATH_UNKNOWN.found(
                f"node {node.node_id}" + (", hidden folders" if fate is Fate.HIDDEN else ""),
                f"The SSH user cannot see where {few(names, limit=_SHOWN)} of node {node.node_id} leads when a run "
                f"switches {service.symlink} on host {host.name}.",
                "Give the SSH user the right to enter the folders above. Or check that no link in them leads through "
                f"{service.symlink}, and that each release has what the node reads.",
                severity=INFO if fate is Fate.HIDDEN else WARNING,
            )
    yield from _access_findings(node, host, releases)
    yield from _missing_findings(node, service, host, releases)
    yield from _present_findings(node, service, host, releases)
    yield from _deleted_data_findings(node, service, host)
    yield from _removed_findings(node, service, host)
    if host.start_paths_problem:
        yield START_PATH_UNKNOWN.found(
            f"node {node.node_id}, options",
            f"Not every path that node {node.node_id} reads at its start is known: {host.start_paths_problem}",
            f"Check that no path in the options of {service.unit} leads through {service.symlink}.",
            severity=INFO if host.facts.arguments else WARNING,  # those of the process are known
        )


def _package_findings(node: NodeSpec, host: HostState, releases: Sequence[Release]) -> Iterator[Finding]:
    """Yield what the next start reads of the package, and the package of a release replaces, lacks or can lack."""
    edit = f"the unit (`systemctl edit {host.unit}`), its environment or the configuration"
    move = f"copy the file to a folder outside of the package, name the copy in {edit}, and restart the node"
    if not releases or {*releases} - {host.installed}:
        yield from _edited_findings(node, host, move)
    for release in releases:
        lost: defaultdict[tuple[StartFileKind, bool, bool], list[str]] = defaultdict(list)
        unknown: list[str] = []
        for path in (one for one in host.start_paths if one.now.state is not PlaceState.MISSING):
            if release not in path.after:
                unknown.append(path.path)
            elif path.after[release].state is PlaceState.MISSING:
                lost[path.kind, path.is_of_unit, path.is_needed].append(path.path)
        for (kind, is_of_unit, is_needed), paths in lost.items():
            yield START_PATH_SWITCHED.found(
                f"node {node.node_id}, release {release}, {kind.value}{'' if is_of_unit else ' of the process'}",
                f"Node {node.node_id} reads {few(paths, limit=_SHOWN)} ({kind.value}) at its start. This belongs to "
                f"the package of Kafka on host {host.name}, and the package of {release} does not have it. "
                + ("The node needs it to start." if is_of_unit else "No file that the SSH user can read names it."),
                f"Before the run, {move}. Or name a path that the packages of all releases have.",
                severity=BLOCKER if is_of_unit and is_needed and kind is not StartFileKind.LOGGING else WARNING,
            )
        if unknown and release not in host.unavailable:
            yield START_PATH_UNKNOWN.found(
                f"node {node.node_id}, release {release}, package",
                f"Node {node.node_id} reads {few(unknown, limit=_SHOWN)} of the package of Kafka at its start. Host "
                f"{host.name} does not list the files of the package of {release}.",
                f"List them (`dpkg-deb --contents`, `rpm -qlp`). If the file is missing, {move}.",
                severity=WARNING,
            )
    if host.start_paths_problem:
        yield START_PATH_UNKNOWN.found(
            f"node {node.node_id}, options",
            f"Not every path that node {node.node_id} reads at its start is known: {host.start_paths_problem}",
            f"Check that no path in the options of {host.unit} belongs to the package of Kafka.",
            severity=INFO if host.facts.arguments else WARNING,  # those of the process are known
        )


def _edited_findings(node: NodeSpec, host: HostState, move: str) -> Iterator[Finding]:
    """Yield the files of the package that the site has edited: each installation replaces them."""
    edited: defaultdict[tuple[StartFileKind, bool], list[str]] = defaultdict(list)
    unknown: list[str] = []
    for path in host.start_paths:
        if path.is_edited:
            edited[path.kind, path.is_needed].append(path.path)
        elif path.is_edited is None:
            unknown.append(path.path)
    install = node.service.package.install if node.service and node.service.package else ()
    extract = (
        "dpkg-deb --fsys-tarfile PACKAGE.deb | tar --extract"
        if is_apt(install)
        else "rpm2cpio PACKAGE.rpm | cpio --extract"
    )
    drop_in = f"a drop-in (`systemctl edit {host.unit}`)"
    for (kind, is_needed), paths in edited.items():
        divert = " Or keep it with `dpkg-divert --local --no-rename --add FILE` as root." if is_apt(install) else ""
        match kind:
            case StartFileKind.UNIT:
                own = f"write the changes into {drop_in} or an EnvironmentFile of your own, and restart the node"
            case StartFileKind.PROGRAM:  # a start script fits the jars of its own release
                own = f"write the changes into {drop_in}, for example as KAFKA_OPTS, and restart the node"
                divert = ""
            case _:
                own = move
        yield START_PATH_SWITCHED.found(
            f"node {node.node_id}, {kind.value}, edited" + ("" if is_needed else ", not needed to start"),
            f"Node {node.node_id} reads {few(paths, limit=_SHOWN)} ({kind.value}) at its start. This belongs to the "
            f"package of Kafka on host {host.name}, and was edited there. Each installation, also that of a rollback, "
            "replaces it with the file of the package.",
            f"Before the run, {own}. Then copy the file out of the package (`{extract}`): a "
            f"reinstallation can restart the node.{divert}",
            severity=BLOCKER if is_needed and kind is not StartFileKind.LOGGING else WARNING,
        )
    if unknown:
        yield START_PATH_UNKNOWN.found(
            f"node {node.node_id}, edited",
            f"The SSH user cannot see whether {few(unknown, limit=_SHOWN)} on host {host.name} still has the content "
            f"of the package of Kafka. An installation replaces a file that was edited, and node {node.node_id} reads "
            "it at its start.",
            f"Run `{'dpkg' if is_apt(install) else 'rpm'} --verify` for the package as root. If a line of the file has "
            f"a 5, {move}.",
            severity=WARNING,
        )


_NEEDED_AT_START = frozenset(
    {
        *(StartFileKind.CONFIGURATION, StartFileKind.IDENTITY, StartFileKind.LIBRARIES, StartFileKind.JAR),
        *(StartFileKind.KEYS, StartFileKind.KEY_TAB, StartFileKind.PROVIDED, StartFileKind.PLANNED),
        *(StartFileKind.AGENT, StartFileKind.UNIT),
    }
)
"""Whatever else a check reports of them if they are missing; UNIT: with other variables, if it is optional."""
# The node starts without them, or it is not known how it uses them.
_NOT_NEEDED = frozenset({StartFileKind.LOGGING, StartFileKind.JVM, StartFileKind.NAMED, StartFileKind.INNER})


def _access_findings(node: NodeSpec, host: HostState, releases: Sequence[Release]) -> Iterator[Finding]:
    """Yield what the user of the unit cannot do with the paths of its next start, and where this is unknown."""
    refused: defaultdict[tuple[str, FileAccess], dict[str, StartPath]] = defaultdict(dict)
    unknown: defaultdict[tuple[bool, str, str], dict[str, None]] = defaultdict(dict)
    for release in (*releases,) or (None,):
        for path in host.start_paths:
            place = path.after.get(release)
            if place is None or _is_of_missing_release(place, release, host):
                continue
            moves, access = path.moves(release), place.access
            if access.refused:
                at = f", release {release}" if moves and release is not None else ""
                refused[f"node {node.node_id}{at}, {access.place}", access][path.path] = path
            elif access.unknown and place.state is not PlaceState.HIDDEN:
                unknown[moves, access.user, access.unknown][path.path] = None
    for (subject, access), paths in refused.items():
        is_needed = any(path.is_needed and path.kind not in _NOT_NEEDED for path in paths.values())
        yield START_FILE_FORBIDDEN.found(
            subject,
            f"Node {node.node_id} uses {few(list(paths), limit=_SHOWN)} at its start, and user {access.user} of "
            f"{host.unit} on host {host.name} {access.refused}.",
            f"{_permit(access, list(paths.values()))}, then plan again.",
            severity=BLOCKER if is_needed else WARNING,
        )
    for (moves, user, why), names in unknown.items():
        yield START_PATH_UNKNOWN.found(
            f"node {node.node_id}, rights{', after the switch' if moves else ''}, {why}",
            f"The SSH user cannot see whether user {user} of {host.unit} on host {host.name} can use "
            f"{few(list(names), limit=_SHOWN)} as the start of node {node.node_id} does: {why}.",
            f"Check as root that {user} can: `sudo -u {user} test -r FILE`, and `test -x` for programs and folders.",
            severity=WARNING if moves else INFO,
        )


def _present_findings(
    node: NodeSpec, service: ServiceSpec, host: HostState, releases: Sequence[Release]
) -> Iterator[Finding]:
    there: dict[str, None] = {}
    hidden: dict[str, None] = {}
    for path in (one for one in host.start_paths if not one.removed_by):
        places = [path.after.get(release) for release in (*releases,) or (None,)]
        states = {place.state for place in places if place is not None}
        if path.kind is StartFileKind.BARRED and states & {PlaceState.FILE, PlaceState.FOLDER}:
            there[path.path] = None
        elif path.kind is StartFileKind.BARRED and PlaceState.HIDDEN in states:
            hidden[path.path] = None
    if hidden:
        yield START_PATH_UNKNOWN.found(
            f"node {node.node_id}, paths that must not exist",
            f"The SSH user cannot see whether {few(hidden, limit=_SHOWN)} {'exists' if len(hidden) == 1 else 'exist'} "
            f"on host {host.name}. {service.unit} starts only without.",
            "Check as root that no such path exists: `sudo ls -d PATH`.",
            severity=WARNING,
        )
    for name in there:
        yield START_PATH_PRESENT.found(
            f"node {node.node_id}, {name}",
            f"{name} exists on host {host.name}, and {service.unit} starts only without it (`!{name}` in its "
            f"conditions). systemd skips the next start of node {node.node_id} then, without an error.",
            f"Find what has made {name}, such as a maintenance. When it has ended, remove the path, then plan again.",
        )


def _missing_findings(
    node: NodeSpec, service: ServiceSpec, host: HostState, releases: Sequence[Release]
) -> Iterator[Finding]:
    """Yield what the next start reads and what does not exist, whether a run switches anything or not."""
    missing: defaultdict[tuple[Absence, StartFileKind], dict[str, None]] = defaultdict(dict)
    for release in (*releases,) or (None,):
        for path in host.start_paths:
            installs_nothing = release is None or (service.package is not None and release == host.installed)
            place = path.now if installs_nothing else path.after.get(release)
            if place is None or {place.state, path.now.state} != {PlaceState.MISSING}:
                continue
            if path.absence is not Absence.HARMLESS and not _is_of_missing_release(place, release, host):
                missing[path.absence, path.kind][path.path] = None
    for (absence, kind), paths in missing.items():
        is_fatal = absence is Absence.FATAL
        names = few(list(paths), limit=_SHOWN)
        result = (
            "systemd does not start the node then, and can report no error."
            if kind is StartFileKind.CONDITION
            else "The node does not start with these lines without it."
            if kind is StartFileKind.PLANNED
            else "The node does not start without it, on no release, so a rollback does not start it either."
            if is_fatal
            else "The node can start without it, fail or use a default."
        )
        yield START_PATH_MISSING.found(
            f"node {node.node_id}, {kind.value}{'' if is_fatal else ', options and settings'}",
            f"{names} ({kind.value}) does not exist on host {host.name}, and the next start of node {node.node_id} "
            f"names it. The process that runs shows nothing about it. {result}",
            f"{'Create' if kind is StartFileKind.PLANNED else 'Restore'} {names}, or correct the path in "
            f"{_place_of(kind, service)}. Then plan again.",
            severity=BLOCKER if is_fatal else WARNING,
        )


def _deleted_data_findings(node: NodeSpec, service: ServiceSpec, host: HostState) -> Iterator[Finding]:
    """Yield the log directories that a stop deletes. A start makes them again, empty."""
    settings: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for path in host.start_paths:
        if path.kind is StartFileKind.IDENTITY and path.removed_by and path.now.state is not PlaceState.MISSING:
            settings[path.removed_by][path.path] = None
    for setting, paths in settings.items():
        names = few(paths, limit=_SHOWN)
        yield START_PATH_REMOVED.found(
            f"node {node.node_id}, {setting}, log directory",
            f"{service.unit} on host {host.name} has {setting}, so systemd deletes {names} (log directory) when node "
            f"{node.node_id} is stopped, with all its data. A rollback does not bring it back.",
            f"Do not stop the node now. Set RuntimeDirectoryPreserve=yes in the unit (`systemctl edit {service.unit}`) "
            f"and run `systemctl daemon-reload`. Then stop the node, copy {names} to a folder below /var/lib with its "
            "owner, name it in log.dirs, start the node, and plan again."
            if setting.startswith("RuntimeDirectory")
            else "Do not stop the node now: nothing keeps this folder. Be sure that each of its partitions has other "
            "in-sync replicas, and move the others (kafka-reassign-partitions.sh). Then set log.dirs to a folder below "
            "/var/lib, as for a node whose disk is replaced.",
            severity=BLOCKER,
        )


def _removed_findings(node: NodeSpec, service: ServiceSpec, host: HostState) -> Iterator[Finding]:
    """Yield what is there now, and not after the stop."""
    removed: defaultdict[tuple[str, bool], dict[str, None]] = defaultdict(dict)
    for path in host.start_paths:
        if path.kind is StartFileKind.IDENTITY:
            continue
        is_fatal = path.is_needed and (path.absence is Absence.FATAL or path.kind in _NEEDED_AT_START)
        is_named = is_fatal or path.absence is Absence.DOUBTFUL or path.kind is StartFileKind.LOGGING
        if is_named and path.removed_by and path.now.state is not PlaceState.MISSING:
            removed[path.removed_by, is_fatal][path.path] = None
    for (setting, is_fatal), paths in removed.items():
        names = few(paths, limit=_SHOWN)
        keep = (
            "set RuntimeDirectoryPreserve=yes in it, run `systemctl daemon-reload`, and plan again"
            if setting.startswith("RuntimeDirectory")
            else "remove PrivateTmp= from it, restart the node, and plan again"
        )
        yield START_PATH_REMOVED.found(
            f"node {node.node_id}, {setting}" + ("" if is_fatal else ", options and settings"),
            f"{service.unit} on host {host.name} has {setting}, so systemd removes {names} when a run stops node "
            f"{node.node_id}. The next start names it, also that of a rollback, and no command of the unit makes it. "
            + ("The node does not start without it." if is_fatal else "The node can start without it or fail."),
            f"Move {names} to a folder that a stop keeps, such as /etc/kafka, and name it there. Or write a command "
            f"that makes it into ExecStartPre= of the unit (`systemctl edit {service.unit}`), or {keep}.",
            severity=BLOCKER if is_fatal else WARNING,
        )


def _is_of_missing_release(place: StartPlace, release: Release | None, host: HostState) -> bool:
    """Return whether the place is in the folder of a release that is not installed, which another finding names."""
    folder = None if release is None or _is_there(release, host) else host.folders.get(release)
    return folder is not None and f"{place.path}/".startswith(f"{folder}/")


def _permit(access: FileAccess, paths: Collection[StartPath]) -> str:
    """Return the remedy of a refusal. Only programs and jars are opened to every user: other files can have
    passwords."""
    if any(one in access.refused for one in ("noexec", "ProtectHome", "InaccessiblePaths", "NoExecPaths")):
        return "Move the files to another folder, or change the unit or the mount options"
    kinds = {path.kind for path in paths if not path.path.endswith(".jar")}
    if "execute" in access.refused:
        if kinds <= {StartFileKind.PROGRAM}:
            return f"Run `chmod a+rx {access.place}` on the host as its owner"
        return (
            f"Give {access.place} to a group of {access.user} (`chgrp`), and permit this group to execute it "
            f"(`chmod g+rx {access.place}`)"
        )
    if kinds <= {StartFileKind.PROGRAM, StartFileKind.LIBRARIES, StartFileKind.JAR}:
        # A folder on the way, such as a home, has files of others.
        mode = "a+x" if access.refused.startswith(f"cannot {Use.ENTER} ") else "-R a+rX"
        return f"Run `chmod {mode} {access.place}` on the host as its owner"
    return (
        f"Give {access.place} to a group of {access.user} (`chgrp`), and permit this group to read it "
        f"(`chmod g+rX {access.place}`)"
    )


def _switched(
    switch: _Switch, fate: Fate, kind: StartFileKind, paths: Sequence[StartPath], *, is_needed: bool
) -> Finding:
    service, release = switch.service, switch.release
    word = "log directory" if kind is StartFileKind.IDENTITY else kind.value
    names, now = (few(each, limit=_SHOWN) for each in ([p.path for p in paths], [p.now.path for p in paths]))
    after = few([path.after[release].path for path in paths], limit=_SHOWN)
    then = "a path in the folder of another release" if release is None else after
    fact = (
        f"Node {switch.node_id} reads {names} ({word}) at its start. This is {now} now, and {then} when a run "
        f"has switched {service.symlink}{'' if release is None else f' to Kafka {release}'}."
    )
    name_it = f"name the new path in {_place_of(kind, service)}"
    move = f"move it to a folder that no run switches, {name_it}, and restart the node"
    subject, severity = f"{switch.subject}, {word}", BLOCKER
    if kind is StartFileKind.CONFIGURATION:
        result = "The node would start with another configuration or not at all."
        remedy = (
            f"Copy {now} to a folder that no run switches, for example to "
            f"/etc/kafka/{posixpath.basename(paths[0].path)}, and {name_it}. Print the sudoers file again "
            "(`kafka-rollout inventory rights --cluster NAME --of hosts`), and restart the node."
        )
    elif kind is StartFileKind.IDENTITY:
        result = "The node would start without its data or not at all."
        remedy = (
            f"On one node after the other, stop {service.unit}, move {now} to a folder that no run switches, for "
            f"example below /var/lib/kafka, {name_it}, and start {service.unit}. Then print the sudoers file again "
            "(`kafka-rollout inventory rights --cluster NAME --of hosts`)."
        )
    elif fate is Fate.OTHER:
        subject, severity = f"{subject}, other content", WARNING
        result = "The second one has another content, or the SSH user cannot compare the two."
        remedy = f"Compare them. If the node needs the first one, {move}."
    elif release is None:
        severity = WARNING
        result = "The folder of each release must have it."
        remedy = f"Run `kafka-rollout inventory check --to RELEASE` for the folder of one release, or {move}."
    else:
        is_log = kind is StartFileKind.LOGGING
        severity = BLOCKER if is_needed and not is_log else WARNING
        subject = subject if is_needed else f"{subject}, not needed to start"
        result = "There is none. " + (
            "The node would run and not log."
            if is_log
            else "It is not known whether the node starts without it."
            if kind is StartFileKind.INNER and not is_needed
            else "systemd starts and stops the node without it."
            if not is_needed
            else "Without it, systemd does not start the node, and can report no error."
            if kind is StartFileKind.CONDITION
            else "The node needs it to start."
        )
        copy = f"Copy {now} to {after}. Or" if _is_there(release, switch.host) else "Before the run,"
        other = "If LOG-CONFIG-UNREADABLE names it too, follow that remedy instead. " if is_log else ""
        remedy = f"{other}{copy} {move}."
    return START_PATH_SWITCHED.found(subject, f"{fact} {result}", remedy, severity=severity)


def _place_of(kind: StartFileKind, service: ServiceSpec) -> str:
    """Return where an operator names a path of this kind."""
    unit = f"the unit (`systemctl edit {service.unit}`)"
    match kind:
        case StartFileKind.CONFIGURATION:
            return f"ExecStart of {unit} and in configuration_file of the inventory"
        case StartFileKind.IDENTITY:
            return "log.dirs or metadata.log.dir"
        case StartFileKind.KEY_TAB:
            return "the JAAS file"
        case StartFileKind.INNER:
            return "the file that names it"
        case StartFileKind.NAMED | StartFileKind.KEYS | StartFileKind.PROVIDED:
            return f"{service.configuration_file} or {unit}"
        case StartFileKind.PLANNED:
            return "release_overrides of the inventory"
        case _:
            return f"{unit} or its environment"


def _not_switched(switch: _Switch) -> Iterator[Finding]:
    """Yield a finding if the start script of the unit, or else the class path of its process, is not below the link."""
    host, release, service = switch.host, switch.release, switch.service
    if host.link is None or not host.link.moves(release):
        return
    linked = host.link.now.path
    scripts = [path for path in host.start_paths if path.is_of_unit and _is_start_script(path)]
    libraries = [path for path in host.start_paths if _is_class_path(path, linked)]
    # An entry of CLASSPATH is before those that the start script adds.
    fixed = [path for path in libraries if path.kind is StartFileKind.JAR and not path.moves(release)]
    starts = [path for path in fixed if scripts and release in path.after] or scripts or libraries
    if not starts or any(path.moves(release) or release not in path.after for path in starts):
        return
    if host.link.is_resolved and not scripts:
        yield START_PATH_UNKNOWN.found(
            f"{switch.subject}, link",
            f"The start of {service.unit} on host {host.name} resolves the link {service.symlink} itself, so the class "
            "path of its process does not show whether the next start follows the link.",
            f"Check that its script names no folder of a release. Or let it start {service.symlink}/bin/"
            "kafka-server-start.sh.",
            severity=WARNING,
        )
        return
    yield START_NOT_SWITCHED.found(
        switch.subject,
        f"{service.unit} on host {host.name} starts {few([path.path for path in starts], limit=2)}, and not through "
        f"the link {service.symlink}. After the switch of the link it would start the release that runs now again.",
        f"Let the unit start {service.symlink}/bin/kafka-server-start.sh, without a folder of a release in CLASSPATH "
        f"(`systemctl edit {service.unit}`), and restart the node. Or write the link through which the unit starts "
        "into the inventory (symlink).",
    )


def _is_start_script(path: StartPath) -> bool:
    names = ("kafka-server-start", "kafka-run-class")
    return path.kind is StartFileKind.PROGRAM and posixpath.basename(path.path).startswith(names)


def _is_class_path(path: StartPath, linked: str) -> bool:
    """Return whether a path is one to the jars of the release that runs. `linked`: its folder."""
    of_release = f"{linked}/libs" in (path.now.path, posixpath.dirname(path.now.path))
    return path.kind is StartFileKind.LIBRARIES or (path.kind is StartFileKind.JAR and of_release)
