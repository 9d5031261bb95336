"""Releases that are not on a host yet: from an archive on this machine, or by a command of the operator.

The SHA-512 of an archive is in the inventory, or in a file next to it, as Apache publishes both. Only the first one
shows that an archive is the one that the operator has verified.

The SSH user unpacks an archive without sudo: what root unpacks can have setuid bits, links and devices.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from functools import lru_cache
from pathlib import Path

from kafka_rollout.base.errors import FatalError, RefusedError, UserError
from kafka_rollout.base.system.files import open_regular, reading
from kafka_rollout.model.topology import NodeSpec, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of
from kafka_rollout.nodes.runtimes.hosts.directory import transfer_s
from kafka_rollout.nodes.runtimes.hosts.rights import DRAFT
from kafka_rollout.releases.facts import Release

UNPACK_REMEDY = (
    "Create a folder for releases that belongs to the SSH user, link the installed releases into it, and set "
    "`installation` to a path in this folder (docs/hosts.md)."
)
_SHA512 = re.compile(r"[0-9a-f]{128}")


def is_provided(service: ServiceSpec, release: Release) -> bool:
    """Return whether `provide` can bring a release. Raises UserError for an archive with a wrong checksum."""
    if service.archive is not None:
        path = _archive(service.archive, release)
        with reading(path):
            status = path.stat()
        if _sha512(path, status.st_size, status.st_mtime_ns) != _expected(service, path, release):
            raise _wrong(service, path, release)
    return service.archive is not None or service.install is not None


def is_pinned(service: ServiceSpec, release: Release) -> bool:
    """Return whether the inventory has the SHA-512 of the archive."""
    return str(release) in service.archive_sha512


def provide(commands: HostCommands, node: NodeSpec, release: Release) -> None:
    """Unpack the archive in a draft folder, then rename it; or run the operator's command."""
    service = service_of(node)
    if service.install is not None:
        line, within_s = service.install.command.replace("{release}", str(release)), service.install.timeout_s
        done = commands.run_fenced(node, line, within_s=within_s)
        if done.code != 0:
            raise FatalError(
                f"The command that installs Kafka {release} on host {service.host} failed: `{line}`: {done.problem}.",
                remedy="Fix the command or the host, then repeat the step.",
            )
    elif service.archive is not None:
        _unpack(commands, node, release, _read_archive(service, _archive(service.archive, release), release))


def _unpack(commands: HostCommands, node: NodeSpec, release: Release, content: bytes) -> None:
    service, folder = service_of(node), service_of(node).folder(release)
    draft, target = shlex.quote(folder + DRAFT), shlex.quote(folder)
    made = commands.run_fenced(node, f"rm -rf {draft} && umask 022 && mkdir {draft}")
    if made.code != 0:
        raise RefusedError(
            f"The SSH user cannot create {folder}{DRAFT} on host {service.host}: {made.problem}.",
            remedy=UNPACK_REMEDY,
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


def _read_archive(service: ServiceSpec, path: Path, release: Release) -> bytes:
    """Return the content of an archive. Raises UserError unless it has the expected checksum."""
    with reading(path), open(open_regular(path), "rb") as file:
        content = file.read()
    if hashlib.sha512(content).hexdigest() != _expected(service, path, release):
        raise _wrong(service, path, release)
    return content


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
        text = checksum.read_text().lower()
    _, colon, digits = text.partition(":")
    found = re.sub(r"\s", "", digits) if colon else text.split(maxsplit=1)[0] if text.strip() else ""
    if not _SHA512.fullmatch(found):
        raise UserError(f"{checksum} contains no SHA-512.", remedy="Download it again from the place of the archive.")
    return found


def _wrong(service: ServiceSpec, path: Path, release: Release) -> UserError:
    if is_pinned(service, release):
        return UserError(
            f"{path} does not have the SHA-512 of the inventory. Nothing was changed.",
            remedy="Verify the archive, for example by its signature. Then correct the file or archive_sha512.",
        )
    return UserError(
        f"{path} does not have the SHA-512 of {path.name}.sha512. Nothing was changed.",
        remedy="Download both again, then repeat the step.",
    )
