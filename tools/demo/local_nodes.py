"""Description, configuration and formatted directories of the nodes of a local cluster."""

from __future__ import annotations

import base64
import os
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from py4j.protocol import Py4JJavaError

from kafka_rollout.base.errors import FatalError
from kafka_rollout.base.system.files import write_whole
from kafka_rollout.base.system.free_ports import HOST
from kafka_rollout.model.pace import NO_CLIENTS, Pace
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jvm.java import java_binary
from kafka_rollout.releases.jvm.jvm import Jvm, root_cause, run_jvm

Layout = Literal["separate", "combined", "mixed"]
Quorum = Literal["static", "dynamic"]
_STORAGE_TOOL = "kafka.tools.StorageTool"
_FIRST_EXECUTE = Release(3, 9, 0)
"""Its StorageTool has `execute`, which returns; `main` ends the process."""


def kafka_uuid() -> str:
    """Return 16 random bytes as URL-safe base64, without a leading '-', which a command would read as an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDraft:
    """A cluster before its ports are known."""

    name: str
    homes: Path
    release: Release
    libs: Path
    layout: Layout
    size: int
    quorum: Quorum
    metadata_version: str | None
    extra_config: Mapping[str, str]
    heap: str
    release_overrides: Mapping[str, Mapping[str, str]]
    format_options: Sequence[str] = ()
    controllers: int
    racks: int
    cluster_id: str = field(default_factory=kafka_uuid)
    directory_ids: dict[int, str] = field(default_factory=dict)

    @property
    def ports_needed(self) -> int:
        """Return one port per listener and two per node for the metrics agents."""
        return self.size * 4 if self.layout == "combined" else (self.size + max(self.size, self.controllers)) * 3

    def spec(self, ports: Sequence[int]) -> ClusterSpec:
        free = iter(ports)

        def address() -> str:
            return f"{HOST}:{next(free)}"

        def node(node_id: int, name: str, *roles: Role) -> NodeSpec:
            return NodeSpec(
                node_id=node_id,
                name=name,
                roles=frozenset(roles),
                broker_address=address() if Role.BROKER in roles else None,
                controller_address=address() if Role.CONTROLLER in roles else None,
                prometheus_url=f"http://{address()}/metrics",
                jolokia_url=f"http://{address()}/jolokia",
                rack=chr(ord("a") + (node_id - 1) % self.racks) if self.racks and Role.BROKER in roles else None,
                directory=str(self.homes / name),
            )

        numbers = range(1, self.size + 1)
        if self.layout == "combined":
            nodes = [node(i, f"node-{i}", Role.BROKER, Role.CONTROLLER) for i in numbers]
        elif self.layout == "mixed":
            nodes = [node(1, "node-1", Role.BROKER, Role.CONTROLLER)]
            nodes += [node(100 + i, f"controller-{100 + i}", Role.CONTROLLER) for i in numbers[1:]]
            nodes += [node(i, f"broker-{i}", Role.BROKER) for i in numbers[1:]]
        else:
            voters = range(101, 101 + self.controllers)
            nodes = [node(i, f"controller-{i}", Role.CONTROLLER) for i in voters]
            nodes += [node(i, f"broker-{i}", Role.BROKER) for i in numbers]
        overrides = self.release_overrides
        return ClusterSpec(
            name=self.name,
            nodes=tuple(nodes),
            release_overrides=overrides,
            snapshot_interval_s=0.0,
            paces={Pace.FAST: NO_CLIENTS},
        )

    def write(self, spec: ClusterSpec) -> None:
        """Write and format the nodes' homes."""
        for node in spec.nodes:
            home = Path(str(node.directory))
            (home / "logs").mkdir(parents=True)
            lines = {**node_properties(spec, node, home / "data", quorum=self.quorum), **self.extra_config}
            text = "".join(f"{key}={value}\n" for key, value in lines.items())
            write_whole(home / "server.properties", text.encode(), mode=0o644)
            options = f"-Xms64m\n-Xmx{self.heap}\n-XX:+UseSerialGC\n-XX:TieredStopAtLevel=1\n-Xshare:auto\n"
            write_whole(home / "jvm.options", options.encode(), mode=0o644)
        commands = [self._format(spec, node) for node in spec.nodes]
        run = _format_in_one_process if self.release >= _FIRST_EXECUTE else _format_in_processes
        for node, problem in zip(spec.nodes, run(self.libs, commands), strict=True):
            if problem:
                raise FatalError(
                    f"Formatting cluster {self.name} failed: {node.name}: {problem}", remedy="See the message."
                )

    def _format(self, spec: ClusterSpec, node: NodeSpec) -> list[str]:
        """Return the arguments of kafka-storage.sh for a node."""
        home = Path(str(node.directory))
        arguments = ["format", "-t", self.cluster_id, "-c", str(home / "server.properties"), *self.format_options]
        if self.metadata_version is not None:
            arguments += ["--release-version", self.metadata_version]
        if self.quorum == "dynamic" and node.is_controller:
            voters = (
                f"{other.node_id}@{other.controller_address}:"
                f"{self.directory_ids.setdefault(other.node_id, kafka_uuid())}"
                for other in spec.controllers
            )
            arguments += ["--initial-controllers", ",".join(voters)]
        return arguments


def _format_in_one_process(libs: Path, commands: Sequence[Sequence[str]]) -> list[str]:
    """Run kafka-storage.sh with each of these arguments, in one JVM; return why each failed, empty if it did not.

    A JVM for each command is most of its processor time.
    """
    with run_jvm(libs) as jvm:
        return [_execute(jvm, arguments) for arguments in commands]


def _execute(jvm: Jvm, arguments: Sequence[str]) -> str:
    java = jvm.packages.java
    printed = java.io.ByteArrayOutputStream()
    words = jvm.array(java.lang.String, list(arguments))
    try:
        code = jvm.static(_STORAGE_TOOL).execute(words, java.io.PrintStream(printed))
    except Py4JJavaError as error:
        return str(root_cause(error).getMessage())
    return "" if code == 0 else _last_line(str(printed.toString()))


def _format_in_processes(libs: Path, commands: Sequence[Sequence[str]]) -> list[str]:
    """As `_format_in_one_process`, for a release whose tool ends its process."""
    java = [str(java_binary()), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", str(libs / "*")]
    formatting = [
        subprocess.Popen(
            [*java, _STORAGE_TOOL, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR") if key in os.environ},
        )
        for arguments in commands
    ]
    problems = []
    for process in formatting:
        output, _ = process.communicate(timeout=300)  # enough for a busy machine
        problems.append("" if process.returncode == 0 else _last_line(output))
    return problems


def _last_line(printed: str) -> str:
    lines = [line for line in printed.splitlines() if line.strip() and not line.startswith("\tat ")]
    return lines[-1] if lines else "no output"


def node_properties(spec: ClusterSpec, node: NodeSpec, data: Path, *, quorum: Quorum = "static") -> dict[str, str]:
    """Return a configuration that every release from 3.4 to 4.3 accepts. `data`: folder of the data on its host."""
    copies = min(3, len(spec.brokers))
    in_sync = min(2, copies)
    listeners = []
    if node.broker_address:
        listeners.append(f"PLAINTEXT://{node.broker_address}")
    if node.controller_address:
        listeners.append(f"CONTROLLER://{node.controller_address}")
    config = {
        "process.roles": ",".join(sorted(node.roles)),
        "node.id": str(node.node_id),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(data / "logs"),
        "metadata.log.dir": str(data / "metadata"),
        "default.replication.factor": str(copies),
        "offsets.topic.replication.factor": str(copies),
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(in_sync),
        "transaction.state.log.num.partitions": "5",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
        "controlled.shutdown.enable": "true",
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "6000",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        "log.cleaner.dedupe.buffer.size": "16777216",
    }
    if node.is_broker:  # Operators seldom set it in the files of separate controllers.
        config["min.insync.replicas"] = str(in_sync)
    if quorum == "static":
        voters = (f"{n.node_id}@{n.controller_address}" for n in spec.controllers)
        config["controller.quorum.voters"] = ",".join(voters)
    else:
        config["controller.quorum.bootstrap.servers"] = spec.bootstrap_controllers
    if node.rack:
        config["broker.rack"] = node.rack
    return config
