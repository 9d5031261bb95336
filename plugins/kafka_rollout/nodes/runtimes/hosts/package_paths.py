"""What the next start of a node reads of its package: another release of the package replaces or removes these files.

The package manager of the host names the owner of a file and knows whether its content is that of the package, and the
repository lists the files of another release. Nothing needs a right. A list counts if it has Kafka's own jar.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_rollout.model.host_state import Absence, PlaceState, StartFileKind, StartPath, StartPlace
from kafka_rollout.model.package_managers import names_of, print_files
from kafka_rollout.model.topology import NodeSpec, PackageSpec
from kafka_rollout.nodes.runtimes.hosts.commands import LIST_S, RECORDS, HostCommands, service_of
from kafka_rollout.nodes.runtimes.hosts.installing import JAR
from kafka_rollout.nodes.runtimes.hosts.package_states import read_changed
from kafka_rollout.nodes.runtimes.hosts.user_access import follow
from kafka_rollout.releases.facts import Release

# The run keeps the configuration; each release brings its jars; data are of no package.
_LEFT_OUT = frozenset({StartFileKind.CONFIGURATION, StartFileKind.IDENTITY, StartFileKind.LIBRARIES})
_NAMES = frozenset({StartFileKind.UNIT, StartFileKind.PROGRAM})
"""Kinds of files that name others."""
_IN_USR = ("/bin/", "/sbin/", "/lib")
# A Debian package can list a file of /usr/lib in /lib, which is a link to it, and dpkg-query compares the names.
# A configuration file of a Debian package stays where it is, also if another version of the package lacks it.
_OWNERS = """\
owner() {{ short=${{1#/usr}}; test "$short" -ef "$1" || short=$1; \
dpkg-query -S "$1" "$short" 2>/dev/null | sed -n '1s/: \\/.*//p'; \
of=$(rpm -qf --qf '%{{NAME}}\\n' -- "$1" 2>/dev/null) && echo "$of"; }}
kept=$(dpkg-query -W -f '${{Conffiles}}\\n' {names} 2>/dev/null | sed -n 's/^ \\(\\/[^ ]*\\) .*/\\1/p')
set -- {jars}/kafka_2.*.jar; echo "kafka" $(owner "$1"); number=0
while IFS= read -r name; do real=$(readlink -e -- "$name") || real=; is_kept=-
of=$(owner "$name"); test "$of" || test "$real" = "$name" || test ! "$real" || of=$(owner "$real")
for one in $kept; do case $one in "$name"|"$real") is_kept=+;; esac; done
printf '%s\\t%s\\n' "$number $is_kept$real" "$(echo $of)"; number=$((number + 1)); done
"""
# `listed` and a path whose content the package manager knows, `kept` and one that no installation replaces once it was
# edited (%config(noreplace) of rpm), and the lines of --verify, of which only the content counts.
_VERIFY = """\
for name in {names}; do
if dpkg-query -W -- "$name" >/dev/null 2>&1; then
dpkg-query --control-show "$name" md5sums 2>/dev/null | sed 's|^[0-9a-f]*  */*|listed /|'
dpkg-query -W -f '${{Conffiles}}\\n' -- "$name" | sed -n 's|^ \\(/[^ ]*\\) .*|listed \\1|p'
dpkg --verify -- "$name" 2>/dev/null
fi
if rpm -q -- "$name" >/dev/null 2>&1; then
rpm -q --qf '[%{{FILEFLAGS}} %{{FILENAMES}}\\n]' -- "$name" | while read -r flags file; do
echo "listed $file"; test $((flags & 16)) = 0 || echo "kept $file"; done
rpm --verify --nodeps --noscripts -- "$name"
fi; done; echo verified
"""
_NAMED_BY = """\
while IFS= read -r name; do grep -D skip -lsF -- "$name" {files} | tr '\\n' '\\t'; echo; done
"""
_MARKS = ("listed ", "kept ")
_LINE = re.compile(r"(\d+) ([+-])([^\t]*)\t(.*)")


class NamedPath(NamedTuple):
    """A path that a start names, absolute, its kind, and whether systemd starts the node only with it."""

    kind: StartFileKind
    path: str
    is_needed: bool


@dataclass(frozen=True, slots=True)
class _Owned:
    """What belongs to the packages of Kafka on a host: path → the place to which it leads."""

    paths: dict[NamedPath, str] = field(default_factory=dict)
    """Without configuration files of dpkg."""
    conffiles: dict[NamedPath, str] = field(default_factory=dict)
    """Those, if the installation replaces them (--force-confnew)."""
    foreign: list[str] = field(default_factory=list)
    """Other files that name paths."""
    packages: dict[str, None] = field(default_factory=dict)
    """Their names."""


def read_package_paths(
    commands: HostCommands, node: NodeSpec, named: Sequence[NamedPath], releases: Sequence[Release]
) -> tuple[tuple[StartPath, ...], str]:
    """Return the paths of the package, apart from those that only its own files name, and why they are not all.

    A release is missing in `after` if the files of its package are unknown.
    """
    service = service_of(node)
    package = service.package
    assert package is not None  # noqa: S101 - the caller has asked
    found, problem = _find_owned(commands, node, package, named)
    owned, foreign = found.paths, found.foreign
    every = {one: real for one, real in (owned | found.conffiles).items() if not _is_of_each(one, real, package)}
    if not every or problem:
        return (), problem
    edited = find_edited(commands, node, every, found.packages)
    wanted = [one for one in every if one in owned]
    own = [one.path for one in owned if one.kind in _NAMES]
    line = _NAMED_BY.format(files=" ".join(map(shlex.quote, ("/dev/null", *foreign, *own))))
    done = commands.shell.run(service.host, line, text="".join(f"{one.path}\n" for one in wanted))
    namers = [set(filter(None, one.split("\t"))) for one in done.out.split("\n")[: len(wanted)]]
    if len(namers) != len(wanted):
        return (), f"Host {service.host} does not report which files name paths: {done.problem}."
    # What only files of the package name, the package replaces with them.
    kept = [
        (one, bool(names & {*foreign}))
        for one, names in zip(wanted, namers, strict=True)
        if names & {*foreign} or not names & {*own}
    ]
    files = {release: _read_files(commands, node, package, release) for release in releases} if kept else {}
    return tuple(
        StartPath(
            kind=one.kind,
            path=one.path,
            now=StartPlace(path=owned[one], state=PlaceState.FILE),
            after={
                release: StartPlace(
                    path=owned[one],
                    state=PlaceState.FILE if {one.path, owned[one]} & listed else PlaceState.MISSING,
                )
                for release, listed in files.items()
                if listed
            },
            is_of_unit=is_named,
            is_needed=one.is_needed,
            is_edited=edited[one],
        )
        for one, is_named in kept
    ) + tuple(
        _replaced(one, real, releases, is_edited=edited[one])
        for one, real in every.items()
        if edited[one] is not False and one not in dict(kept)
    ), ""


def read_absent(
    commands: HostCommands, node: NodeSpec, named: Mapping[NamedPath, Absence], releases: Sequence[Release]
) -> tuple[StartPath, ...]:
    """Return those of the paths that do not exist. The package of a release can bring one."""
    service = service_of(node)
    seen = follow(commands, node, [one.path for one in named])
    absent = [one for one in named if one.path in seen and seen[one.path].state is PlaceState.MISSING]
    assert service.package is not None  # noqa: S101 - the caller has asked
    files = {release: _read_files(commands, node, service.package, release) for release in releases if absent}
    return tuple(
        StartPath(
            kind=one.kind,
            path=one.path,
            now=StartPlace(path=seen[one.path].place, state=PlaceState.MISSING),
            after={
                release: StartPlace(
                    path=seen[one.path].place,
                    state=PlaceState.FILE if {one.path, seen[one.path].place} & listed else PlaceState.MISSING,
                )
                for release, listed in files.items()
            },
            is_needed=one.is_needed,
            absence=named[one],
        )
        for one in absent
    )


def read_barred(
    commands: HostCommands, node: NodeSpec, paths: Sequence[str], releases: Sequence[Release]
) -> tuple[StartPath, ...]:
    """Return those of the paths that must not exist and that do, or of which this is unknown."""
    seen = follow(commands, node, paths) if paths else {}
    places = {path: StartPlace(path=one.place, state=one.state) for path, one in seen.items()}
    keys: list[Release | None] = [*releases] if releases else [None]
    return tuple(
        StartPath(kind=StartFileKind.BARRED, path=path, now=place, after=dict.fromkeys(keys, place))
        for path, place in places.items()
        if place.state is not PlaceState.MISSING
    )


def _replaced(one: NamedPath, real: str, releases: Sequence[Release], *, is_edited: bool | None) -> StartPath:
    """Return a path that only files of the package name: its next release brings what these need, and not the edits."""
    place = StartPlace(path=real, state=PlaceState.FILE)
    after: dict[Release | None, StartPlace] = dict.fromkeys(releases, place)
    return StartPath(kind=one.kind, path=one.path, now=place, after=after, is_needed=one.is_needed, is_edited=is_edited)


def _find_owned(
    commands: HostCommands, node: NodeSpec, package: PackageSpec, named: Sequence[NamedPath]
) -> tuple[_Owned, str]:
    """Return what belongs to the packages, and why that is unknown."""
    host = service_of(node).host
    names = names_of(package.install)
    line = _OWNERS.format(jars=shlex.quote(package.jars), names=" ".join(map(shlex.quote, names)))
    done = commands.shell.run(host, line, text="".join(f"{one.path}\n" for one in named), within_s=LIST_S)
    first, _, rest = done.out.partition("\n")
    found = [match for match in map(_LINE.fullmatch, rest.splitlines()) if match]
    replaces_conffiles = any("force-confnew" in word for word in package.install)
    ours = {_plain(name) for name in (*names, *first.split()[1:])}
    if len(found) != len(named) or not ours:
        return _Owned(), f"Host {host} does not report which files belong to packages: {done.problem}."
    every = _Owned()
    for one, match in zip(named, found, strict=True):
        is_kept, real = match[2] == "+", match[3]
        of = [name for name in re.split(r"[,\s]+", match[4]) if _plain(name) in ours]
        if of and not is_kept:
            every.paths[one] = real or one.path
        elif one.kind in _NAMES and real:
            every.foreign.append(one.path)
        if of and is_kept and replaces_conffiles:
            every.conffiles[one] = real or one.path
        every.packages.update(dict.fromkeys(of))
    return every, ""


def find_edited(
    commands: HostCommands, node: NodeSpec, owned: Mapping[NamedPath, str], names: Collection[str]
) -> dict[NamedPath, bool | None]:
    """Return whether each path has another content than its package brought, which an installation replaces; None if
    this is unknown. Other rights and times are no difference."""
    done = commands.run(node, _VERIFY.format(names=" ".join(map(shlex.quote, names))), within_s=LIST_S)
    *lines, last = done.out.splitlines() or [""]
    listed, kept = (_with_usr(line[len(word) :] for line in lines if line.startswith(word)) for word in _MARKS)
    changed = read_changed(lines)
    edited = _with_usr(path for path, is_whole in changed.items() if is_whole is False)
    unread = _with_usr(path for path, is_whole in changed.items() if is_whole is None)
    found: dict[NamedPath, bool | None] = {}
    for one, real in owned.items():
        names_of_it = {one.path, real}
        is_known = last == "verified" and names_of_it & listed and not names_of_it & unread
        found[one] = False if names_of_it & kept else True if names_of_it & edited else False if is_known else None
    return found


def _with_usr(paths: Iterable[str]) -> frozenset[str]:
    """Return the paths with the names in /usr of those in folders that are links to it."""
    names = frozenset(paths)
    return names | {f"/usr{path}" for path in names if path.startswith(_IN_USR)}


def _plain(name: str) -> str:
    return name.partition(":")[0]


def _is_of_each(one: NamedPath, real: str, package: PackageSpec) -> bool:
    """Return whether each release has its own file of this kind: its scripts, and its jars with their versions."""
    is_jar = one.kind is StartFileKind.JAR and package.jars in (real, posixpath.dirname(real))
    return one.kind in _LEFT_OUT or is_jar


def _read_files(commands: HostCommands, node: NodeSpec, package: PackageSpec, release: Release) -> frozenset[str]:
    """Return the absolute paths of a release's package; empty if they are unknown."""
    version = package.version(release)
    line = "" if version is None else print_files(package.install, version, RECORDS)
    if not line:
        return frozenset()
    printed = commands.run(node, line, within_s=package.timeout_s).out
    listed = frozenset("/" + path.removeprefix(".").strip("/") for path in printed.splitlines())
    return _with_usr(listed) if any(map(JAR.search, listed)) else frozenset()
