"""Changes of a stopped node's metadata directory that survive being killed: whole files, and backups with a manifest.

A backup is a folder inside the log's own folder, which Kafka does not look into (beside it a folder whose name is no
partition's would stop a broker): copies of every file that goes or changes, and a manifest, which appears when all of
them are there and on disk. A backup without a manifest counts for nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from kafka_rollout.adapters.system.files import open_regular
from kafka_rollout.domain.model.errors import FatalError, RefusedError, UserError

MANIFEST = "manifest.json"
_DRAFT = ".kafka-rollout"


class Files:
    """Every change of the disk that is made; tests put one in its place that dies on the way."""

    def copy(self, source: Path, target: Path, *, position: int = 0, like: Path | None = None) -> None:
        """Whole or not at all, on disk, with the owner and rights of the source, or of `like`."""
        draft = target.with_name(target.name + _DRAFT)
        with os.fdopen(open_regular(source), "rb") as read, draft.open("wb") as write:
            read.seek(position)
            shutil.copyfileobj(read, write, 1 << 20)
            write.flush()
            os.fsync(write.fileno())
        _dress(like or source, draft)
        draft.rename(target)

    def write(self, target: Path, text: str, *, like: Path) -> None:
        draft = target.with_name(target.name + _DRAFT)
        with draft.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        _dress(like, draft)
        draft.rename(target)

    def make_folder(self, path: Path) -> None:
        path.mkdir()
        _dress(path.parent, path)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Its manifest first: a backup without one counts for nothing."""
        (path / MANIFEST).unlink(missing_ok=True)
        self.sync(path)
        shutil.rmtree(path)

    def sync(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _dress(source: Path, target: Path) -> None:
    """Times, rights and owner of another file."""
    shutil.copystat(source, target)
    of = source.stat()
    if (target.stat().st_uid, target.stat().st_gid) != (of.st_uid, of.st_gid):
        os.chown(target, of.st_uid, of.st_gid)


@contextmanager
def changing(folder: Path) -> Iterator[None]:
    """What the operating system refuses in the middle of a change becomes a sentence."""
    try:
        yield
    except OSError as error:
        raise FatalError(
            f"{error.filename or folder}: {error.strerror}.",
            remedy="Put that right and call again: it goes on where it was.",
        ) from error


def remove_remains(log: Path, prefix: str, files: Files) -> bool:
    """Remove what a call that was cut short left in and beside the log's folder and that counts for nothing; whether
    there was any. `prefix`: of the backups' names.
    """
    drafts = [*log.glob(f"*{_DRAFT}"), *log.parent.glob(f"*{_DRAFT}")]
    backups = [path for path in log.glob(f"{prefix}*") if not (path / MANIFEST).exists()]
    for path in drafts:
        files.remove(path)
    for path in backups:
        files.remove_folder(path)
    return bool(drafts or backups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A whole backup and its manifest.

    `state`: of the change. `sha256`: file name → hex digest, before the change. `details`: the other
    entries of the manifest.
    """

    folder: Path
    state: str
    sha256: Mapping[str, str]
    details: Mapping[str, Any]

    @classmethod
    def newest(cls, log: Path, prefix: str) -> Self | None:
        """The newest one in the log's folder. `prefix`: of the backups' names."""
        manifests = sorted(log.glob(f"{prefix}*/{MANIFEST}"))
        if not manifests:
            return None
        data = json.loads(manifests[-1].read_text())
        return cls(folder=manifests[-1].parent, state=data.pop("state"), sha256=data.pop("sha256"), details=data)

    def check(self, names: Iterable[str]) -> None:
        """Raise FatalError if the copy of one of these files is missing or has another digest than the manifest."""
        for name in names:
            path = self.folder / name
            if not path.exists() or sha256_of(path) != self.sha256[name]:
                raise FatalError(
                    f"The backup file {path} is missing or was changed after the backup.",
                    remedy="This call changed nothing. Restore the file from another copy, then repeat the command.",
                )

    def record(self, state: str, files: Files, *, like: Path) -> Self:
        """Write the manifest with a new state. `like`: whose owner and rights it gets."""
        data = {"state": state, **self.details, "sha256": dict(self.sha256)}
        files.write(self.folder / MANIFEST, json.dumps(data, indent=1), like=like)
        files.sync(self.folder)
        return replace(self, state=state)


def back_up(sources: Iterable[Path], backup: Path, files: Files) -> dict[str, str]:
    """Copy files into a new folder, and hold each copy against its source; SHA-256 (hex) by name. Without a manifest
    it is no backup yet.
    """
    wanted = list(sources)
    _check_space(backup.parent, wanted)
    if backup.exists():
        files.remove_folder(backup)
    files.make_folder(backup)
    for source in wanted:
        files.copy(source, backup / source.name)
    sha256 = {source.name: sha256_of(backup / source.name) for source in wanted}
    for source in wanted:
        if sha256_of(source) != sha256[source.name]:
            raise UserError(f"The copy of {source} is not what it was copied from.", remedy="See the disk.")
    return sha256


def sha256_of(path: Path, position: int = 0) -> str:
    with os.fdopen(open_regular(path), "rb") as file:
        file.seek(position)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_space(folder: Path, sources: Iterable[Path]) -> None:
    needed = 2 * sum(path.stat().st_size for path in sources)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise RefusedError(
            f"The backup in {folder} needs up to {needed >> 20} MiB, and {free >> 20} MiB are free.",
            remedy="Make room first.",
        )
