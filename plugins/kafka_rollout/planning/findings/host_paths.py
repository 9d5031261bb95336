"""Findings about who can change what a run changes on a host.

Root follows a link that it meets in a path. So root writes only below folders that root alone can change; otherwise the
user who can change one of them could redirect the write and become root.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Sequence

from kafka_rollout.base.findings import BLOCKER, WARNING, Finding, FindingCode
from kafka_rollout.base.wording import few
from kafka_rollout.model.host_state import HostPath, HostState, can_change
from kafka_rollout.model.topology import NodeSpec, ServiceSpec

HOST_PATH_UNSAFE = FindingCode(
    "HOST-PATH-UNSAFE",
    BLOCKER,
    "A user who is not root can change a folder in which a run writes with the rights of root or unpacks a release.",
)
UNIT_RUNS_AS_ROOT = FindingCode(
    "UNIT-RUNS-AS-ROOT",
    WARNING,
    "The process of the unit runs as root, so the SSH user can become root by the configuration of Kafka.",
)
HOST_RIGHT_EXCESS = FindingCode(
    "HOST-RIGHT-EXCESS",
    WARNING,
    "sudo permits commands with which the SSH user can become root.",
    "A run does not need them. Remove these lines from the sudoers file of the host (docs/hosts.md).",
)
CONFIGURATION_OWNER = FindingCode(
    "CONFIGURATION-OWNER",
    BLOCKER,
    "The configuration file or its folder belongs to another user than the inventory says.",
)
RELEASES_NOT_WRITABLE = FindingCode(
    "RELEASES-NOT-WRITABLE", BLOCKER, "The SSH user cannot unpack an archive into the folder of the releases."
)
PATH_CODES = (HOST_PATH_UNSAFE, UNIT_RUNS_AS_ROOT, HOST_RIGHT_EXCESS, CONFIGURATION_OWNER, RELEASES_NOT_WRITABLE)


def path_findings(node: NodeSpec, host: HostState) -> Iterable[Finding]:
    """Yield the findings of one host."""
    service, subject = node.service, f"node {node.node_id}"
    if service is None:
        return
    yield from _of_configuration(service, subject, host)
    if service.package is None and (unsafe := _unsafe(host, _above(service.symlink))):
        yield HOST_PATH_UNSAFE.found(
            subject,
            f"Root switches the link {service.symlink} on host {host.name}, and {_shown(unsafe)}. A user who can "
            "change a folder above the link could become root.",
            f"{_give(unsafe)} Or move the link to a folder of root and correct the inventory.",
        )
    for path in service.package.root_paths if service.package else ():
        own = [seen for seen in host.paths if seen.path == path and (seen.user_id != 0 or can_change(seen, ""))]
        if unsafe := [*_unsafe(host, _above(path)), *own]:
            yield HOST_PATH_UNSAFE.found(
                f"{subject}, {path}",
                f"Root uses {path} on host {host.name}, and {_shown(unsafe)}. A user who can change it could become "
                "root.",
                _give(unsafe),
            )
    if service.archive is not None:
        yield from _of_releases(service, subject, host)
    if host.runs_as_root:
        yield UNIT_RUNS_AS_ROOT.found(
            subject,
            f"The process of {host.unit} on host {host.name} runs as root. Kafka runs code that its configuration "
            f"names, so the SSH user {host.login}, who can change the configuration, can become root.",
            f"Set User={service.user} in the unit, and give this user the data directories.",
        )
    if host.excess:
        yield HOST_RIGHT_EXCESS.found(
            subject,
            f"sudo on host {host.name} permits commands with which the SSH user {host.login} can become root: "
            f"{'; '.join(host.excess)}.",
        )


def _of_configuration(service: ServiceSpec, subject: str, host: HostState) -> Iterable[Finding]:
    file, folder = service.configuration_file, service.configuration_file.rpartition("/")[0] or "/"
    if service.managed_elsewhere:
        return
    if service.configuration_writer == "user":
        foreign = [path for path in host.paths if path.path in (file, folder) and path.owner != service.user]
        if foreign:
            yield CONFIGURATION_OWNER.found(
                subject,
                f"{service.user} writes {file} on host {host.name}, and {_shown(foreign)}.",
                f"Give them to {service.user}, or remove configuration_writer from the inventory if root owns them.",
            )
        return
    unsafe = _unsafe(host, _above(file))
    links = [path for path in host.paths if path.path == file and not stat.S_ISREG(path.mode)]
    if unsafe or links:
        yield HOST_PATH_UNSAFE.found(
            subject,
            f"Root writes {file} on host {host.name}, and {_shown([*unsafe, *links])}. A user who can change a folder "
            "above the file could become root.",
            f"{_give([*unsafe, *links])} If the folder belongs to {service.user}, set "
            "configuration_writer: user in the inventory and print the sudoers file again.",
        )


def _of_releases(service: ServiceSpec, subject: str, host: HostState) -> Iterable[Finding]:
    """The SSH user unpacks an archive: the user of the broker must not be able to redirect that."""
    folder = service.release_parent
    if host.brought and not host.can_unpack:
        yield RELEASES_NOT_WRITABLE.found(
            subject,
            f"The SSH user {host.login} cannot write into {folder} on host {host.name}. A run unpacks an archive as "
            "this user and without sudo: root would unpack setuid bits, links and devices too.",
            f"Create a folder for releases that belongs to {host.login}, link the installed releases into it, and set "
            "`installation` to a path in this folder (docs/hosts.md).",
        )
    above = (*_above(folder), folder)
    if unsafe := [path for path in host.paths if path.path in above and can_change(path, service.user)]:
        yield HOST_PATH_UNSAFE.found(
            subject,
            f"The SSH user {host.login} unpacks releases to {folder} on host {host.name}, and {_shown(unsafe)}. "
            f"{service.user} could redirect the files.",
            f"Take the write rights of {service.user} and of other users away: {few([path.path for path in unsafe])}.",
        )


def _unsafe(host: HostState, above: Sequence[str]) -> list[HostPath]:
    return [
        path
        for path in host.paths
        if path.path in above and (path.user_id != 0 or not stat.S_ISDIR(path.mode) or can_change(path, ""))
    ]


def _above(path: str) -> tuple[str, ...]:
    """Every folder above a path."""
    parts = path.strip("/").split("/")[:-1]
    return ("/", *("/" + "/".join(parts[: number + 1]) for number in range(len(parts))))


def _shown(paths: Sequence[HostPath]) -> str:
    return ", ".join(
        f"{path.path} is a symbolic link"
        if stat.S_ISLNK(path.mode)
        else f"{path.path} belongs to {path.owner} with mode {stat.S_IMODE(path.mode):03o}"
        for path in paths
    )


def _give(paths: Sequence[HostPath]) -> str:
    links = [path.path for path in paths if stat.S_ISLNK(path.mode)]
    others = " ".join(path.path for path in paths if not stat.S_ISLNK(path.mode))
    parts = [f"Run `chown root {others}` and `chmod go-w {others}`."] if others else []
    parts += [f"Write the path without the link {link} into the inventory." for link in links]
    return " ".join(parts)
