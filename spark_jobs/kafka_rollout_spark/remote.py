"""Coordinator logs at URLs of a file system that fsspec supports: copies of log directories in an object storage.

The driver makes folders with the small files of a copy, and with the end of the newest segment of each partition; every
other segment is a file without blocks there. Tasks download the segments that they read. Credentials are those of the
environment, as fsspec finds them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from kafka_rollout.base.errors import TransientError, UserError
from kafka_rollout.coordinator_logs.reading.directories import (
    Segment,
    SegmentGoneError,
    SegmentRange,
    boundary,
    index_positions,
)
from kafka_rollout.formats.log_files import MAYBE_SEGMENT, SEGMENT
from kafka_rollout_spark.rows import LogBytes
from kafka_rollout_spark.source import LogsToRead, Range, SegmentFiles, logs_in_directories

_CHECKPOINTS = "-checkpoint"
_MOST_SMALL_BYTES = 16 << 20  # an index of the active segment has 10 MiB


def is_url(place: str) -> bool:
    return "://" in place


@dataclass(frozen=True, slots=True)
class UrlSegments:
    """Segments at URLs."""

    roots: tuple[tuple[str, str], ...]
    """Folder on the driver, and the URL of its content."""

    def url_of(self, path: str) -> str:
        """Return where a file or folder of the driver was copied from."""
        for folder, url in self.roots:
            if path == folder or path.startswith(f"{folder}/"):
                return f"{url}{path[len(folder) :]}"
        return path

    def read(self, ranges: Sequence[Range], damage: list[pa.RecordBatch]) -> Iterator[LogBytes]:
        """As SegmentFiles does."""
        with tempfile.TemporaryDirectory(prefix="kafka-rollout-segments-") as folder:
            for part in ranges:
                assert isinstance(part, SegmentRange)  # noqa: S101 - what DirectoryLogs cut
                url = self.url_of(str(part.segment.path))
                path = Path(folder) / part.segment.path.name
                size = _download(url, path)
                if size < part.segment.size:
                    raise SegmentGoneError(f"Segment {url} was replaced during the reading.", remedy="Read again.")
                local = Segment(path=path, inode=path.stat().st_ino, size=part.segment.size)
                found: list[pa.RecordBatch] = []
                for block in SegmentFiles().read([replace(part, segment=local)], found):
                    yield replace(block, file=url)
                damage += (_at(one, url) for one in found)
                path.unlink()


def logs_at_urls(*, cluster: str, urls: Sequence[str], topics: Collection[str]) -> LogsToRead:
    """The current content of log directories, or of folders of single partitions, at these URLs."""
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-copies-") as folder:
        roots = []
        for number, url in enumerate(urls):
            base = url.rstrip("/")
            root = Path(folder).resolve() / str(number) / base.rpartition("/")[2]
            _mirror(base, root, topics)
            roots.append((str(root), base))
        source = UrlSegments(tuple(roots))
        logs = logs_in_directories(cluster=cluster, directories=[Path(root) for root, _ in roots], topics=topics)
    return replace(
        logs,
        source=source,
        names={place: source.url_of(name) for place, name in logs.names.items()},
        damage=tuple(replace(one, file=source.url_of(one.file)) for one in logs.damage),
        copies=tuple(replace(copy, directory=source.url_of(copy.directory)) for copy in logs.copies),
    )


def _mirror(url: str, root: Path, topics: Collection[str]) -> None:
    """Make the folder of one log directory, or of one partition."""
    files, path = _file_system(url)
    entries = _list(files, url, path)
    root.mkdir(parents=True)
    if _is_partition(root.name, topics):
        _mirror_partition(files, entries, root)
        return
    partitions = [one for one in entries if one["type"] == "directory" and _is_partition(_name(one), topics)]
    if not partitions:
        raise UserError(
            f"{url} contains no coordinator log: it has no folder such as {min(topics)}-0.",
            remedy="Use the URL of a copied log directory of a broker, or of the folder of one partition.",
        )
    for entry in entries:
        if entry["type"] == "file" and (_name(entry).endswith(_CHECKPOINTS) or _name(entry) == "meta.properties"):
            _fetch(files, entry, root / _name(entry))
    for entry in partitions:
        folder = root / _name(entry)
        folder.mkdir()
        _mirror_partition(files, _list(files, url, entry["name"]), folder)


def _mirror_partition(files: Any, entries: Sequence[Any], folder: Path) -> None:
    segments = {}
    for entry in entries:
        path = folder / _name(entry)
        if entry["type"] != "file":
            continue
        if MAYBE_SEGMENT.fullmatch(path.name):
            segments[path.name] = entry
            path.touch()
            os.truncate(path, entry["size"])
        elif entry["size"] <= _MOST_SMALL_BYTES:
            _fetch(files, entry, path)
    # Which of the files that the log cleaner was replacing are the log depends on their ends.
    newest = sorted(segments)[-1:]
    for name in segments if any(not SEGMENT.fullmatch(one) for one in segments) else newest:
        _fetch_end(files, segments[name], folder / name)


def _fetch_end(files: Any, entry: Any, path: Path) -> None:
    """Download a segment from the last position in its index to its end; without a correct index, all of it."""
    segment = Segment(path=path, inode=0, size=entry["size"])
    begin = max((position for position in index_positions(segment) if position < segment.size), default=0)
    with _Remote(entry["name"]), files.open(entry["name"], "rb") as remote, path.open("r+b") as local:
        for position in dict.fromkeys((begin, 0)):
            remote.seek(position)
            local.seek(position)
            shutil.copyfileobj(remote, local)
            local.flush()
            if boundary(local.fileno(), segment, [begin], -1) is not None:
                return


def _fetch(files: Any, entry: Any, path: Path) -> None:
    with _Remote(entry["name"]):
        path.write_bytes(files.cat_file(entry["name"]))


def _download(url: str, path: Path) -> int:
    """Return the size of the downloaded file."""
    files, name = _file_system(url)
    try:
        with _Remote(url):
            files.get_file(name, str(path))
    except FileNotFoundError:
        raise SegmentGoneError(f"Segment {url} does not exist any more.", remedy="Read again.") from None
    return path.stat().st_size


def _list(files: Any, url: str, path: str) -> list[Any]:
    try:
        with _Remote(url):
            return sorted(files.ls(path, detail=True, refresh=True), key=_name)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{url} does not exist.", remedy="Use the URL of a copied log directory.") from None


def _file_system(url: str) -> tuple[Any, str]:
    import fsspec

    try:
        found, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UserError(
            f"The file system of {url} cannot be used: {error}.",
            remedy="Install the package of fsspec for it on the driver and on every executor, such as s3fs.",
        ) from None
    return found, path


class _Remote:
    """Errors of a file system, except that a file does not exist, are one sentence."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise TransientError(
                f"{self._url} cannot be read: {error}.",
                remedy="Check the URL, and the credentials in the environment of the driver and the executors.",
            ) from None


def _is_partition(name: str, topics: Collection[str]) -> bool:
    topic, _, partition = name.rpartition("-")
    return topic in topics and partition.isdecimal()


def _name(entry: Any) -> str:
    return str(entry["name"]).rstrip("/").rpartition("/")[2]


def _at(batch: pa.RecordBatch, url: str) -> pa.RecordBatch:
    """Return rows of damage with the URL as their file."""
    at = batch.schema.get_field_index("file")
    return batch.set_column(at, batch.schema.field(at), pa.repeat(pa.scalar(url, pa.string()), batch.num_rows))
