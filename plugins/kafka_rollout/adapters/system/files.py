"""Files that survive the death of their writer: written whole or not at all, and names that are safe as file names."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from pydantic_core import to_jsonable_python

from kafka_rollout.domain.model.errors import UserError

_LONGEST_FILE_NAME = 255


def safe_name(text: str) -> str:
    """A file name for any text, distinct texts giving distinct names (Airflow's run ids contain ':' and '+')."""
    name = quote(text, safe="")
    if not name.strip("."):
        name = name.replace(".", "%2E")
    if not name or len(name) > _LONGEST_FILE_NAME:
        raise UserError(f"'{text[:60]}' cannot name a folder.", remedy="Use 1 to 80 letters, digits, '.', '_' and '-'.")
    return name


def original_name(name: str) -> str:
    """The text that `safe_name` was given."""
    return unquote(name)


def write_whole(path: Path, content: bytes, *, keep_first: bool = False) -> None:
    """Replace a file at once: readers see the old content or the new one, also after a power cut.

    With `keep_first` a file that exists is left as it is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep_first:
            try:
                os.link(fresh, path)
            except FileExistsError:
                return
        else:
            Path(fresh).replace(path)
        sync_folder(path.parent)
    finally:
        Path(fresh).unlink(missing_ok=True)


def append_line(path: Path, line: Mapping[str, Any]) -> None:
    """Append one JSON line in a single write, synced to disk; the caller keeps other writers out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_jsonable_python(line), ensure_ascii=False)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        # A writer killed in the middle left a line without its end: it must not swallow this one.
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, f"{chr(10) if torn else ''}{text}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
