"""Kafka as a package of the host's distribution: the installed release, the available ones, and the installation.

While a package is installed, the unit is masked in /run (systemctl mask --runtime): the scripts of a package can
restart it, and the start belongs to the run. Such a mask ends with a loss of power. It has no effect on a unit whose
file is in /etc/systemd/system; then the runtime stops a process that the package has started.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable

from kafka_rollout.base.errors import FatalError, RefusedError
from kafka_rollout.model.topology import NodeSpec, PackageSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, rights_of, service_of
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.releases.facts import Release

# The jar of kafka.Kafka → its version. Packages of vendors can also contain sources and documentation.
JAR = re.compile(r"/kafka_2\.\d+-(\d[^/\s]*)(?<!-sources)(?<!-javadoc)(?<!-scaladoc)(?<!-test)\.jar(?:\s|$)")
_INTERRUPTED = "dpkg --configure -a"
_UPSTREAM = re.compile(r"(?:\d+:)?(\d+(?:\.\d+)+)")  # without the epoch and the revision of the package


def jars_line(package: PackageSpec) -> str:
    """A line of the login shell that prints the paths of the jars with the release."""
    return f"echo {package.jars}/kafka_2.*.jar"


def installed_release(printed: str, identify: Callable[[str], Release | None]) -> Release | None:
    """Return the release of the jars that `jars_line` printed; None without one, or if an interrupted installation has
    left those of several."""
    versions = set(JAR.findall(printed))
    return identify(versions.pop()) if len(versions) == 1 else None


def why_unavailable(
    commands: HostCommands,
    node: NodeSpec,
    releases: Iterable[Release],
    identify: Callable[[str], Release | None],
    known_builds: Collection[str],
) -> dict[Release, str]:
    """Return the releases that cannot be installed, each with the reason as a sentence.

    `known_builds`: versions of vendors' builds that the inventory maps to Apache releases.
    """
    service = service_of(node)
    package, found = _package_of(node), {}
    for release in releases:
        version = package.version(release)
        if version is None:
            found[release] = f"The inventory has no version of the package for Kafka {release}."
            continue
        upstream = _UPSTREAM.match(version)
        builds = [] if upstream is None else [one for one in known_builds if one.startswith(upstream[1])]
        others = {identify(build) for build in builds or ([f"{upstream[1]}-ccs"] if upstream else [])} - {None}
        if upstream is not None and upstream[1] != str(release) and others and release not in others:
            found[release] = (
                f"The package {version} of Kafka {release} would be evaluated as {min(filter(None, others))}. Set "
                "apache_releases in the inventory to the Apache release of its build."
            )
            continue
        words = [word.replace("{version}", version) for word in package.check]
        done = commands.run(node, words, within_s=package.timeout_s)
        if done.code != 0:
            found[release] = (
                f"The package of Kafka {release} is not available on host {service.host}: "
                f"`{shlex.join(words)}`: {done.problem}."
            )
    return found


def download(commands: HostCommands, node: NodeSpec, releases: Iterable[Release | None]) -> None:
    """Download the packages of releases to the host. The node can run."""
    package = _package_of(node)
    for release in dict.fromkeys(releases) if package.download else ():
        version = None if release is None else package.version(release)
        if version is not None:
            done = _run(commands, node, package.download, version)
            if done.code != 0:
                raise FatalError(
                    f"The package of Kafka {release} cannot be downloaded to host {service_of(node).host}: "
                    f"{done.problem}. The node was not stopped.",
                    remedy="Fix the command `download` of the inventory or the repository, then repeat the step.",
                )


def install_package(commands: HostCommands, node: NodeSpec, release: Release) -> None:
    """Install the package of a release while the unit is masked. An installation that is complete is repeated, because
    only the package manager knows whether it was interrupted. After one that failed the unit stays masked: a script of
    the package can outlive a killed package manager."""
    package, host, rights = _package_of(node), service_of(node).host, rights_of(node)
    version = package.version(release)
    if version is None:
        raise RefusedError(
            f"The inventory has no version of the package for Kafka {release}.",
            remedy="Add it to `versions` of the package, then repeat the step.",
        )
    commands.change(node, rights.mask)
    done = _run(commands, node, package.install, version)
    if done.code != 0 and package.repair:
        _run(commands, node, package.repair, version)
        done = _run(commands, node, package.install, version)
    if done.code == 0:
        commands.change(node, rights.unmask)
        return
    what = (
        f"The package of Kafka {release} was not installed on host {host}: {done.problem}. The node is stopped, and "
        "its unit is masked until the installation succeeds."
    )
    if _INTERRUPTED in done.err + done.out:
        raise RefusedError(
            what,
            remedy=f"Run `{_INTERRUPTED}` there as root, then repeat the step. To let the run do it, set `repair` of "
            "the package in the inventory.",
        )
    raise FatalError(what, remedy="Install the package there by hand, or fix the command, then repeat the step.")


def _run(commands: HostCommands, node: NodeSpec, words: tuple[str, ...], version: str) -> Done:
    right = rights_of(node).of_package(words)
    within_s = _package_of(node).timeout_s
    done = commands.run_fenced(node, shlex.join(right.command(version=version)), within_s=within_s)
    commands.refuse_missing_right(node, right, done)
    return done


def _package_of(node: NodeSpec) -> PackageSpec:
    package = service_of(node).package
    assert package is not None  # noqa: S101 - the callers have asked
    return package
