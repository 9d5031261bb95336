"""Hosts of a test bed: an overlay on the base image, booted by systemd-nspawn with systemd as PID 1.

Which hosts run is observed: the processes of a host are those in its control group.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tools.testbed import network
from tools.testbed.machine import (
    TestbedError,
    control_group_roots,
    mounts_below,
    nspawn_environment,
    run,
)

_PROPAGATE = Path("/run/systemd/nspawn/propagate")
_BOOT_S = 60.0
_END_S = 20.0
_faults = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host. `folder`: its files on the machine; `number` counts from 1; `data_mb`: size of /var/lib/kafka."""

    bed: str
    number: int
    folder: Path
    data_mb: int = 400

    @property
    def name(self) -> str:
        return f"kafka-{self.number}"

    @property
    def address(self) -> str:
        return network.address(self.number)

    @property
    def machine(self) -> str:
        """Name of the host on the machine; unique, because systemd-nspawn has a folder of this name in /run."""
        return network.host_namespace(self.bed, self.number)

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def control_groups(self) -> tuple[Path, ...]:
        return tuple(root / f"kafka-rollout-{self.bed}" / self.name for root in control_group_roots())

    def mount(self, layers: Sequence[Path]) -> None:
        """Mount the file systems: `layers` from top to bottom below the host's own files, and its data."""
        for name in ("upper/var/lib/kafka", "work", "root"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        options = f"lowerdir={':'.join(map(str, layers))},upperdir={self.folder}/upper,workdir={self.folder}/work"
        run("mount", "-t", "overlay", "overlay", "-o", options, self.root)
        run("mount", "-t", "tmpfs", "tmpfs", "-o", f"size={self.data_mb}m,mode=0755", self.root / "var/lib/kafka")

    def prepare(self, script: str) -> None:
        """Run a script of `sh` in the file system of the host before its boot."""
        run("chroot", self.root, "/bin/sh", text=script)

    def boot(self) -> None:
        """Start systemd-nspawn in the control group of the host; returns at once."""
        for group in self.control_groups:
            group.mkdir(parents=True, exist_ok=True)
        command = [
            "systemd-nspawn",
            "--quiet",
            "--register=no",
            "--keep-unit",
            "--console=pipe",
            f"--directory={self.root}",
            f"--machine={self.machine}",
            f"--hostname={self.name}",
            f"--network-namespace-path={network.namespace_path(network.host_namespace(self.bed, self.number))}",
            "--resolv-conf=off",
            "--timezone=off",
            "--link-journal=no",
            "--boot",
        ]
        # A shell moves itself into the control groups and then becomes systemd-nspawn.
        enter = " && ".join([*(f"echo $$ > {group}/cgroup.procs" for group in self.control_groups), 'exec "$@"'])
        with (self.folder / "console.log").open("ab") as console:
            subprocess.Popen(
                ["/bin/sh", "-c", enter, "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                env=nspawn_environment(),
                start_new_session=True,
            )

    def wait_until_booted(self) -> None:
        """Wait until sshd listens. Raises TestbedError with the end of the console."""
        deadline = time.monotonic() + _BOOT_S
        while True:
            with suppress(TestbedError):
                if "LISTEN" in self.run("ss", "-Htln", "sport", "=", ":22"):
                    return
            if time.monotonic() >= deadline:
                lines = (self.folder / "console.log").read_text(errors="replace").splitlines()
                raise TestbedError(f"Host {self.name} did not boot in {_BOOT_S:.0f} s: {lines[-1:] or 'no output'}.")
            time.sleep(0.1)

    def run(self, *words: str, text: str | None = None, within_s: float = 120.0) -> str:
        """Run a command as root on the host, past SSH."""
        leader = self.leader()
        if leader is None:
            raise TestbedError(f"Host {self.name} does not run.")
        # Without -C: the command stays in the control group of the caller.
        enter = ("nsenter", "--target", str(leader), "--mount", "--uts", "--ipc", "--net", "--pid", "--")
        return run(*enter, *words, text=text, within_s=within_s)

    def leader(self) -> int | None:
        """Process id of the host's systemd on the machine; None if the host does not run."""
        for pid in self.processes():
            with suppress(OSError):
                status = Path(f"/proc/{pid}/status").read_text()
                if any(line.startswith("NSpid:") and line.split()[-1] == "1" for line in status.splitlines()):
                    return pid
        return None

    def processes(self) -> list[int]:
        """All processes of the host, with its systemd-nspawn."""
        found: set[int] = set()
        for group in self.control_groups:
            for folder, _, _ in os.walk(group):  # it skips groups that disappear while it reads
                with suppress(OSError):
                    found |= {int(line) for line in (Path(folder) / "cgroup.procs").read_text().split()}
        return sorted(found - {0})

    def reboot(self) -> None:
        """Kill every process of the host at once, as a loss of power does, and boot it again on the same files."""
        self._kill()
        self.boot()
        self.wait_until_booted()

    @contextmanager
    def dropping(self, *matches: str) -> Iterator[None]:
        """Drop incoming packets that match one of these expressions of nftables, such as `ip saddr 10.77.0.1`."""
        rules = "".join(f"{match} drop\n" for match in matches)
        chain = f"chain incoming {{\ntype filter hook input priority 0\n{rules}}}"
        table = f"fault-{next(_faults)}"  # faults of one host may overlap
        self.run("nft", "-f", "-", text=f"table inet {table} {{\n{chain}\n}}\n")
        try:
            yield
        finally:
            self.run("nft", "delete", "table", "inet", table)

    def end(self) -> None:
        """Kill the processes of the host and remove its mounts and control groups."""
        self._kill()
        for point in mounts_below(self.folder):
            run("umount", point)
        for group in self.control_groups:
            for folder, _, _ in os.walk(group, topdown=False):
                with suppress(FileNotFoundError):
                    os.rmdir(folder)

    def _kill(self) -> None:
        deadline = time.monotonic() + _END_S
        while pids := self.processes():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() >= deadline:
                raise TestbedError(f"Host {self.name} does not end: processes {', '.join(map(str, pids))}.")
            time.sleep(0.05)
        # systemd-nspawn leaves it when it is killed. Not earlier: it needs the folder while it boots.
        with suppress(OSError):
            (_PROPAGATE / self.machine).rmdir()
