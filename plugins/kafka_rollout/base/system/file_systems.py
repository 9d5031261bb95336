"""The type of the file system of a folder."""

from __future__ import annotations

from pathlib import Path

import psutil

# Several machines can have one file there, and what machines share in memory or lock, they do not share with others.
_OF_NETWORKS = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "afs",
        "ceph",
        "lustre",
        "gpfs",
        "beegfs",
        "ocfs2",
        "gfs2",
        "fuse.glusterfs",
        "fuse.sshfs",
        "fuse.s3fs",
        "fuse.gcsfuse",
        "fuse.cephfs",
        "fuse.moosefs",
    ]
)


def network_file_system(folder: Path) -> str:
    """Return the type of the file system of a folder, or of its first parent that exists, if it is one of a network."""
    path = folder.resolve()
    mounts = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
    found = next((mounts[parent] for parent in (path, *path.parents) if parent in mounts), "")
    return found if found in _OF_NETWORKS else ""
