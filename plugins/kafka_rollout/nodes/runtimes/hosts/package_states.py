"""What the package manager of a host has recorded: packages that it left unfinished, and what is installed.

The exit code of apt-get is that of all packages which dpkg configures together, also of those that it could not
configure before. So an installation is known by what it left (dpkg-query(1), dpkg(1), rpm(8)). Nothing here needs a
right. rpm leaves no package unfinished: a script that fails after the installation is a warning to dnf, and exit code
107 of zypper.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.model.package_managers import WantedPackage, download_of, is_apt, wanted_packages
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import LIST_S, HostCommands, service_of, unusable

_UNFINISHED = {"H": "half-installed", "U": "unpacked, but not configured", "F": "half-configured"}
_BROKEN = "must be installed again"
_STATE = re.compile(r"[uihrp]([ncHUFWti])([ R])\|(.+)")
# While dpkg runs, for example in unattended-upgrades, packages are unfinished for a while. A status that was read whole
# ends with a line of our own.
_READ_UNFINISHED = (
    "command -v dpkg-query >/dev/null || { echo none; exit; }; left=12; while :; do left=$((left - 1)); "
    "shown=$(dpkg-query --show --showformat='${db:Status-Abbrev}|${binary:Package}\\n') || exit 1; "
    'found=$(echo "$shown" | sed -n -E \'/^.([HUF]|.R)/p\'); test "$found" && test $left -gt 0 && '
    'pgrep -x dpkg >/dev/null || break; sleep 5; done; test ! "$found" || echo "$found"; echo whole'
)
_CHANGED = re.compile(r"(missing|[.?\w]{9}) +(?:[a-z] )? *(/.*?)(?: \(.*\))?")


class _Manager(NamedTuple):
    """The commands of dpkg or rpm. They print one line for each installed package: its state, `|` and its version."""

    show: tuple[str, ...]
    show_file: tuple[str, ...]
    """Prints the name instead of the state."""
    verify: tuple[str, ...]
    spell: Callable[[str], tuple[str, ...]]
    """Returns the forms in which an installation can name a version."""


def _spell_rpm(version: str) -> tuple[str, ...]:
    """As dnf(8) reads it: with or without epoch, release and architecture."""
    each = (version, version.partition(":")[2] or version)
    return tuple(part for one in each for part in (one, one.rpartition(".")[0], one.rpartition("-")[0]))


_RPM_VERSION = "|%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}.%{ARCH}\\n"
_DPKG = _Manager(
    ("dpkg-query", "--show", "--showformat=${db:Status-Abbrev}|${Version}\\n"),
    ("dpkg-deb", "--show", "--showformat=${Package}|${Version}\\n"),
    ("dpkg", "--verify"),
    lambda version: (version,),
)
_RPM = _Manager(
    ("rpm", "--query", "--queryformat", f"ii {_RPM_VERSION}"),
    ("rpm", "--query", "--package", "--queryformat", f"%{{NAME}}{_RPM_VERSION}"),
    ("rpm", "--verify", "--nodeps", "--noscripts"),
    _spell_rpm,
)


def find_unfinished(commands: HostCommands, node: NodeSpec) -> tuple[str, ...]:
    """Return the packages of the host that dpkg has left unfinished, each with its state; none without dpkg.

    Raises TransientError or RefusedError if that is unknown.
    """
    package = service_of(node).package
    if package is None or (download_of(package.install) and not is_apt(package.install)):
        return ()
    done = commands.run(node, _READ_UNFINISHED, within_s=LIST_S)
    *listed, last = done.out.splitlines() or [""]
    if last == "none" and not is_apt(package.install):
        return ()
    found = [match for match in map(_STATE.fullmatch, listed) if match]
    if done.code != 0 or last != "whole" or len(found) != len(listed):
        raise unusable(
            done,
            f"Host {service_of(node).host} does not report the states of its packages: {done.problem}.",
            remedy="Run `dpkg-query --show` there as the SSH user, and correct what it names.",
        )
    return tuple(f"{match[3]} ({_word(match[1], match[2])})" for match in found)


def _word(state: str, error: str) -> str:
    return _BROKEN if error == "R" else _UNFINISHED.get(state, "removed")


def why_not_installed(commands: HostCommands, node: NodeSpec, version: str) -> str:
    """Return why an installation did not leave all its packages whole and in the wanted version, as a sentence; empty
    if it did. Of a program that is not known, only the exit code is."""
    package = service_of(node).package
    assert package is not None  # noqa: S101 - the caller has asked
    wanted = wanted_packages(package.install, version)
    if not wanted:
        return f"`install` names a program that does not show what {package.install[0]} has installed."
    try:
        manager = _DPKG if is_apt(package.install) else _RPM
        names = [_installed(commands, node, manager, one) for one in wanted]
        done = commands.run(node, [*manager.verify, *names], within_s=LIST_S)
    except (TransientError, RefusedError) as error:
        return error.sentence
    changed = read_changed(done.out.splitlines())
    broken = [path for path, is_whole in changed.items() if is_whole is False and path.startswith(f"{package.jars}/")]
    return f"{broken[0]} is missing or not that of the package." if broken else ""


def _installed(commands: HostCommands, node: NodeSpec, manager: _Manager, wanted: WantedPackage) -> str:
    """Return the name of a package that is installed as it is wanted; raises RefusedError for another one."""
    name, version = wanted.name, wanted.version
    if wanted.file:
        name, _, version = commands.run(node, [*manager.show_file, wanted.file]).out.strip().partition("|")
        if not name or not version:
            raise _not_installed(f"The name and the version of {wanted.file} are unknown.")
    done = commands.run(node, [*manager.show, name])
    lines = done.out.splitlines() if done.code == 0 else []
    if len(lines) != 1:
        raise _not_installed(f"{'More than one' if lines else 'No'} package {name} is installed.")
    state, _, installed = lines[0].partition("|")
    if state[1:] != "i ":
        raise _not_installed(f"{name} {installed} is {_word(state[1:2], state[2:3])}.")
    if not any(fnmatchcase(one, version) for one in manager.spell(installed)):
        raise _not_installed(f"{name} has version {installed}.")
    return name


def _not_installed(sentence: str) -> RefusedError:
    return RefusedError(sentence, remedy="Install the package.")


def read_changed(lines: Sequence[str]) -> dict[str, bool | None]:
    """Return the files in what dpkg or rpm prints for --verify: False if one is missing or its content is not that of
    the package, None if the SSH user cannot compare it. Other rights or times are no difference."""
    found: dict[str, bool | None] = {}
    for match in filter(None, map(_CHANGED.fullmatch, lines)):
        if match[1] == "missing" or match[1][2] == "5":
            found[match[2]] = False
        elif match[1][2] == "?":
            found[match[2]] = None
    return found
