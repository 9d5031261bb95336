"""Documents of runs and scans below one URL: a folder, or an object store.

A key is a path of safe names below the URL, such as `runs/orders/run-1/report.html`. A document is written completely
or not at all: in a folder by a rename, in an object store by one upload. Documents contain configuration values and
texts of approvals: in the home folder only their owner can read them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka_rollout.base.errors import FatalError, TransientError, UserError
from kafka_rollout.base.system.files import safe_name, write_whole
from kafka_rollout.base.system.own_folders import refuse_undrawn, remove_drawn_folder


def artifact_key(*names: str) -> str:
    """Return the key of a document. Names can contain any characters; "/" separates folders only in the last name."""
    *folders, name = names
    parts = [*folders, *name.split("/")]
    return "/".join(safe_name(part) for part in parts)


class Artifacts:
    """Documents below `url`: a path, or a URL of a file system that fsspec supports (s3://bucket/folder).

    `shared`: a folder of several users. Then the umask decides who can read and write.
    """

    def __init__(self, url: str, *, shared: bool = False) -> None:
        self._url = url
        self._shared = shared
        self._folder = None if "://" in url else Path(url).expanduser()
        if url.startswith("file://"):
            self._folder = Path(url.removeprefix("file://"))

    def write(self, key: str, content: bytes) -> None:
        """Write or replace a document."""
        with self._errors(key):
            path = self._path(key)
            if isinstance(path, Path) and self._folder is not None:
                for folder in reversed([one for one in path.parents if not one.exists()]):
                    folder.mkdir(mode=0o777 if self._shared else 0o700, exist_ok=True)
                write_whole(path, content, mode=0o666 if self._shared else 0o600)
            else:
                path.write_bytes(content)

    def read(self, key: str) -> bytes:
        """Read a document. Raises FatalError if it is missing."""
        with self._errors(key):
            return bytes(self._path(key).read_bytes())

    def write_folder(self, key: str, folder: Path) -> None:
        """Write all files of a folder. Their names must be safe names."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.write(f"{key}/{path.relative_to(folder).as_posix()}", path.read_bytes())

    def remove(self, key: str) -> None:
        """Remove a document, if it exists."""
        with self._errors(key):
            path = self._path(key)
            if self._folder is not None:
                path.unlink(missing_ok=True)
            elif path.exists():
                path.fs.rm(path.path)

    def remove_folder(self, key: str) -> None:
        """Remove a folder with its content, if it exists. Raises RefusedError unless its name was drawn."""
        with self._errors(key):
            path = self._path(key)
            if self._folder is not None:
                remove_drawn_folder(path)
            elif path.exists():
                refuse_undrawn(key)
                path.fs.rm(path.path, recursive=True)

    def location(self, key: str) -> str:
        """Return the path or URL of the document, for messages."""
        return str(self._folder / key) if self._folder is not None else f"{self._url.rstrip('/')}/{key}"

    def _path(self, key: str) -> Any:
        if self._folder is not None:
            return self._folder / key
        from upath import UPath

        return UPath(self._url) / key

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        where = self.location(key)
        try:
            yield
        except FileNotFoundError:
            raise FatalError(
                f"The document {where} is missing, although the run history lists it.",
                remedy="Check KAFKA_ROLLOUT_ARTIFACTS: it must be the same on every machine.",
            ) from None
        except (ImportError, ValueError) as error:
            raise UserError(
                f"KAFKA_ROLLOUT_ARTIFACTS cannot be used ({self._url.split('://')[0]}): {error}.",
                remedy="Install the package of this file system (s3fs, gcsfs or adlfs), or use a folder.",
            ) from None
        except OSError as error:
            why = error.strerror or os.strerror(error.errno) if error.errno else str(error)
            raise TransientError(
                f"The document {where} cannot be read or written: {why}.",
                remedy="Check the free space, the permissions and the connection, then repeat the command or the task.",
            ) from None
