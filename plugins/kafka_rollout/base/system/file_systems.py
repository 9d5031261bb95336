"""The type of the file system of a folder."""

from __future__ import annotations

from pathlib import Path

import psutil

# Those of one machine. On another one, of a network or of the host of virtual machines, several machines can have one
# file, and what machines share in memory or lock, they do not share with others.
_LOCAL = frozenset(
    [
        "apfs",
        "bcachefs",
        "btrfs",
        "ecryptfs",
        "exfat",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "fuse.fuse-overlayfs",
        "fuseblk",
        "hfs",
        "jfs",
        "nilfs2",
        "ntfs3",
        "overlay",
        "ramfs",
        "reiserfs",
        "rootfs",
        "tmpfs",
        "ubifs",
        "ufs",
        "vfat",
        "xfs",
        "zfs",
    ]
)


def shared_file_system(folder: Path) -> str:
    """Return the type of the file system of a folder, or of its first parent that exists, unless it is one of a single
    machine; empty if no mount is known."""
    path = folder.resolve()
    mounts = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
    found = next((mounts[parent] for parent in (path, *path.parents) if parent in mounts), "")
    return "" if found in _LOCAL else found
