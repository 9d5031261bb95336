"""How a release gets to a host: from an archive on this machine, by a command of the operator, or as a package.

The SHA-512 of an archive is in the inventory, or in a file next to it, as Apache publishes both. Only the first one
shows that an archive is the one that the operator has verified. The SSH user unpacks an archive without sudo: what root
unpacks can have setuid bits, links and devices.

While a package is installed, the unit is masked in /run (systemctl mask --runtime): the scripts of a package can
restart it, and the start belongs to the run. Such a mask ends with a loss of power. It has no effect on a unit whose
file is in /etc/systemd/system; then the runtime stops a process that the package has started.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from kafka_rollout.base.errors import FatalError, RefusedError, TransientError, UserError
from kafka_rollout.base.system.files import open_regular, read_regular, reading
from kafka_rollout.model.host_state import CORRECT_TRIAL, Elsewhere, PackageProblem
from kafka_rollout.model.node_log import hide_credentials
from kafka_rollout.model.package_managers import (
    PackageAnswer,
    download_again_of,
    find_unread,
    read_answer,
    refresh_of,
    remove_duplicates,
    unlock_of,
)
from kafka_rollout.model.topology import NodeSpec, PackageSpec, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.commands import (
    HostCommands,
    read_properties,
    rights_of,
    service_of,
    transfer_s,
    unusable,
)
from kafka_rollout.nodes.runtimes.hosts.package_states import find_unfinished, why_not_installed
from kafka_rollout.nodes.runtimes.hosts.rights import DRAFT, HostRight, held_names
from kafka_rollout.nodes.runtimes.hosts.shells import Done, refused_by_sudo
from kafka_rollout.releases.facts import Release

_SHA512 = re.compile(r"[0-9a-f]{128}")
# The jar of kafka.Kafka → its version. Packages of vendors can also contain sources and documentation.
JAR = re.compile(r"/kafka_2\.\d+-(\d[^/\s]*)(?<!-sources)(?<!-javadoc)(?<!-scaladoc)(?<!-test)\.jar(?:\s|$)")
_INTERRUPTED = "dpkg --configure -a"
# Of apt-get and zypper, which end at once without an option for it; dnf waits.
_LOCKED = re.compile(r"Could not get lock |dpkg frontend lock|System management is locked by ")
_LOCKED_S, _LOCKED_AT_TRIAL_S, _LOCKED_POLL_S = 300.0, 60.0, 5.0
_ADD_VERSION = "Add it to `versions` of the package, then repeat the step."
_UPSTREAM = re.compile(r"(?:\d+:)?(\d+(?:\.\d+)+)")  # without the epoch and the revision of the package


def is_provided(service: ServiceSpec, release: Release) -> bool:
    """Return whether `provide` can bring a release. Raises UserError for an archive with a wrong checksum."""
    if service.archive is not None:
        path = _archive(service.archive, release)
        with reading(path):
            status = path.stat()
        _verify(service, path, release, _sha512(path, status.st_size, status.st_mtime_ns))
    return service.archive is not None or service.install is not None


def is_pinned(service: ServiceSpec, release: Release) -> bool:
    """Return whether the inventory has the SHA-512 of the archive."""
    return str(release) in service.archive_sha512


def provide(commands: HostCommands, node: NodeSpec, release: Release) -> None:
    """Unpack the archive in a draft folder, then rename it; or run the operator's command."""
    service = service_of(node)
    if service.install is not None:
        line, within_s = service.install.command.replace("{release}", str(release)), service.install.timeout_s
        done = commands.run_foreign(node, line, within_s=within_s)
        if done.code != 0:
            raise FatalError(
                f"The command that installs Kafka {release} on host {service.host} failed: "
                f"{hide_credentials(done.problem)}.",
                remedy="Fix the command or the host, then repeat the step.",
            )
    elif service.archive is not None:
        path = _archive(service.archive, release)
        with reading(path), open(open_regular(path), "rb") as file:
            content = file.read()
        _verify(service, path, release, hashlib.sha512(content).hexdigest())
        _unpack(commands, node, release, content)


def _unpack(commands: HostCommands, node: NodeSpec, release: Release, content: bytes) -> None:
    service, folder = service_of(node), service_of(node).folder(release)
    draft, target = shlex.quote(folder + DRAFT), shlex.quote(folder)
    made = commands.run_fenced(node, f"rm -rf {draft} && umask 022 && mkdir {draft}")
    if made.code != 0:
        raise RefusedError(
            f"The SSH user cannot create {folder}{DRAFT} on host {service.host}: {made.problem}.",
            remedy="Create a folder for releases that belongs to the SSH user, link the installed releases into it, "
            "and set `installation` to a path in this folder (docs/hosts.md).",
        )
    options = "--extract --gzip --no-same-owner --no-same-permissions --strip-components=1"
    line = f"umask 022 && tar {options} --directory={draft} && mv -T {draft} {target}"
    done = commands.run_fenced(node, line, text=content, within_s=transfer_s(len(content)))
    if done.code != 0:
        raise FatalError(
            f"Kafka {release} cannot be unpacked to {folder} on host {service.host}: {done.problem}.",
            remedy="Free space on this file system, or fix the archive, then repeat the step.",
        )


def _archive(pattern: str, release: Release) -> Path:
    return Path(pattern.replace("{release}", str(release)))


@lru_cache(maxsize=16)
def _sha512(path: Path, size: int, modified_ns: int) -> str:
    with reading(path), open(open_regular(path), "rb") as file:
        return hashlib.file_digest(file, "sha512").hexdigest()


def _expected(service: ServiceSpec, path: Path, release: Release) -> str:
    """Of the inventory; else of the file: `NAME: 0B2A 1234 …` in groups and lines, or `hex  NAME` of sha512sum."""
    if is_pinned(service, release):
        return service.archive_sha512[str(release)]
    checksum = path.with_name(path.name + ".sha512")
    with reading(checksum):
        text = read_regular(checksum).decode(errors="replace").lower()
    _, colon, digits = text.partition(":")
    found = re.sub(r"\s", "", digits) if colon else text.split(maxsplit=1)[0] if text.strip() else ""
    if not _SHA512.fullmatch(found):
        raise UserError(f"{checksum} contains no SHA-512.", remedy="Download it again from the place of the archive.")
    return found


def _verify(service: ServiceSpec, path: Path, release: Release, digest: str) -> None:
    """Raise UserError unless the digest of the archive is the expected one."""
    if digest == _expected(service, path, release):
        return
    if is_pinned(service, release):
        raise UserError(
            f"{path} does not have the SHA-512 of the inventory. Nothing was changed.",
            remedy="Verify the archive, for example by its signature. Then correct the file or archive_sha512.",
        )
    raise UserError(
        f"{path} does not have the SHA-512 of {path.name}.sha512. Nothing was changed.",
        remedy="Download both again, then repeat the step.",
    )


def installed_release(printed: str, identify: Callable[[str], Release | None]) -> Release | None:
    """Return the release of the printed paths of jars; None without one, or if an interrupted installation has
    left those of several."""
    versions = set(JAR.findall(printed))
    return identify(versions.pop()) if len(versions) == 1 else None


def why_unavailable(
    commands: HostCommands,
    node: NodeSpec,
    releases: Iterable[Release],
    identify: Callable[[str], Release | None],
    known_builds: Collection[str],
    *,
    returns: bool = False,
) -> dict[Release, PackageProblem]:
    """Load the package of each release to the host, and return those that cannot be installed. The node can run.

    `known_builds`: versions of vendors' builds that the inventory maps to Apache releases. `returns`: a rollback begins
    with the lists that the host has, and refreshes them only if they lack the package: what was loaded before the stop
    can be installed without the repository.
    """
    package, found = _package_of(node), dict[Release, PackageProblem]()
    refreshed: _Tried | None = None
    for release in releases:
        version = package.version(release)
        if version is None:
            found[release] = PackageProblem(
                sentence=f"The inventory has no version of the package for Kafka {release}.", remedy=_ADD_VERSION
            )
            continue
        upstream = _UPSTREAM.match(version)
        builds = [] if upstream is None else [one for one in known_builds if one.startswith(upstream[1])]
        others = {identify(build) for build in builds or ([f"{upstream[1]}-ccs"] if upstream else [])} - {None}
        if upstream is not None and upstream[1] != str(release) and others and release not in others:
            found[release] = PackageProblem(
                sentence=f"The package {version} of Kafka {release} would be evaluated as {min(filter(None, others))}.",
                remedy="Set apache_releases in the inventory to the Apache release of its build.",
            )
            continue
        refresh = refresh_of(package.install)
        if refreshed is None and refresh and not returns:
            refreshed = _try(commands, node, refresh, version)
        problem = _try_package(commands, node, release, version, refreshed)
        if problem and problem.is_unknown and returns and refresh:
            # dnf holds a list for expired after a download that failed, asks for it once, then reads what it has.
            problem = _try_package(commands, node, release, version, refreshed)
        if problem and not problem.is_unknown and refreshed is None and refresh:
            refreshed = _try(commands, node, refresh, version)
            problem = _try_package(commands, node, release, version, refreshed)
        if problem:
            found[release] = problem
    return found


class _Tried(NamedTuple):
    shown: str
    """The command, without sudo."""
    done: Done
    missing: str
    """The line of the sudoers file without which sudo refused it; else empty."""


def _try(commands: HostCommands, node: NodeSpec, words: tuple[str, ...], version: str) -> _Tried:
    right = rights_of(node).of_package(words)
    command = right.command(version=version)
    within_s = _package_of(node).timeout_s
    done = _when_unlocked(
        commands,
        lambda: commands.try_foreign(node, shlex.join(command), within_s=within_s),
        for_s=_LOCKED_AT_TRIAL_S,
    )
    missing = f"({right.as_user}) NOPASSWD: {right.sudoers()}" if refused_by_sudo(done) else ""
    return _Tried(shlex.join(one.replace("{version}", version) for one in words), done, missing)


def _try_package(
    commands: HostCommands, node: NodeSpec, release: Release, version: str, refreshed: _Tried | None
) -> PackageProblem | None:
    """Return why the package cannot be installed, by what the package manager does as root with its own lists.

    `refreshed`: the refresh of the lists. An installation reads an old list if it failed, so what this list has is
    loaded, and what it lacks is unknown.
    """
    package, host, after = _package_of(node), service_of(node).host, ""

    def unknown(tried: _Tried, why: str) -> PackageProblem:
        return PackageProblem(
            sentence=f"Host {host} did not show that it can install the package of Kafka {release}: `{tried.shown}`: "
            f"{_end(why or tried.done.problem)}",
            remedy=f"Add to the sudoers file of the host: {tried.missing}"
            if tried.missing
            else unlock_of(why) or CORRECT_TRIAL,
            is_unknown=True,
        )

    if refreshed is not None and refreshed.missing:
        return unknown(refreshed, "")
    if refreshed is not None:
        unread = find_unread(f"{refreshed.done.out}\n{refreshed.done.err}")  # dnf and zypper can leave it out
        why = refreshed.done.problem if refreshed.done.code != 0 else unread
        after = f"\nFailed to fetch the lists: {why}" if why else ""
    problem: PackageProblem | None = PackageProblem(
        sentence=f"The inventory has no command that tries the package of Kafka {release} on host {host}.",
        remedy="Add `check` to the package, then plan again.",
        is_unknown=True,
    )
    for words in filter(None, (package.check, package.download, download_again_of(package.install))):
        tried = _try(commands, node, words, version)
        printed = f"{tried.done.out}\n{tried.done.err}{after}"
        answer, why = read_answer(package.install, version, tried.done.code, printed)
        if answer is PackageAnswer.MISSING and not tried.missing:
            return PackageProblem(
                sentence=f"The package of Kafka {release} is not available on host {host}: `{tried.shown}`: {_end(why)}"
            )
        problem = None if answer is PackageAnswer.OFFERED else unknown(tried, why)
        if answer is PackageAnswer.UNKNOWN or (answer is PackageAnswer.OFFERED and words != package.check):
            break
    return problem


def _end(why: str) -> str:
    """Return the end of a sentence. Root reads credentials that only it can read, such as those in an address."""
    return f"{hide_credentials(why).rstrip('.')}."


def read_link(commands: HostCommands, node: NodeSpec) -> str:
    """Return the absolute path to which the link of the release leads; empty without a link."""
    service = service_of(node)
    if service.package is not None:
        return ""
    target = commands.run(node, ["readlink", service.symlink]).out.strip()
    return posixpath.join(posixpath.dirname(service.symlink), target).rstrip("/") if target else ""


def read_elsewhere(commands: HostCommands, node: NodeSpec, release: Release) -> Elsewhere | None:
    """Return where the link leads if not to the folder of its release, also through other links."""
    service = service_of(node)
    if service.package is not None:
        return None
    folder, target = service.folder(release), read_link(commands, node)
    if target in ("", folder):
        return None
    quoted = " ".join(map(shlex.quote, (target, folder)))
    places = commands.run(node, f'for one in {quoted}; do echo "$(readlink -e "$one")"; done').out.splitlines()
    if len(places) != 2 or places[0] == places[1] != "":
        return None  # START-PATH-UNKNOWN names a host that does not report it
    return Elsewhere(
        release=release,
        link=target,
        folder=folder,
        folder_exists=places[1] != "",
        can_return=service.led_to(release, target) is not None,
    )


def read_held(commands: HostCommands, node: NodeSpec) -> tuple[str, ...]:
    """Return the packages of the node that are held; none without apt. Raises TransientError or RefusedError if that is
    unknown."""
    names = held_names(service_of(node))
    if not names:
        return ()
    done = commands.run(node, ["apt-mark", "showhold"])
    if done.code != 0:
        raise unusable(
            done,
            f"Host {service_of(node).host} does not report which packages are held: {done.problem}.",
            remedy="Run `apt-mark showhold` there as the SSH user, and correct what it names.",
        )
    listed = set(done.out.split())
    return tuple(name for name in names if listed & {name, name.partition(":")[0]})


def install_package(commands: HostCommands, node: NodeSpec, release: Release, held: Collection[str] = ()) -> str:
    """Install the package of a release while the unit is masked, and return what failed although the release is
    installed, as a sentence; empty if nothing did.

    An installation that is complete is repeated, because only the package manager knows whether it was interrupted.
    What it left counts, not its exit code alone, which can be that of another package. After one that failed the unit
    stays masked: a script of the package can outlive a killed package manager.

    `held`: the packages that were held before. apt removes a hold, so they are held again, also after a failure.
    """
    package, host, rights = _package_of(node), service_of(node).host, rights_of(node)
    version = package.version(release)
    if version is None:
        raise RefusedError(
            f"The inventory has no version of the package for Kafka {release}.",
            remedy=_ADD_VERSION,
        )
    commands.change(node, rights.mask)
    done = _run(commands, node, package.install, version)
    if done.code != 0 and package.repair:
        _run(commands, node, package.repair, version)
        done = _run(commands, node, package.install, version)
    holds = [right for name, right in rights.holds().items() if name in held]
    why = "" if done.code == 0 else why_not_installed(commands, node, version)
    if not why:
        not_held = _hold(commands, node, holds)
        commands.change(node, rights.unmask)
        failed = "" if done.code == 0 else _warning(commands, node, release, done)
        return " ".join(filter(None, (failed, not_held)))
    for right in holds:  # as far as the package manager permits it now: a repetition needs a success
        commands.run_fenced(node, shlex.join(right.command()))
    what = (
        f"The package of Kafka {release} was not installed on host {host}: {done.problem}. {why} "
        f"{_state_of_stopped(commands, node)}"
    )
    if _INTERRUPTED in done.err + done.out:
        raise RefusedError(
            what,
            remedy=f"Run `{_INTERRUPTED}` there as root, then repeat the step. To let the run do it, set `repair` of "
            "the package in the inventory.",
        )
    raise FatalError(what, remedy="Install the package there by hand, or fix the command, then repeat the step.")


def _hold(commands: HostCommands, node: NodeSpec, rights: Sequence[HostRight]) -> str:
    """Hold packages again; return what is not held, as a sentence. `apt-mark` does not wait for the lock of dpkg, which
    must not keep a node down."""
    for right in rights:
        done = commands.run_fenced(node, shlex.join(right.command()))
        if done.code != 0:
            commands.refuse_missing_right(node, right, done)
            return (
                f"{right.arguments[-1]} is not held on host {service_of(node).host} as before: {done.problem}. Run "
                f"`{shlex.join((right.program, *right.arguments))}` there as root."
            )
    return ""


def _warning(commands: HostCommands, node: NodeSpec, release: Release, done: Done) -> str:
    try:
        unfinished = find_unfinished(commands, node)
    except (TransientError, RefusedError) as error:
        cause = f" {error.sentence}"
    else:
        cause = f" Unfinished packages: {', '.join(unfinished)}." if unfinished else ""
    return (
        f"Kafka {release} is installed on host {service_of(node).host}, and its package manager has ended with exit "
        f"code {done.code}: {done.problem}.{cause}"
    )


def _state_of_stopped(commands: HostCommands, node: NodeSpec) -> str:
    """Return what keeps a node from starting after a failed installation, as a sentence."""
    unit = service_of(node).unit
    shown = commands.run(node, f"LC_ALL=C systemctl show --property=UnitFileState,FragmentPath {unit}").out
    if read_properties(shown).get("UnitFileState") == "masked-runtime":
        return "The node is stopped, and its unit is masked until an installation succeeds or the host boots."
    return f"The node is stopped. Its unit is not masked, so that its start (`systemctl start {unit}`) is possible."


def remedy_of_duplicates(service: ServiceSpec) -> str:
    """Return what to do if the packages of two releases are installed, as the begin of a remedy; empty with apt, which
    never leaves them."""
    command = remove_duplicates(service.package.install) if service.package else ()
    if not command:
        return ""
    return (
        f"If `rpm -q` shows two versions, an installation was interrupted: run `{shlex.join(command)}` there as root "
        "and repeat the step, or set it as `repair` in the inventory. Otherwise: "
    )


def repair_package(commands: HostCommands, node: NodeSpec, release: Release, held: Collection[str] = ()) -> str | None:
    """Run `repair`, then `install` again, for an installation that succeeded and left jars of several releases: to an
    interrupted dnf, both packages are installed. Return as `install_package`, or None without `repair`."""
    package = _package_of(node)
    version = package.version(release)
    if version is None or not package.repair:
        return None
    commands.change(node, rights_of(node).mask)
    _run(commands, node, package.repair, version)
    return install_package(commands, node, release, held)


def _run(commands: HostCommands, node: NodeSpec, words: tuple[str, ...], version: str) -> Done:
    right = rights_of(node).of_package(words)
    line, within_s = shlex.join(right.command(version=version)), _package_of(node).timeout_s
    done = _when_unlocked(commands, lambda: commands.run_foreign(node, line, within_s=within_s))
    commands.refuse_missing_right(node, right, done)
    return done


def _when_unlocked(commands: HostCommands, run: Callable[[], Done], *, for_s: float = _LOCKED_S) -> Done:
    """Run a package manager, again for `for_s` seconds while another program has its lock, such as the trial of a plan:
    a plan has no lock of the cluster, and can be made while a run installs."""
    until = commands.monotonic() + for_s
    while (done := run()).code != 0 and _LOCKED.search(done.out + done.err) and commands.monotonic() < until:
        commands.sleep(_LOCKED_POLL_S)
    return done


def _package_of(node: NodeSpec) -> PackageSpec:
    package = service_of(node).package
    assert package is not None  # noqa: S101 - the callers have asked
    return package
