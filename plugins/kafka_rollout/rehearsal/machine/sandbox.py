"""The folder of a rehearsal, mode 0700. It is removed with its processes at the end.

If the process that uses it was killed, the next rehearsal removes the folder. Its name is for the operator: the marker
in it proves that the tool made it, and the lock of the marker that its owner has ended (own_folders).
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.internal_topics import METADATA_LOG
from kafka_rollout.base.system.files import write_whole
from kafka_rollout.base.system.free_ports import HOST, reserved_ports
from kafka_rollout.base.system.own_folders import (
    new_own_folder,
    read_own_folder,
    refuse_named,
    remove_own_folder,
    taking,
)
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.formats.files import server_properties
from kafka_rollout.formats.messages import decode, encode
from kafka_rollout.metadata_log.disk.folder import (
    CONTROL_VOTERS,
    MetadataBatch,
    MetadataFolder,
    encode_batch,
    read_file,
    voters_layout,
)
from kafka_rollout.model.log_directories import DIRECTORY_KEYS, named_directories
from kafka_rollout.model.pace import NO_CLIENTS, Pace
from kafka_rollout.model.quorum_addresses import ControllerAddresses
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.nodes.runtimes.local_process import LocalProcessRuntime, end_processes, node_processes
from kafka_rollout.rehearsal.configuration import find_escapes, rewrite_config, rewrite_overrides
from kafka_rollout.rehearsal.machine.node_files import NodeFiles
from kafka_rollout.rehearsal.selection import MIB, RehearsalEstimate

JOB, RESULT = "job.json", "result.json"
_NAME = "rehearsal"
_SANDBOX = re.compile(rf"{_NAME}-\d+-[0-9a-f]{{8}}")
_UNLOCKED = (errno.ENOENT, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_PORTS_OF_NODE = 4  # two listeners, two metrics agents


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Paths of a rehearsal."""

    path: Path

    def home(self, node: NodeSpec) -> Path:
        return self.path / "nodes" / node.name

    @property
    def mark(self) -> str:
        """JVM option of the sandbox's nodes and of no other process. Raises RefusedError without a marker."""
        return f"-Dkafka-rollout.sandbox={read_own_folder(self.path).token}"

    def settings(self, of: Settings) -> Settings:
        """Return settings with an inventory and a run history of the sandbox's own."""
        return Settings(
            clusters=self.path / "clusters",
            home=self.path / "home",
            cache=of.cache,
            include=of.include,
            catalogue=of.added_releases,
        )

    def end(self, *, keep: Collection[Path] = ()) -> None:
        """Kill the sandbox's nodes, which carry its mark, and remove the folder.

        Raises RefusedError, and removes nothing, if the tool did not make it, if it has, is or is in a path of `keep`,
        or if a process that this one cannot see still runs on it.
        """
        refuse_named(self.path, keep)
        mark = self.mark
        end_processes([one for one in node_processes(self.path).values() if _carries(one, mark)], deadline_s=0.0)
        if held := next(filter(_is_locked, self.path.glob("nodes/*/data/*/.lock")), None):
            raise RefusedError(
                f"{self.path} was not removed: a process that is not visible here uses its data ({held}).",
                remedy="End this process, for example in its container, then repeat the command.",
            )
        remove_own_folder(self.path)

    def end_leftover(self, *, keep: Collection[Path] = ()) -> None:
        """`end` for a folder whose owner has ended, which is proved: raises RefusedError otherwise."""
        folder = read_own_folder(self.path)
        if not folder.is_of_this_machine:
            raise RefusedError(
                f"{self.path} was not removed: another machine made it.",
                remedy="Repeat the command there, or remove the folder if that machine no longer exists.",
            )
        with taking(folder) as is_taken:
            if not is_taken:
                raise RefusedError(f"{self.path} was not removed: a rehearsal uses it.", remedy="Wait for its end.")
            self.end(keep=keep)


def rehearsal_folder(settings: Settings) -> Path:
    return settings.home / "rehearsals"


@contextmanager
def new_sandbox(
    below: Path, *, keep: Collection[Path] = (), say: Callable[[str], None] = lambda _: None
) -> Iterator[Sandbox]:
    """Yield a new sandbox in a folder; nothing of it is left afterwards. First removes the leftovers of killed runs.

    `keep`: paths that no removal may touch. Raises UserError if the folder cannot be used.
    """
    found = remove_leftovers(below, keep=keep)
    for path in found.removed:
        say(f"removed the copy that a killed rehearsal left: {path}")
    path = below.resolve() / f"{_NAME}-{os.getpid()}-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        try:
            below.mkdir(parents=True, exist_ok=True, mode=0o700)
            stack.enter_context(new_own_folder(path))
        except OSError as error:
            raise UserError(
                f"The sandbox {path} cannot be created: {error.strerror}.", remedy="Choose another folder (--folder)."
            ) from None
        sandbox = Sandbox(path)
        try:
            yield sandbox
        finally:
            sandbox.end()


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What was found in a folder for sandboxes."""

    removed: tuple[Path, ...] = ()
    left: tuple[str, ...] = ()
    """Sentences about folders with the name of a sandbox that were not removed."""


def remove_leftovers(below: Path, *, keep: Collection[Path] = ()) -> Leftovers:
    """Remove the sandboxes that the tool made and whose owner has ended, with their nodes.

    `keep`: paths that no removal may touch.
    """
    removed, left = [], []
    for path in sorted(below.glob(f"{_NAME}-*")):
        if _SANDBOX.fullmatch(path.name):
            own = Sandbox(below.resolve() / path.name)
            try:
                own.end_leftover(keep=keep)
                removed.append(own.path)
            except RefusedError as error:
                left.append(str(error))
    return Leftovers(tuple(removed), tuple(left))


def _carries(process: psutil.Process, mark: str) -> bool:
    """Return whether a node is one of a sandbox: the path in its command line can be that of another file system."""
    with suppress(psutil.Error):
        return mark in process.cmdline() and process.uids().real == os.getuid()
    return False


def _is_locked(path: Path) -> bool:
    """Return whether a node holds the lock of its directory, also one in another process namespace.

    Where the file system has no locks, no node runs (LogManager.lockLogDirs, KafkaRaftManager).
    """
    try:
        with path.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _UNLOCKED
    return False


def build(
    sandbox: Sandbox,
    cluster: ClusterSpec,
    files: Sequence[NodeFiles],
    needed: RehearsalEstimate,
    copies: Mapping[int, Mapping[str, str]],
) -> tuple[ClusterSpec, tuple[str, ...]]:
    """Write the homes and the inventory of the copy; return its inventory, and sentences about what was taken out.

    `copies`: node id → each directory of its configuration → the copy.
    """
    with reserved_ports(_PORTS_OF_NODE * len(files)) as ports:
        addresses = (f"{HOST}:{port}" for port in ports)
        nodes = tuple(_node(sandbox.home(one.node), one.node, addresses) for one in files)
    overrides = rewrite_overrides(cluster.release_overrides)
    spec = ClusterSpec(
        name=cluster.name,
        nodes=nodes,
        runtime="local_process",
        release_overrides=overrides,
        paces={Pace.FAST: NO_CLIENTS},
    )
    not_covered: dict[str, None] = {}
    controllers = ControllerAddresses(cluster, {one.node.node_id: one.config for one in files})
    for one, node in zip(files, nodes, strict=True):
        rewritten = rewrite_config(one.config, node, spec, copies[node.node_id], controllers)
        home = sandbox.home(node)
        write_whole(home / "server.properties", server_properties.to_content(rewritten.lines))
        heap = needed.heaps[node.node_id] // MIB  # all of it at once: a heap that grows is collected after each step
        options = f"-Xms{heap}m\n-Xmx{heap}m\n-XX:+UseSerialGC\n-XX:TieredStopAtLevel=1\n-Xshare:auto\n{sandbox.mark}\n"
        write_whole(home / "jvm.options", options.encode())
        not_covered.update(dict.fromkeys(rewritten.not_covered))
        for copy in {Path(path) / METADATA_LOG for path in copies[node.node_id].values()}:
            if copy.is_dir():
                rewrite_voters(copy, {one.node_id: str(one.controller_address) for one in spec.controllers})
    write_whole(sandbox.path / "clusters" / f"{spec.name}.yaml", dump_cluster(spec).encode())
    return spec, tuple(not_covered)


def _node(home: Path, node: NodeSpec, addresses: Iterator[str]) -> NodeSpec:
    broker, controller, prometheus, jolokia = (next(addresses) for _ in range(_PORTS_OF_NODE))
    return NodeSpec(
        node_id=node.node_id,
        name=node.name,
        roles=node.roles,
        rack=node.rack,
        broker_address=broker if node.is_broker else None,
        controller_address=controller if node.is_controller else None,
        prometheus_url=f"http://{prometheus}/metrics",
        jolokia_url=f"http://{jolokia}/jolokia",
        directory=str(home),
    )


# --- the last check before a node of a rehearsal starts ---


@dataclass(frozen=True, slots=True)
class GuardedRuntime(LocalProcessRuntime):
    """Local processes of a sandbox. Every start first verifies the configuration as it is on disk."""

    sandbox: Path = field(kw_only=True)
    real_addresses: frozenset[str] = field(kw_only=True)
    real_directories: frozenset[str] = field(kw_only=True)

    def start(self, node: NodeSpec) -> None:
        """Start the node. Raises RefusedError if its configuration leaves the sandbox."""
        config = self.config(node)
        found = (
            *find_escapes(config, self.real_addresses),
            *find_foreign_directories(config, self.sandbox, self.real_directories),
        )
        if found:
            raise RefusedError(
                f"The copy of {node.name} is not started, because it is not isolated: {found[0]}",
                remedy="Report this as a bug of kafka-rollout. The cluster was not touched.",
            )
        LocalProcessRuntime.start(self, node)


def find_foreign_directories(
    config: Mapping[str, str], sandbox: Path, real_directories: Collection[str]
) -> tuple[str, ...]:
    """Return sentences about directories that are not in the sandbox, after symbolic links are resolved.

    `real_directories`: homes and log directories of the real cluster. None of them can contain the sandbox or be in it.
    """
    below = sandbox.resolve()
    found = [
        f"the sandbox {below} and the cluster's directory {real} contain each other."
        for real in (Path(name).resolve() for name in real_directories)
        if below.is_relative_to(real) or real.is_relative_to(below)
    ]
    names = [name for key in DIRECTORY_KEYS for name in named_directories(config, key)]
    if not names:
        found.append("its configuration contains no log.dirs.")
    found += [
        f"{name} is not in the sandbox {below}." for name in names if not Path(name).resolve().is_relative_to(below)
    ]
    return tuple(found)


def rewrite_voters(log: Path, addresses: Mapping[int, str]) -> int:
    """Replace the addresses of all voters in a copied log; return the number of changed files.

    `log`: the folder of __cluster_metadata-0. `addresses`: node id → `host:port`. Raises UserError for a voter without
    an address, and for a damaged file.
    """
    folder = MetadataFolder(log=log, root=log.parent, cluster_id=None, node_id=None)
    segments = folder.segments
    changed = 0
    for path in (*segments, *(checkpoint.path for checkpoint in folder.checkpoints)):
        found = list(read_file(path, last=path in segments[-1:], outline=True))
        if any(_has_voters(batch) for batch in found):
            path.write_bytes(b"".join(_rewritten(batch, addresses) for batch in found))
            changed += 1
    return changed


def _has_voters(batch: MetadataBatch) -> bool:
    return batch.is_control and any(record.type == CONTROL_VOTERS for record in batch.records)


def _rewritten(batch: MetadataBatch, addresses: Mapping[int, str]) -> bytes:
    if not _has_voters(batch):
        return batch.data
    records = (
        replace(one, value=encode_voters(one.value, addresses)) if one.type == CONTROL_VOTERS else one
        for one in batch.records
    )
    return encode_batch(batch, tuple(records))


def encode_voters(record: bytes, addresses: Mapping[int, str]) -> bytes:
    """Return a VotersRecord with other addresses. Every voter keeps its directory id."""
    content = decode(voters_layout(), record).value
    for voter in content["voters"]:
        node_id = int(voter["voterId"])
        if node_id not in addresses:
            raise UserError(
                f"Controller {node_id} is a voter of the quorum, and it is not copied.",
                remedy="Add it to the inventory, or remove it from the quorum.",
            )
        host, _, port = addresses[node_id].rpartition(":")
        for endpoint in voter["endpoints"]:
            endpoint.update(host=host, port=int(port))
    return encode(voters_layout(), content)
