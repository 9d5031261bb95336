"""Files: write them whole or not at all, open them without waiting, safe file names."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from kafka_rollout.base.errors import UserError

_LONGEST_FILE_NAME = 255
_MOST_LINKS = 40  # as Linux
_DESCRIPTORS = re.compile(r"/proc/(\d+)(/task/\d+)?/fd")
_KINDS = (
    (stat.S_ISDIR, "folder"),
    (stat.S_ISLNK, "link"),
    (stat.S_ISFIFO, "FIFO"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISBLK, "block device"),
    (stat.S_ISCHR, "character device"),
)


def safe_name(text: str) -> str:
    """A file name for any text; different texts get different names (Airflow's run ids contain ':' and '+')."""
    name = quote(text, safe="")
    if not name.strip("."):
        name = name.replace(".", "%2E")
    if not name or len(name) > _LONGEST_FILE_NAME:
        raise UserError(f"'{text[:60]}' cannot name a folder.", remedy="Use 1 to 80 letters, digits, '.', '_' and '-'.")
    return name


def write_whole(path: Path, content: bytes, *, mode: int = 0o600, like: Path | None = None) -> None:
    """Replace a file at once: readers see the old content or the new one, also after a power cut.

    `mode`: of the new file, less the umask. `like`: an existing file whose mode, owner and access list the new file
    gets instead; it may be the replaced file itself. Raises UserError, and replaces nothing, if this process
    cannot give the file to the owner.
    """
    with writing_whole(path, mode=mode, like=like) as file:
        file.write(content)


def write_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write a file that the user named. Raises UserError if it cannot be written.

    A regular file is replaced, completely or not at all, and keeps its mode; of a link, the file behind it. What is
    open already (/dev/stdout, /dev/fd/N) and what is no regular file, such as a device or a FIFO, gets the content.
    `mode`: of a new file, less the umask.
    """
    try:
        target, is_open = _behind_links(path)
        if is_open or (target.exists() and not target.is_file()):
            with os.fdopen(os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), "wb") as file:
                file.write(data)
        else:
            is_ours = target.exists() and (os.geteuid() in (0, target.stat().st_uid))
            write_whole(target, data, mode=mode, like=target if is_ours else None)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.", remedy="Use another file.") from None


def _behind_links(path: Path) -> tuple[Path, bool]:
    """Return the path behind symbolic links, and whether it is that of an open descriptor of a process."""
    for _ in range(_MOST_LINKS):
        folder = Path(os.path.realpath(path.parent))
        path = folder / path.name
        if _DESCRIPTORS.fullmatch(str(folder)):
            return path, True
        if not path.is_symlink():
            return path, False
        path = folder / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


@contextmanager
def writing_whole(path: Path, *, mode: int = 0o600, like: Path | None = None) -> Iterator[BinaryIO]:
    """`write_whole` for content in parts; the file appears when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}")
    # With the mode from the first byte on: the content can be secret.
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 if like else mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if like is not None:
                take_rights(file.fileno(), like, path)
            yield file
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        sync_folder(path.parent)
    finally:
        fresh.unlink(missing_ok=True)


def make_private(path: Path) -> None:
    """Take away other users' rights to a file or folder, if it exists and belongs to this process's user."""
    with suppress(FileNotFoundError):
        of = path.stat()
        if of.st_uid == os.geteuid() and of.st_mode & 0o077:
            path.chmod(stat.S_IMODE(of.st_mode) & ~0o077)


@contextmanager
def private_lock_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for `flock`, and create it if it is missing. No other user can open it, and so lock it."""
    make_private(path)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as file:
        yield file


def take_rights(descriptor: int, like: Path | int, path: Path) -> None:
    """Give an open file the owner, mode and access list of another file. `path`: its name in the error.

    Raises UserError if this process cannot give a file to this owner.
    """
    of = os.stat(like)
    give_to_owner(descriptor, of, path)
    os.fchmod(descriptor, stat.S_IMODE(of.st_mode))
    for name in os.listxattr(like):  # access lists and SELinux labels
        with suppress(OSError):
            os.setxattr(descriptor, name, os.getxattr(like, name))


def give_to_owner(descriptor: int, of: os.stat_result, path: Path) -> None:
    """Give an open file or folder to the owner of another one; errors as `take_rights`."""
    now = os.fstat(descriptor)
    if (of.st_uid, of.st_gid) == (now.st_uid, now.st_gid):
        return
    try:
        os.fchown(descriptor, of.st_uid, of.st_gid)
    except PermissionError:
        raise UserError(
            f"{path} cannot be written: its owner must be user id {of.st_uid}, group id {of.st_gid}, and this process "
            f"runs as user id {os.geteuid()}.",
            remedy="Nothing was changed. Run this command as the owner of the file or as root.",
        ) from None


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to read into a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{error.filename or path} cannot be read: {error.strerror}.",
            remedy="Check its owner and rights, or read a copy.",
        ) from None


def open_regular(path: Path, *, follow_links: bool = True) -> int:
    """A descriptor of a file, for reading.

    Raises UserError for a FIFO, socket, device or folder, because opening a FIFO would wait for a writer, without
    `follow_links` for a link, and for a path that no file can have. Raises OSError as os.open does.
    """
    try:
        status = path.stat(follow_symlinks=follow_links)
    except ValueError as error:  # a NUL, or a character that has no bytes in file names
        raise UserError(f"{str(path)!r} is not a path: {error}.", remedy="Correct the path.") from None
    check_regular(path, status)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_links else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    try:
        check_regular(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_below(folder: Path, *parts: str, flags: int, mode: int = 0o644) -> int:
    """Return the descriptor of a file to write below a folder that another user can change, such as a node's home.

    This process can have more rights than that user. So no part of the path is followed as a link, nothing is
    truncated, and a file with another name, which can belong to another user, is refused. Raises UserError for these,
    and OSError as os.open does.
    """
    path = folder.joinpath(*parts)
    parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            os.close(parent)
            parent = inner
        safe = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a FIFO would wait
        descriptor = os.open(parts[-1], (flags & ~os.O_TRUNC) | safe, mode, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            raise
        raise UserError(f"{path} is a link, or not a file.", remedy="Remove it: nothing was written.") from None
    finally:
        os.close(parent)
    try:
        status = os.fstat(descriptor)
        check_regular(path, status)
        if status.st_nlink > 1:
            raise UserError(f"{path} has another name.", remedy="Remove it: nothing was written.")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_private(folder: Path) -> bool:
    """Return whether only this process's user and root can change the files of a folder, which need not exist yet."""
    existing = [path for path in (folder, *folder.parents) if path.exists()]
    for path in existing:
        status = path.stat()
        is_sticky = path != existing[0] and status.st_mode & stat.S_ISVTX  # others cannot replace what is in it
        if status.st_uid not in (0, os.geteuid()) or (status.st_mode & 0o022 and not is_sticky):
            return False
    return True


def read_regular(path: Path) -> bytes:
    """The content of a file; errors as `open_regular`."""
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read()


def check_readable(path: Path) -> None:
    """Raise what `open_regular` raises unless the file can be read."""
    os.close(open_regular(path))


def read_if_exists(path: Path) -> bytes | None:
    """The content of a file, None without one; other errors as `open_regular`."""
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None


def tail_of(path: Path, lines: int) -> tuple[str, ...]:
    """The last lines of a text file, empty without one; of very long lines fewer than `lines`. Other errors as
    `open_regular`."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 400 * max(lines, 1)))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ()
    return tuple(text.splitlines()[-lines:])


def sha256_of(path: Path, position: int = 0) -> str:
    """Hex digest of a file from a byte on; errors as `open_regular`."""
    with os.fdopen(open_regular(path), "rb") as file:
        file.seek(position)
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_regular(path: Path, status: os.stat_result) -> None:
    """Raise UserError unless a file's status is that of a regular file."""
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "special file")
        raise UserError(f"{path} is a {kind}, not a file.", remedy="Remove it, or use another directory.")


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
