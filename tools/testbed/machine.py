"""What the test bed needs of the machine: root, namespaces, overlay mounts, control groups and a few programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PROGRAMS = ("systemd-nspawn", "debootstrap", "ip", "mount", "umount", "nsenter", "ssh-keygen")
PACKAGES = ("systemd-container", "debootstrap", "iproute2", "mount", "openssh-client")
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
# systemd's own hierarchies next to control groups version 1: its own and the one that older programs read.
_HYBRID = (_CONTROL_GROUPS / "unified", _CONTROL_GROUPS / "systemd")


class TestbedError(Exception):
    """One sentence: why there is no test bed."""


def run(*words: str | Path, text: str | None = None, within_s: float = 120.0) -> str:
    """Run a program; return its output. Raises TestbedError with its last line if it fails."""
    done = subprocess.run(
        [str(word) for word in words], input=text, capture_output=True, text=True, timeout=within_s, check=False
    )
    if done.returncode != 0:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise TestbedError(f"`{' '.join(map(str, words))}` failed: {lines[-1] if lines else done.returncode}")
    return done.stdout


def obstacle() -> str | None:
    """Return one sentence if this machine cannot run the test bed; None if it can."""
    if os.geteuid() != 0:
        return "The test bed needs root, to mount file systems and to create network namespaces."
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        return f"The test bed needs {', '.join(missing)} (Debian: apt-get install {' '.join(PACKAGES)})."
    try:
        run("unshare", "--mount", "--net", "--pid", "--fork", "--cgroup", "--ipc", "--uts", "true")
    except TestbedError:
        return "The test bed needs mount, network, process, IPC, UTS and cgroup namespaces, which this machine refuses."
    for root in control_group_roots():
        if os.statvfs(root).f_flag & os.ST_RDONLY:
            return f"The test bed needs to write to {root}, which is read-only."
    return None


def control_group_roots() -> tuple[Path, ...]:
    """The hierarchies in which systemd keeps its units."""
    hybrid = tuple(root for root in _HYBRID if root.is_dir())
    return hybrid or (_CONTROL_GROUPS,)


def nspawn_environment() -> dict[str, str]:
    """systemd inside a host uses the same version of control groups as the machine."""
    hybrid = {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "0"} if control_group_roots() != (_CONTROL_GROUPS,) else {}
    return {"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), **hybrid}


def install_programs() -> None:
    """Install missing programs with apt-get; does nothing where apt-get or root is missing."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        run("apt-get", "update", "--quiet", within_s=600)
        run("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *PACKAGES, within_s=600)


def mounts_below(folder: Path) -> list[Path]:
    """Mount points below a folder, the innermost first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [Path(line.split(" ")[4].replace("\\040", " ")) for line in lines]
    return sorted((point for point in points if point.is_relative_to(folder)), reverse=True)
