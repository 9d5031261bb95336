"""Where a node unpacks the native libraries of zstd and snappy, and whether the next process can load them there.

Both are files of a jar. At the first batch with such a compression, zstd-jni and snappy-java write theirs to
java.io.tmpdir, and map it as a program: a mount with noexec refuses that. A process that did this before the file
system was mounted so shows nothing. zstd-jni needs a folder that exists, and snappy-java makes its own.

Source: com.github.luben.zstd.util.Native and org.xerial.snappy.SnappyLoader.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import replace

from kafka_rollout.model.file_access import FileAccess, Use
from kafka_rollout.model.host_state import PlaceState, StartWrite
from kafka_rollout.model.jvm_options import NextOptions, shown_option
from kafka_rollout.model.starts import MAIN_CLASS, properties_of
from kafka_rollout.model.topology import NodeSpec, Role
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.option_sources import ScriptsOfStart, UnitOptions
from kafka_rollout.nodes.runtimes.hosts.start_writes import UnitSandbox, nearest, read_sandbox, ways
from kafka_rollout.nodes.runtimes.hosts.user_access import Followed, Lookup, follow, read_access, read_unit_user
from kafka_rollout.releases.facts import Release

ZSTD, SNAPPY = "zstd", "snappy"
_FOLDERS = {ZSTD: "ZstdTempFolder", SNAPPY: "org.xerial.snappy.tempdir"}
_INSTEAD = {
    ZSTD: ("ZstdNativePath",),
    SNAPPY: ("org.xerial.snappy.lib.path", "org.xerial.snappy.use.systemlib"),
}
"""Properties by which a library is not unpacked."""
_ROOT = Followed((), "/", PlaceState.FOLDER)
_DEFAULT = "/tmp"  # noqa: S108 - of the JVM on the host


def read_library_folders(
    commands: HostCommands,
    node: NodeSpec,
    releases: Sequence[Release],
    *,
    process: Sequence[str],
    unit: UnitOptions,
    start: ScriptsOfStart,
) -> tuple[StartWrite, ...]:
    """Return the folders of a start on each release. `process`: the command line of the node's.

    Raises RefusedError or TransientError if the host does not report where the paths lead.
    """
    if Role.BROKER not in node.roles:
        return ()
    wanted = [(release, *one) for release in releases for one in _folders(_options(release, process, start)).items()]
    paths = list(dict.fromkeys(one for _, folder, _ in wanted for one in ways(folder) if one.isprintable()))
    if not paths:
        return ()
    sandbox = read_sandbox(commands, node, unit)
    places = follow(commands, node, paths)
    lookups = {folder: _lookup(folder, places, is_private=sandbox.is_private(folder)) for _, folder, _ in wanted}
    user = read_unit_user(commands, node).name
    access = dict(zip(lookups, read_access(commands, node, list(lookups.values())), strict=True))
    return tuple(
        StartWrite(
            release=release,
            path=folder,
            place=places[folder].place if folder in places else folder,
            access=_access(folder, codecs, places.get(folder), sandbox, replace(access[folder], user=user)),
            moves=False,
            codecs=codecs,
        )
        for release, folder, codecs in wanted
    )


def _options(release: Release, process: Sequence[str], start: ScriptsOfStart) -> tuple[str, ...]:
    own = process[: process.index(MAIN_CLASS)] if MAIN_CLASS in process else process
    options = start.options.get(release, start.options.get(None, NextOptions()))
    lost = {one.option for one in (*options.lost, *options.gone)}
    return (*(word for word in own if shown_option(word) not in lost), *options.environment)


def _folders(options: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return folder → the compressions whose library is unpacked there."""
    values = properties_of(options)
    found: dict[str, tuple[str, ...]] = {}
    for codec, name in _FOLDERS.items():
        folder = posixpath.normpath(values.get(name) or values.get("java.io.tmpdir") or _DEFAULT)
        if folder.startswith("/") and not any(values.get(one) for one in _INSTEAD[codec]):
            found[folder] = (*found.get(folder, ()), codec)
    return found


def _lookup(folder: str, places: dict[str, Followed], *, is_private: bool) -> Lookup:
    """systemd makes a private folder for the user of the unit, on the file system of the host's."""
    found = places.get(nearest(folder, places), _ROOT)
    return Lookup((), found.place, Use.EXECUTE) if is_private else Lookup(found.way, found.place, Use.LOAD)


def _access(
    folder: str, codecs: Sequence[str], found: Followed | None, sandbox: UnitSandbox, asked: FileAccess
) -> FileAccess:
    """Return the access with what the unit makes of the folder. `asked`: without that."""
    user = asked.user
    if found is None:
        return FileAccess(user=user, unknown=f"the host does not report where {folder} leads")
    if sandbox.is_disconnected and sandbox.is_private(folder):  # an empty file system for the user of the unit
        return FileAccess(user=user)
    forms = (folder, found.place)
    if setting := next((one for form in forms if (one := sandbox.why_mounted(form))), ""):
        return FileAccess(user=user, unknown=f"only the unit sees what is there ({setting})")
    if setting := sandbox.why_read_only(forms, {one: one for one in (*sandbox.read_only, *sandbox.writable)}):
        return FileAccess(
            user=user, refused=f"cannot write there: it is read-only for the unit ({setting})", place=setting
        )
    is_made = any(map(sandbox.prepares, forms))
    is_missing = found.state is PlaceState.MISSING or (
        found.state is PlaceState.FOLDER and sandbox.is_below_private(folder)
    )
    if is_missing and ZSTD in codecs and not is_made:
        return FileAccess(user=user, refused=f"finds no folder {folder}", place=folder)
    if found.state is PlaceState.HIDDEN:
        return FileAccess(user=user, unknown=f"the SSH user cannot enter the folders above {found.place}")
    return asked if not is_made or "noexec" in asked.refused else FileAccess(user=user, unknown=asked.unknown)
