"""Whether the user of a unit can use a file as a start uses it: by the modes of the file and of each folder on the way.

Source: path_resolution(7) for the order owner, group, others, of which only the first that fits decides; acl(5) for
files with an access control list; capabilities(7) for root.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Use(StrEnum):
    """What a start does with a path. Values are words of sentences."""

    REACH = "reach"
    """Nothing more is known than that its name is looked up."""
    ENTER = "enter"
    READ = "read"
    LIST = "list and enter"
    EXECUTE = "execute"
    WRITE = "write"
    CREATE = "create files in"
    LOAD = "load libraries from"
    """It creates them there before."""


_READ, _WRITE, _EXECUTE = stat.S_IROTH, stat.S_IWOTH, stat.S_IXOTH
_NEEDS = {
    Use.REACH: 0,
    Use.ENTER: _EXECUTE,
    Use.READ: _READ,
    Use.LIST: _READ | _EXECUTE,
    Use.EXECUTE: _EXECUTE,
    Use.WRITE: _WRITE,
    Use.CREATE: _WRITE | _EXECUTE,
    Use.LOAD: _WRITE | _EXECUTE,
}
MAPPED = (Use.EXECUTE, Use.LOAD)
"""Uses that a mount with noexec refuses."""


def is_permitted(bits: int, use: Use) -> bool:
    """Return whether the bits of a mode for an owner, a group or all others (0 to 7) permit a use."""
    return _NEEDS[use] & ~bits == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMode:
    """A file or a folder, behind its link."""

    path: str
    mode: int
    """Its permissions, without its kind."""
    user_id: int
    group_id: int
    has_acl: bool = False
    is_on_noexec: bool | None = False
    """Whether its file system executes no programs; None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitUser:
    """The user of the next process of a unit."""

    name: str
    user_id: int = -1
    group_ids: frozenset[int] = frozenset()
    passes_modes: bool = False
    """Root, or a unit with a capability that passes modes."""
    hidden: tuple[str, ...] = ()
    """Folders that the unit does not see (ProtectHome=)."""
    bound: tuple[str, ...] = ()
    """Paths below them that it sees."""
    inaccessible: tuple[str, ...] = ()
    """Folders and files that InaccessiblePaths= closes."""
    unexecutable: tuple[str, ...] = ()
    """Folders in which NoExecPaths= forbids programs."""
    executable: tuple[str, ...] = ()
    """Folders in which ExecPaths= permits them. With `*` at its end: all that begin so."""
    is_changed: bool = False
    """systemd starts a process of root, which changes to this user itself."""
    unknown: str = ""
    """Why the user is not known, a part of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAccess:
    """Whether a user can use a path. Neither `refused` nor `unknown`: it can."""

    user: str = ""
    refused: str = ""
    """What the user cannot do, such as `cannot enter /opt/x (mode 0750, …)`; the end of a sentence."""
    place: str = ""
    """The file or the folder that refuses."""
    unknown: str = ""
    """Why this is not known; a part of a sentence."""


def access_of(user: UnitUser, way: Sequence[FileMode | str], place: FileMode | str, use: Use) -> FileAccess:
    """Return the access. `way`: each folder in which a name is looked up, from the first. A text is the path of a
    folder or file whose mode is not known. `place`: behind all links."""
    if user.unknown:
        return FileAccess(user=user.name, unknown=user.unknown)
    path = place if isinstance(place, str) else place.path
    is_bound = any(_is_in(path, folder) for folder in user.bound)
    for folder in user.hidden if not is_bound else ():
        if _is_in(path, folder):
            return _refused(user, path, f"does not see {folder} (ProtectHome of the unit)")
    for folder in user.inaccessible:
        if _is_in(path, folder):
            return _refused(user, path, f"cannot enter {folder} (InaccessiblePaths= of the unit)")
    closed = max((one for one in user.unexecutable if _is_in(path, one)), key=len, default=None)
    opened = max((one for one in user.executable if _is_in(path, one)), key=len, default="")
    if use in MAPPED and closed is not None and len(opened) <= len(closed) and opened != closed:
        return _refused(user, path, f"cannot {use} {path} (NoExecPaths={closed} of the unit)")
    unknown = ""
    for part, wanted in [*((folder, Use.ENTER) for folder in way), (place, use)]:
        if not _NEEDS[wanted]:
            continue
        if isinstance(part, str):
            unknown = unknown or f"the mode of {part} is not known"
            continue
        allowed = _allows(user, part, wanted)
        if allowed is False:
            owner = f"owner {part.user_id}, group {part.group_id}"
            return _refused(user, part.path, f"cannot {wanted} {part.path} (mode {part.mode:04o}, {owner})")
        if allowed is None:
            unknown = unknown or f"{part.path} has an access control list"
        if wanted in MAPPED and part.is_on_noexec:
            return _refused(user, part.path, f"cannot {wanted} {part.path}: its file system is mounted with noexec")
        if wanted in MAPPED and part.is_on_noexec is None:
            unknown = unknown or f"the mount options of {part.path} are not known"
    return FileAccess(user=user.name, unknown=unknown)


def _is_in(path: str, folder: str) -> bool:
    if folder.endswith("*"):
        return path.startswith(folder[:-1])
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def _refused(user: UnitUser, place: str, what: str) -> FileAccess:
    return FileAccess(user=user.name, refused=what, place=place)


def _allows(user: UnitUser, file: FileMode, use: Use) -> bool | None:
    """Return None if an access control list decides, whose mask is shown as the mode of the group."""
    needs = _NEEDS[use]
    if use is Use.EXECUTE and file.path.endswith(".sh"):
        needs |= _READ  # its interpreter opens it
    if user.passes_modes:
        return use is not Use.EXECUTE or file.mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH) != 0
    of_owner, of_group, of_others = (file.mode >> shift & 0o7 for shift in (6, 3, 0))
    if file.user_id == user.user_id:
        return needs & ~of_owner == 0
    if file.has_acl:
        return None if needs & ~of_group == 0 or needs & ~of_others == 0 else False
    return needs & ~(of_group if file.group_id in user.group_ids else of_others) == 0
