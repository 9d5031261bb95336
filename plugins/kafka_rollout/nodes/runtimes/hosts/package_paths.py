"""What the next start of a node reads of its package: another release of the package replaces or removes these files.

The package manager of the host names the owner of a file, and the repository lists the files of another release.
Neither needs a right. A list counts if it has Kafka's own jar.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from kafka_rollout.model.host_state import PlaceState, StartFileKind, StartPath, StartPlace
from kafka_rollout.model.package_managers import names_of, print_files
from kafka_rollout.model.topology import NodeSpec, PackageSpec
from kafka_rollout.nodes.runtimes.hosts.commands import LIST_S, RECORDS, HostCommands, service_of
from kafka_rollout.nodes.runtimes.hosts.installing import JAR
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
_NAMED_BY = """\
while IFS= read -r name; do grep -D skip -lsF -- "$name" {files} | tr '\\n' '\\t'; echo; done
"""
_LINE = re.compile(r"(\d+) ([+-])([^\t]*)\t(.*)")


class NamedPath(NamedTuple):
    """A path that a start names, absolute, its kind, and whether systemd starts the node only with it."""

    kind: StartFileKind
    path: str
    is_needed: bool


def read_package_paths(
    commands: HostCommands, node: NodeSpec, named: Sequence[NamedPath], releases: Sequence[Release]
) -> tuple[tuple[StartPath, ...], str]:
    """Return the paths of the package, apart from those that only its own files name, and why they are not all.

    A release is missing in `after` if the files of its package are unknown.
    """
    service = service_of(node)
    package = service.package
    assert package is not None  # noqa: S101 - the caller has asked
    owned, foreign, problem = _find_owned(commands, node, package, named)
    wanted = [one for one, real in owned.items() if not _is_of_each(one, real, package)]
    if not wanted or problem:
        return (), problem
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
        )
        for one, is_named in kept
    ), ""


def _find_owned(
    commands: HostCommands, node: NodeSpec, package: PackageSpec, named: Sequence[NamedPath]
) -> tuple[dict[NamedPath, str], list[str], str]:
    """Return the paths of the package with the places to which they lead, the other files that name paths, and why
    that is unknown."""
    host = service_of(node).host
    names = names_of(package.install)
    line = _OWNERS.format(jars=shlex.quote(package.jars), names=" ".join(map(shlex.quote, names)))
    done = commands.shell.run(host, line, text="".join(f"{one.path}\n" for one in named), within_s=LIST_S)
    first, _, rest = done.out.partition("\n")
    found = [match for match in map(_LINE.fullmatch, rest.splitlines()) if match]
    ours = {_plain(name) for name in (*names, *first.split()[1:])}
    if len(found) != len(named) or not ours:
        return {}, [], f"Host {host} does not report which files belong to packages: {done.problem}."
    owned, foreign = {}, []
    for one, match in zip(named, found, strict=True):
        is_kept, real, of = match[2] == "+", match[3], {_plain(name) for name in re.split(r"[,\s]+", match[4])}
        if ours & of and not is_kept:
            owned[one] = real or one.path
        elif one.kind in _NAMES and real:
            foreign.append(one.path)
    return owned, foreign, ""


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
    in_usr = {f"/usr{path}" for path in listed if path.startswith(_IN_USR)}
    return listed | in_usr if any(map(JAR.search, listed)) else frozenset()
