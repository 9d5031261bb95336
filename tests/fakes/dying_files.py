"""Changes of the disk that end like a process that is killed, at a place that a test chooses."""

from __future__ import annotations

from pathlib import Path

from kafka_rollout.metadata_log.changes.places import MANIFEST, DiskChanges


class KilledError(BaseException):
    """Nothing in the product catches it, as nothing catches a SIGKILL."""


class DyingFiles(DiskChanges):
    """Dies at the n-th change of the disk: before it, or with half a file written."""

    def __init__(self, at: int, *, half: bool) -> None:
        super().__init__()
        self.left, self.half = at, half

    def _step(self, target: Path | None = None) -> None:
        self.left -= 1
        if self.left < 0:
            if self.half and target is not None:
                target.with_name(target.name + ".kafka-rollout").write_bytes(b"half of it")
            raise KilledError

    def copy(self, source: Path, target: Path, *, position: int = 0, like: Path | None = None) -> None:
        self._step(target)
        super().copy(source, target, position=position, like=like)

    def write(self, target: Path, text: str, *, like: Path) -> None:
        self._step(target)
        super().write(target, text, like=like)

    def make_folder(self, path: Path) -> None:
        self._step()
        super().make_folder(path)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)

    def remove_folder(self, path: Path) -> None:
        self._step()
        (path / MANIFEST).unlink(missing_ok=True)
        self._step()
        super().remove_folder(path)

    def sync(self, folder: Path) -> None:
        self._step()
        super().sync(folder)
