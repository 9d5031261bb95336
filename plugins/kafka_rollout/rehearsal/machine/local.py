"""Rehearsals: this process makes the copy; a process in a network namespace of its own runs it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from kafka_rollout.base.clock import Clock
from kafka_rollout.base.errors import FatalError, RefusedError, TransientError, UserError
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.base.system.files import write_whole
from kafka_rollout.base.system.python import module_path, python_process
from kafka_rollout.base.system.sessions import child_environment
from kafka_rollout.base.system.settings import Settings, read_variables
from kafka_rollout.base.wording import few, size
from kafka_rollout.metadata_log.disk.folder import META
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.ports.cluster import ClusterAdmin, NodeRuntime
from kafka_rollout.rehearsal.configuration import refuse_escaping
from kafka_rollout.rehearsal.job import RehearsalJob, RehearsalStoppedError
from kafka_rollout.rehearsal.machine.node_files import (
    MORE_BYTES,
    CopyLimit,
    FilesHere,
    HostFiles,
    NodeFiles,
    backup_files,
    backup_release,
    node_files,
    same_cluster,
)
from kafka_rollout.rehearsal.machine.sandbox import JOB, RESULT, Sandbox, build, new_sandbox, rehearsal_folder
from kafka_rollout.rehearsal.result import RehearsalResult, read_contents
from kafka_rollout.rehearsal.selection import DEFAULT_LIMIT, RehearsalEstimate, estimate, find_shortage, select_nodes
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache

PROCESS = "kafka_rollout.wiring.rehearsal"  # opens the ports of the copy and carries out steps on them
_END_S = 30.0
_GATE_S_OF_REPLICA = 0.01  # a broker of the copy catches up with its replicas within the gate timeout
_HOSTS = (
    "The installations of the hosts: the copy runs Apache Kafka's jars and the Java of this machine, without the units."
)
_ISOLATED = "In a network namespace of its own: no address outside of the sandbox exists there."


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRehearsals:
    """Rehearsals on this machine, of nodes whose files it can read, also over SSH."""

    cluster: ClusterSpec
    admin: ClusterAdmin
    runtime: NodeRuntime
    clock: Clock
    settings: Settings
    limit: int = DEFAULT_LIMIT
    """Most nodes of a copy."""
    folder: Path | None = None
    """Where the copies are made; by default in the home folder."""

    def rehearse(self, job: RehearsalJob, on_progress: Callable[[str], None]) -> RehearsalResult:
        """Rehearse a running cluster (port Rehearsals)."""
        self._refuse_disabled()
        selection = select_nodes(self.cluster, self.admin.partitions(), limit=self.limit)
        refuse_escaping(self.admin.dynamic_configs())
        limit = CopyLimit(
            most=self.settings.rehearse_gib << 30,
            within_s=self.settings.rehearse_minutes * 60,
            monotonic=self.clock.monotonic,
        )
        files = [self._files(self.cluster.node(node_id), limit) for node_id in selection.nodes]
        before = read_contents(self.admin, self.clock, self.cluster.brokers)
        job = replace(
            job,
            nodes=selection.nodes,
            unregistered=selection.left_out,
            uncovered=selection.uncovered,
            not_covered=selection.not_covered,
            real=before,
        )
        return self._carry_out(job, self._in_order(files), self.admin.cluster_id(), on_progress)

    def rehearse_backup(self, job: RehearsalJob, backup: Path, on_progress: Callable[[str], None]) -> RehearsalResult:
        """Rehearse a cluster from copies of its nodes' files, without a connection to it.

        `backup`: a folder with one folder per node, as `backup_files` reads it.
        """
        self._refuse_disabled()
        files = [backup_files(node, backup) for node in self.cluster.nodes]
        job = replace(job, nodes=tuple(one.node.node_id for one in files))
        return self._carry_out(job, files, None, on_progress, backup)

    def _carry_out(
        self,
        job: RehearsalJob,
        files: Sequence[NodeFiles],
        cluster_id: str | None,
        on_progress: Callable[[str], None],
        backup: Path | None = None,
    ) -> RehearsalResult:
        """Copy and run. `cluster_id`: of the running cluster, which is compared; None for a backup."""
        below = self.folder or rehearsal_folder(self.settings)
        originals = [*map(Path, real_directories(files)), *([backup] if backup else [])]
        refuse_within(below, originals)
        if (copied := same_cluster(files)) != (real := cluster_id or copied):
            raise UserError(
                f"The directories belong to cluster {copied}, and {self.cluster.name} is cluster {real}.",
                remedy="Correct the directories in the inventory. Nothing was copied.",
            )
        command = namespace_command()
        if not command:
            raise RefusedError(
                "A rehearsal needs a network namespace (unshare --net), which is not allowed here. The metadata "
                "of the copy contains the addresses of the real brokers.",
                remedy="Run as root or allow user namespaces, or continue without a rehearsal (--no-rehearse).",
            )
        needed = estimate_copy(files)
        on_progress(needed.sentence)
        limit = self.settings.rehearse_gib << 30
        if isinstance(self.runtime, HostCommands) and needed.copied > limit:  # one connection, next to the clients
            raise RefusedError(
                f"The rehearsal would copy {size(needed.copied)} from the hosts, and the limit is {size(limit)}.",
                remedy=MORE_BYTES,
            )
        if short := find_shortage(needed, free_memory=free_memory(), free_disk=free_disk(below)):
            remedy = "Rehearse on a machine with more, with fewer nodes (--nodes), or from copies of the files."
            raise RefusedError(short, remedy=remedy)
        cache = ReleaseCache.from_settings(self.settings)
        for release in job.releases:  # the sandbox has no network
            cache.libs(release)
        cache.agents()
        brokers = self.cluster.brokers
        with new_sandbox(below, keep=originals, say=on_progress) as sandbox:
            of_hosts = (_HOSTS,) if isinstance(self.runtime, HostCommands) else ()
            not_covered = copy_cluster(sandbox, self.cluster, files, needed, on_progress)
            timeout_s = job.gate_timeout_s + needed.partitions * _GATE_S_OF_REPLICA
            job = replace(
                job,
                not_covered=(*job.not_covered, *not_covered, *of_hosts),
                estimate=needed.sentence,
                gate_timeout_s=timeout_s,
                isolation=_ISOLATED,
                real_addresses=_addresses(self.cluster),
                real_directories=real_directories(files),
                later=None if job.real is None else read_contents(self.admin, self.clock, brokers, job.real),
            )
            return run_job(sandbox, job, command, on_progress)

    def _refuse_disabled(self) -> None:
        if not self.settings.rehearse:
            raise RefusedError(
                "This machine makes no copies of clusters (KAFKA_ROLLOUT_REHEARSE is 0).",
                remedy="Unset the variable, or rehearse on another machine.",
            )

    def _files(self, node: NodeSpec, limit: CopyLimit) -> NodeFiles:
        if isinstance(self.runtime, HostCommands):
            source = HostFiles(commands=self.runtime, node=node, limit=limit)
            return node_files(node, self.runtime.config(node), source=source)
        if node.directory is None:
            raise RefusedError(
                f"The files of {node.name} cannot be read from this machine (runtime {self.cluster.runtime}).",
                remedy="Rehearse from copies of the files (rehearse --backup), or continue without a rehearsal.",
            )
        return node_files(node, self.runtime.config(node))

    def _in_order(self, files: Sequence[NodeFiles]) -> list[NodeFiles]:
        """Return brokers, then controllers, the leader of the quorum last: no copy is ahead of the leader's."""
        try:
            leader = self.admin.quorum().leader_id
        except TransientError:
            leader = -1
        return sorted(files, key=lambda one: (one.node.is_controller, one.node.node_id == leader))


def refuse_within(below: Path, originals: Sequence[Path]) -> None:
    """Raise UserError if copies would be made in a directory of the cluster, or in the backup that is copied."""
    for original in originals:
        if below.resolve().is_relative_to(original.resolve()):
            raise UserError(
                f"The folder for the copy, {below}, is in {original}, which is copied.",
                remedy="Choose another folder (--folder). Nothing was copied.",
            )


def read_backup_release(cluster: ClusterSpec, backup: Path) -> Release:
    """Return the release of all nodes in a backup. Raises UserError if it is not there, or if they differ."""
    if not backup.is_dir():
        raise UserError(
            f"The folder {backup} of --backup does not exist.",
            remedy="Name the folder that has a copy of each node's home.",
        )
    found = {node.name: backup_release(node, backup) for node in cluster.nodes}
    releases = set(found.values())
    if len(releases) != 1 or None in releases:
        texts = (f"{name} {release or 'unknown'}" for name, release in found.items())
        raise UserError(
            f"The nodes in {backup} do not have one release: {few(texts)}.",
            remedy="Write the release into a file named release in the folder of each node, for example 3.9.1.",
        )
    return Release.parse(str(releases.pop()))


def estimate_copy(files: Sequence[NodeFiles]) -> RehearsalEstimate:
    sizes = {one.node.node_id: one.size() for one in files}
    return estimate({node_id: folders for node_id, (folders, _) in sizes.items()}, sum(s for _, s in sizes.values()))


def copy_cluster(
    sandbox: Sandbox,
    cluster: ClusterSpec,
    files: Sequence[NodeFiles],
    needed: RehearsalEstimate,
    on_progress: Callable[[str], None],
) -> tuple[str, ...]:
    """Copy the nodes' files and write their new configuration. Return what is not covered."""
    copies, done = {}, 0
    for one in files:

        def progress(folders: int, so_far: int = done) -> None:
            on_progress(f"copying: {so_far + folders} of {needed.partitions} partition folders")

        copies[one.node.node_id] = one.copy(sandbox.home(one.node), progress)
        done += one.size()[0]
    order = {node.node_id: position for position, node in enumerate(cluster.nodes)}
    _, not_covered = build(sandbox, cluster, sorted(files, key=lambda one: order[one.node.node_id]), needed, copies)
    return not_covered


def run_job(
    sandbox: Sandbox, job: RehearsalJob, namespace: Sequence[str], on_progress: Callable[[str], None]
) -> RehearsalResult:
    """Carry out a job in a process of its own, and return its result. The process ends with this one.

    Raises RefusedError if it was stopped, FatalError if it failed.
    """
    write_whole(sandbox.path / JOB, json.dumps(to_json(job)).encode())
    child = python_process(["-m", PROCESS, str(sandbox.path)], _environment(), within=namespace)
    last = ""
    with child.start(
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace"
    ) as process:
        try:
            for line in process.stdout or ():
                last = line.rstrip() or last
                on_progress(line.rstrip())
            process.wait()
        except BaseException:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    path = sandbox.path / RESULT
    if path.exists():
        return from_json(RehearsalResult, json.loads(path.read_text()))
    if process.returncode == RehearsalStoppedError.exit_code:
        raise RehearsalStoppedError(last)
    raise FatalError(
        f"The rehearsal ended without a result (exit code {process.returncode}): {last or 'it printed nothing'}",
        remedy="Fix the cause and repeat the rehearsal. The cluster was not touched.",
    )


def _environment() -> dict[str, str]:
    """Return the environment of the sandbox's process, which needs no credentials: its run history is its own."""
    java = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
    return {**child_environment(), **java, **module_path(), **read_variables(but=("KAFKA_ROLLOUT_DATABASE",))}


def _addresses(cluster: ClusterSpec) -> tuple[str, ...]:
    """Return `host:port` of all listeners and metrics agents of a cluster."""
    urls = (url for node in cluster.nodes for url in (node.prometheus_url, node.jolokia_url) if url)
    listeners = (one for node in cluster.nodes for one in (node.broker_address, node.controller_address) if one)
    return (*listeners, *(urlsplit(url).netloc for url in urls))


def real_directories(files: Sequence[NodeFiles]) -> tuple[str, ...]:
    """Return the homes and log directories of the real nodes on this machine: hosts can have the same paths."""
    homes = (one.node.directory for one in files if one.node.directory)
    paths = (
        path
        for one in files
        for path in one.directories.values()
        if isinstance(one.source, FilesHere) or (path / META).exists()
    )
    return (*homes, *map(str, paths))


_CGROUP, _OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_PROBE_S = 10.0


def free_memory() -> int:
    """Return the free memory in bytes: of the machine, or of a control group of this process if that is less."""
    return max(0, min([psutil.virtual_memory().available, *_free_in_groups()]))


def _free_in_groups() -> Iterator[int]:
    """Yield the bytes until the limit of each control group around this process: cgroups(7), version 2 and 1.

    The kernel reclaims files that were not read for some time (inactive_file) before it ends a process.
    """
    for line in _read(_OWN_GROUPS).splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root, names = _CGROUP, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root = _CGROUP / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        own = root / path.strip("/")
        for folder in (own, *(parent for parent in own.parents if parent.is_relative_to(root))):
            limit, used = _read(folder / names[0]).strip(), _read(folder / names[1]).strip()
            if limit.isdecimal() and used.isdecimal():
                stat = dict(one.split(" ", 1) for one in _read(folder / "memory.stat").splitlines())
                yield int(limit) - int(used) + int(stat.get(names[2], 0))


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def free_disk(folder: Path) -> int:
    """Return the free bytes of the file system of a folder, which can be missing."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(existing).free


@cache
def namespace_command() -> Sequence[str]:
    """Return the command that runs another one in a network namespace of its own; empty where it is not allowed."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return ()
    options = ["--net"] if os.geteuid() == 0 else ["--map-root-user", "--net"]
    command = [unshare, *options, "--"]
    with suppress(OSError, subprocess.SubprocessError):
        tried = subprocess.run([*command, "true"], capture_output=True, timeout=_PROBE_S, check=False, cwd="/")
        if tried.returncode == 0:
            return tuple(command)
    return ()


def enter_loopback() -> None:
    """Bring the loopback interface of this network namespace up.

    Raises RefusedError if another interface is up: this is not a namespace of its own.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        others = [name for _, name in socket.if_nameindex() if name != "lo" and _flags(control, name) & _IFF_UP]
        if others:
            raise RefusedError(
                f"The process of the rehearsal has the network interface {others[0]}.",
                remedy="Report this as a bug of kafka-rollout. Nothing was started.",
            )
        flags = _flags(control, "lo") | _IFF_UP
        fcntl.ioctl(control, _SIOCSIFFLAGS, _name("lo") + struct.pack("h", flags) + bytes(22))


def _flags(control: socket.socket, name: str) -> int:
    answer = fcntl.ioctl(control, _SIOCGIFFLAGS, _name(name) + bytes(24))
    return int(struct.unpack_from("h", answer, 16)[0])


def _name(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")
