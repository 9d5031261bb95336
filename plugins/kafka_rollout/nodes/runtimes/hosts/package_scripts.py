"""The scripts of the packages of Kafka: those that are installed, and those of the releases of a run.

An installation runs scripts of both packages, and a rollback those of the other one. Nothing needs a right.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from kafka_rollout.model.host_state import ClosingLines
from kafka_rollout.model.package_managers import SCRIPTS_OF_INSTALLED, names_of, print_scripts
from kafka_rollout.model.package_scripts import PackageScript, find_closing_lines
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.closed_paths import uses_of
from kafka_rollout.nodes.runtimes.hosts.commands import LIST_S, RECORDS, HostCommands, service_of
from kafka_rollout.nodes.runtimes.hosts.option_sources import UnitOptions
from kafka_rollout.nodes.runtimes.hosts.text_files import text_of
from kafka_rollout.nodes.runtimes.hosts.user_access import follow, read_unit_user
from kafka_rollout.releases.facts import Release

_INSTALLED = "the installed package"
# `postinstall scriptlet (using /bin/sh):`, `posttrans program: /bin/true` and triggers of rpm.
_SCRIPTLET = re.compile(r"(\w+) (?:scriptlet|program)\b.*:?.*")


def read_closing_lines(
    commands: HostCommands,
    node: NodeSpec,
    releases: Sequence[Release],
    config: Mapping[str, str],
    unit: UnitOptions,
) -> ClosingLines:
    """Return the lines of scripts that can close what the next start uses to the user of the unit. `releases`: those
    that the run installs. `config`: of the node."""
    package = service_of(node).package
    assert package is not None  # noqa: S101 - the caller has asked
    user = read_unit_user(commands, node)
    if user.passes_modes:
        return ClosingLines(user=user.name)
    scripts: list[PackageScript] = []
    unread: list[str] = []
    names = dict.fromkeys(names_of(package.install))
    for release in releases:
        version = package.version(release)
        line = "" if version is None else print_scripts(package.install, version, RECORDS)
        shown = commands.run(node, line, within_s=package.timeout_s).out if line else ""
        if not _is_whole(shown):
            unread.append(f"the package of {release}")
        names |= dict.fromkeys(one.removeprefix("package ") for one in shown.splitlines() if one.startswith("package "))
        scripts += _scripts(shown, f" {release}")
    line = SCRIPTS_OF_INSTALLED.format(names=" ".join(map(shlex.quote, names)))
    shown = commands.run(node, line, within_s=LIST_S).out if names else ""
    if not _is_whole(shown):
        unread.append(_INSTALLED)
    scripts += _scripts(shown, ", installed")
    uses = uses_of(commands, node, config, unit)
    places = {one.place: uses[path] for path, one in follow(commands, node, uses).items()}
    return ClosingLines(
        user=user.name, lines=find_closing_lines(scripts, uses | places, user.name), unread=tuple(unread)
    )


def _is_whole(shown: str) -> bool:
    lines = shown.splitlines()
    return "whole" in lines and any(line.startswith("package ") for line in lines)


def _scripts(shown: str, suffix: str) -> Iterator[PackageScript]:
    content: dict[str, list[str]] = {}
    name, of = "", ""
    for line in shown.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "script":
            name, of = rest, rest.partition(" of ")[2]
        elif kind == "text" and (match := _SCRIPTLET.fullmatch(rest)):
            name = f"{match[1]} of {of}"
        if kind == "text":
            content.setdefault(name, []).append(rest)
    for name, lines in content.items():
        yield PackageScript(f"{name}{suffix}", text_of(name, "\n".join(lines)).lines)
