"""The host of a node as a plan must know it: releases, rights, owners of folders, space.

Its commands change nothing. What a command does not report is listed as unknown."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

from kafka_rollout.base.errors import TransientError
from kafka_rollout.kafka.files import server_properties
from kafka_rollout.model.host_state import HostPath, HostState
from kafka_rollout.model.topology import NodeSpec, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, rights_of, service_of
from kafka_rollout.nodes.runtimes.hosts.directory import MISSING
from kafka_rollout.nodes.runtimes.hosts.facts import read_facts
from kafka_rollout.nodes.runtimes.hosts.release_source import is_pinned, is_provided
from kafka_rollout.nodes.runtimes.hosts.rights import EXAMPLE, changed_paths, excess_rights
from kafka_rollout.nodes.runtimes.hosts.systemd import UnitState
from kafka_rollout.nodes.runtimes.properties import metadata_directory
from kafka_rollout.releases.facts import Release

_ASKED = "asked"
_UNKNOWN_DIRECTORY = "/unknown-directory"  # of a node whose directories a config provider has
_NO_JOURNAL = ("not seeing messages from other users", "insufficient permissions")
STAT = "stat --format=%f/%u/%U/%n"


def read_host(
    commands: HostCommands,
    node: NodeSpec,
    unit: UnitState,
    releases: Sequence[Release],
    *,
    installed: Release | None,
    unavailable: Mapping[Release, str],
    now: Callable[[], float],
    read_config: Callable[[], Mapping[str, str]],
) -> HostState:
    """Return the state. `installed`: the release that the next start runs. `unavailable`: releases whose package cannot
    be installed. `now`: clock of this machine. `read_config`: reads the configuration of the node."""
    service = service_of(node)
    folders = {release: service.folder(release) for release in releases}
    found = look(commands, node, folders.values())
    values = dict(line.split(" ", 1) for line in found if " " in line and not line.startswith("libs "))
    if service.package is not None:
        there = frozenset(release for release in folders if release == installed)
        brought = frozenset(folders) - there - unavailable.keys()
    else:
        there = frozenset(release for release, folder in folders.items() if f"libs {folder}" in found)
        brought = frozenset(release for release in folders if release not in there and is_provided(service, release))
    denied = _denied(commands, node, releases, read_config)
    seen, excess = commands.sudo(node, rights_of(node).see_paths), _excess(commands, node)
    paths = parse_paths(seen.out)
    free = values.get("free", "")
    facts = read_facts(commands, node, folders, unit.pid, now)
    missing = set(changed_paths(service)) - {path.path for path in paths} - _absent(service, seen.err)
    unknown = {
        f"the free space of {service.configuration_file.rpartition('/')[0]}": not free.isdigit(),
        "TimeoutStopSec of the unit": unit.stop_s is None,
        f"owner and mode of {', '.join(sorted(missing))}": bool(missing) and not denied,
        "the rights of the SSH user (`sudo -n -l`)": excess is None,
        f"the journal of {service.unit}": service.log_file is None and _journal_problem(commands, node) != "",
        "the command line of the process": unit.pid is not None and not facts.arguments,
        "the jars that the process has opened": unit.pid is not None and not denied and not facts.loaded_jars,
        f"the release of the jars in {service.release_parent}": service.package is not None and installed is None,
        "the free space for a release": bool(brought) and facts.release_bytes is None,
    }
    return HostState(
        name=service.host,
        unit=service.unit,
        symlink=service.package.jars if service.package else service.symlink,
        folders=folders,
        releases=there | brought,
        unavailable=unavailable,
        brought=brought,
        unpinned=frozenset(release for release in brought if service.archive and not is_pinned(service, release)),
        can_unpack=service.archive is None or "writable" in found,
        login=values.get("login", ""),
        symlink_can_switch=service.package is not None or "link" in found,
        stop_timeout_s=unit.stop_s,
        runs_as_root=unit.is_root,
        denied=denied,
        excess=excess or (),
        paths=paths,
        free_bytes=int(free) if free.isdigit() else None,
        facts=facts,
        unknown=tuple(what for what, is_unknown in unknown.items() if is_unknown),
    )


def look(commands: HostCommands, node: NodeSpec, folders: Iterable[str]) -> list[str]:
    """Return lines with the folders that have a release, whether the symlink can be switched, and free bytes."""
    return commands.run(node, _look_line(service_of(node), folders)).out.splitlines()


def parse_paths(text: str) -> tuple[HostPath, ...]:
    """Read the output of STAT."""
    rows = (line.split("/", 3) for line in text.splitlines() if line.count("/") >= 4)
    return tuple(
        HostPath(path=path, mode=int(mode, 16), user_id=int(user_id), owner=owner)
        for mode, user_id, owner, path in rows
    )


def _absent(service: ServiceSpec, err: str) -> set[str]:
    """Return the files of versions of the package, and folders above, that stat did not find: `check` of the package
    finds those that a run needs. A file that stat cannot see stays unknown."""
    files = service.package.version_paths if service.package else ()
    return {
        path
        for path in changed_paths(service)
        if any(f"{file}/".startswith(f"{path}/") for file in files) and f"'{path}': {MISSING}" in err
    }


def read_journal(commands: HostCommands, node: NodeSpec, lines: int) -> tuple[str, ...]:
    """Return the last lines of the unit. Raises TransientError if the journal cannot be read."""
    service = service_of(node)
    words = ["journalctl", "--unit", service.unit, "--lines", str(lines), "--output=cat", "--no-pager"]
    done = commands.run(node, words)
    if done.code != 0 or any(text in done.err for text in _NO_JOURNAL):
        raise TransientError(
            f"The journal of unit {service.unit} on host {service.host} cannot be read: {done.problem}.",
            remedy="Add the SSH user to the group systemd-journal, or set log_file in the inventory.",
        )
    return tuple(done.out.splitlines()[-lines:])


def _journal_problem(commands: HostCommands, node: NodeSpec) -> str:
    try:
        read_journal(commands, node, 1)
    except TransientError as error:
        return error.sentence
    return ""


def _excess(commands: HostCommands, node: NodeSpec) -> tuple[str, ...] | None:
    """The rights with which the SSH user can become root; None if sudo does not list its rights."""
    done = commands.run(node, ["sudo", "-n", "-l"])
    return excess_rights(done.out, service_of(node)) if done.code == 0 else None


def _denied(
    commands: HostCommands, node: NodeSpec, releases: Sequence[Release], read_config: Callable[[], Mapping[str, str]]
) -> tuple[str, ...]:
    """The lines of sudoers that are missing."""
    rights, host = rights_of(node), service_of(node).host
    reading = rights.read_configuration
    probe = commands.run(node, reading.allowed_command())
    if probe.code != 0:  # without it, the folder of the snapshots is unknown
        return (f"({reading.as_user}) NOPASSWD: {reading.sudoers()}",)
    values = {**EXAMPLE, "release": [*releases, "0.0.0"][0]}
    if package := service_of(node).package:
        known = [version for release in releases if (version := package.version(release))]
        values["version"] = [*known, *package.versions.values(), "0.0.0"][0]
    config = read_config()
    metadata = metadata_directory(config) or _UNKNOWN_DIRECTORY
    wanted = [
        right
        for right in rights.all(metadata, server_properties.log_directories(config))
        if not any(_UNKNOWN_DIRECTORY in word for word in right.arguments)
    ]
    line = "; ".join(
        f"{shlex.join(right.allowed_command(**values))} >/dev/null 2>&1 || echo {number}"
        for number, right in enumerate(wanted)
    )
    answers = commands.run(node, f"{line}; echo {_ASKED} {len(wanted)}").out.splitlines()
    if answers[-1:] != [f"{_ASKED} {len(wanted)}"] or not all(number.isdigit() for number in answers[:-1]):
        raise TransientError(
            f"Host {host} does not report which commands sudo permits: {(answers or ['no output'])[-1]}.",
            remedy="Run `sudo -n -l` there as the SSH user.",
        )
    refused = [wanted[int(number)] for number in answers[:-1]]
    return tuple(f"({right.as_user}) NOPASSWD: {right.sudoers()}" for right in refused)


def _look_line(service: ServiceSpec, folders: Iterable[str]) -> str:
    """A line of a shell. Paths of an inventory have no character that a shell treats specially."""
    releases = "; ".join(f"test -d {folder}/libs && echo libs {folder}" for folder in folders) or "true"
    link = f"if test -L {service.symlink} || ! test -e {service.symlink}; then echo link; fi"
    parent = service.release_parent
    unpack = f"if test -d {parent} && test -w {parent}; then echo writable; fi; echo login $(id -un)"
    configurations = service.configuration_file.rpartition("/")[0] or "/"
    free = f"echo free $(df --output=avail --block-size=1 {configurations} | tail -1)"
    return f"{releases}; {link}; {unpack}; {free}"
