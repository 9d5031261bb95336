"""A test bed: hosts, their network, and a Kafka cluster that an operator installed on them."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.model.pace import NO_CLIENTS, Pace
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.rights import NodeDirectories, sudoers_files
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tools.demo.local_cluster import is_in_service
from tools.demo.local_nodes import kafka_uuid, node_properties
from tools.testbed import network, ssh_files
from tools.testbed.hosts import Host
from tools.testbed.image import LOGIN, base_image, build_image
from tools.testbed.installation import (
    EXPORTER_PORT,
    OWN_FILES,
    agent_layer,
    format_command,
    release_layer,
    write_installation,
)
from tools.testbed.machine import TestbedError, obstacle
from tools.testbed.packages import INSTALL, PACKAGE, repository_layer

NAME = "testbed"  # of the cluster
STATE = "testbed.json"
_SEPARATE_FROM = 6  # hosts; fewer are brokers and controllers at the same time
_CONTROLLERS = 3
_IN_SERVICE_S = 240.0
DATA = "/var/lib/kafka/data"
UNSEEN = ("jvm-properties=*", "hidden-partitions=metrics", "error-counters=metrics")
"""What a plan cannot see here, as --accept-unknown has it: an environment file that the SSH user cannot read, and the
metrics of the hosts without an agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bed:
    """A test bed in a folder. `bed`: its id, from which names of namespaces and control groups are made. `packaged`:
    Kafka is a package of Debian."""

    folder: Path
    bed: str
    size: int
    packaged: bool = False

    @classmethod
    def read(cls, folder: Path) -> Bed:
        """Raises TestbedError if the folder has no test bed."""
        folder = folder.resolve()
        try:
            state = json.loads((folder / STATE).read_text())
        except FileNotFoundError:
            raise TestbedError(f"There is no test bed in {folder}.") from None
        return cls(folder=folder, **state)

    @property
    def hosts(self) -> tuple[Host, ...]:
        return tuple(
            Host(bed=self.bed, number=number, folder=self.folder / "hosts" / str(number))
            for number in range(1, self.size + 1)
        )

    @property
    def ssh_config(self) -> Path:
        return self.folder / "ssh" / "config"

    @property
    def inventory_path(self) -> Path:
        return self.folder / "clusters" / f"{NAME}.yaml"

    @property
    def spec(self) -> ClusterSpec:
        nodes = tuple(_node(host, self.size, packaged=self.packaged) for host in self.hosts)
        return ClusterSpec(
            name=NAME,
            runtime="ssh_service",
            nodes=nodes,
            snapshot_interval_s=0.0,
            paces={Pace.FAST: NO_CLIENTS},
        )

    def host_of(self, node: NodeSpec) -> Host:
        return next(host for host in self.hosts if host.address == service(node).host)

    def inside(self) -> AbstractContextManager[None]:
        """Move this thread into the network of the test bed."""
        return network.inside_network(self.bed)

    def start_kafka(self) -> None:
        """Start every unit, and wait until the cluster is in service."""
        for host in self.hosts:
            host.run("systemctl", "start", "--no-block", "kafka.service")
        deadline = time.monotonic() + _IN_SERVICE_S
        while not self.in_service():
            if time.monotonic() >= deadline:
                raise TestbedError(f"The cluster was not in service after {_IN_SERVICE_S:.0f} s.")
            time.sleep(0.3)

    def stop_kafka(self) -> None:
        """Kill every node: a controller can wait in its shutdown until the other controllers run again."""
        for host in self.hosts:
            host.run("systemctl", "stop", "--no-block", "kafka.service")
            with suppress(TestbedError):  # the process has ended
                host.run("systemctl", "kill", "--signal=SIGKILL", "kafka.service")
        for host in self.hosts:
            host.run("systemctl", "stop", "kafka.service")

    def in_service(self) -> bool:
        with self.inside():
            return is_in_service(self.spec)

    def down(self) -> None:
        """End the hosts by process id, and remove mounts, namespaces and the folder."""
        for host in self.hosts:
            host.end()
        for group in self.hosts[0].control_groups:
            if group.parent.is_dir():
                group.parent.rmdir()
        network.remove_network(self.bed)
        shutil.rmtree(self.folder)


def up(
    folder: Path,
    release: Release,
    *,
    size: int = 6,
    others: Sequence[Release] = (),
    packaged: bool = False,
    properties: Mapping[str, str] = MappingProxyType({}),
    metadata_version: str | None = None,
) -> Bed:
    """Boot the hosts with `release` installed and running, and the releases `others` unpacked next to it.

    `packaged`: the releases are packages of a repository on each host instead.
    `properties`: lines of every configuration in addition. `metadata_version`: name of a level such as 3.4-IV0;
    default: the newest of the release.
    """
    folder = folder.resolve()
    if why := missing():
        raise TestbedError(why)
    if (folder / STATE).exists():
        raise TestbedError(f"There is already a test bed in {folder}. Remove it with `down`.")
    began = time.monotonic()
    settings = Settings.from_environment()
    cache = ReleaseCache(settings.cache, settings.include)
    folder.mkdir(parents=True, exist_ok=True)
    bed = Bed(folder=folder, bed=secrets.token_hex(3), size=size, packaged=packaged)
    (folder / STATE).write_text(json.dumps({"bed": bed.bed, "size": size, "packaged": packaged}) + "\n")
    try:
        _install(bed, release, others, cache, properties)
        network.create_network(bed.bed, size)
        for host in bed.hosts:
            host.boot()
        options = [] if metadata_version is None else ["--release-version", metadata_version]
        jars = PACKAGE.jars if packaged else f"/opt/kafka_2.13-{release}/libs"
        command = format_command(jars, kafka_uuid(), options)
        with ThreadPoolExecutor(max_workers=2 * (os.cpu_count() or 1)) as pool:
            list(pool.map(lambda host: _format(host, command), bed.hosts))
        if packaged:  # not earlier: without formatted data, the process would end at the boot
            for host in bed.hosts:
                host.run("systemctl", "enable", "--quiet", "kafka.service")
        _say(f"{size} hosts booted in {time.monotonic() - began:.0f} s")
        bed.start_kafka()
        _say(f"Kafka {release} in service after {time.monotonic() - began:.0f} s")
    except BaseException:
        bed.down()
        raise
    return bed


def missing() -> str | None:
    """Return one sentence if no test bed can be booted now."""
    if why := obstacle():
        return why
    if base_image().is_dir():
        return None
    return "The base image of the test bed is not built: run `make setup-hosts` once, with a network."


def _install(
    bed: Bed, release: Release, others: Sequence[Release], cache: ReleaseCache, extra: Mapping[str, str]
) -> None:
    releases, folder = list(dict.fromkeys((release, *others))), bed.folder / "layers"
    layers = (
        [repository_layer(folder, releases, cache)]
        if bed.packaged
        else [release_layer(folder, each, cache) for each in releases]
    )
    layers += [agent_layer(bed.folder / "layers", cache), build_image()]
    login_key = ssh_files.make_key(bed.folder / "ssh" / "id_ed25519")
    spec = bed.spec
    host_keys = {}
    for host, node in zip(bed.hosts, spec.nodes, strict=True):
        upper = host.folder / "upper"
        properties = node_properties(spec, node, Path(DATA)) | {"log.dirs": DATA, **extra}
        properties.pop("metadata.log.dir")
        write_installation(upper, release, properties, exporter=node.prometheus_url is not None, packaged=bed.packaged)
        host_keys[host.address] = ssh_files.write_host_files(upper, login_key)
        _write_sudoers(upper, node)
        (upper / "etc" / "hostname").write_text(f"{host.name}\n")
        (upper / "etc" / "hosts").write_text(f"127.0.0.1 localhost\n{host.address} {host.name}\n")
        host.mount(layers)
        host.prepare((INSTALL.format(release=release) if bed.packaged else "") + OWN_FILES + ssh_files.OWN_LOGIN)
    ssh_files.write_client_files(bed.folder / "ssh", host_keys)
    bed.inventory_path.parent.mkdir()
    bed.inventory_path.write_text(dump_cluster(spec))


def service(node: NodeSpec) -> ServiceSpec:
    """Return the installation of a node of a test bed."""
    if node.service is None:
        raise TestbedError(f"Node {node.name} is not a node of a test bed.")
    return node.service


def _write_sudoers(upper: Path, node: NodeSpec) -> None:
    folder = upper / "etc" / "sudoers.d"
    folder.mkdir(parents=True)
    file = folder / "zz-kafka-rollout"
    own = {node.node_id: NodeDirectories(metadata=DATA, log_dirs=(DATA,))}
    file.write_text("".join(sudoers_files(LOGIN, [node], own)))
    file.chmod(0o440)


def _format(host: Host, command: Sequence[str]) -> None:
    host.wait_until_booted()
    host.run(*command)


def _node(host: Host, size: int, *, packaged: bool) -> NodeSpec:
    separate = size >= _SEPARATE_FROM
    roles = {Role.BROKER, Role.CONTROLLER}
    if separate:
        roles = {Role.CONTROLLER if host.number <= _CONTROLLERS else Role.BROKER}
    node_id = 100 + host.number if roles == {Role.CONTROLLER} else host.number
    # An agent on some hosts only, as on clusters that grew over the years.
    exporter = f"http://{host.address}:{EXPORTER_PORT}/metrics" if host.number % 2 == 1 else None
    return NodeSpec(
        node_id=node_id,
        name=host.name,
        roles=frozenset(roles),
        broker_address=f"{host.address}:9092" if Role.BROKER in roles else None,
        controller_address=f"{host.address}:9093" if Role.CONTROLLER in roles else None,
        prometheus_url=exporter,
        service=ServiceSpec(host=host.address, package=PACKAGE if packaged else None),
    )


def _say(sentence: str) -> None:
    print(f"test bed: {sentence}", file=sys.stderr, flush=True)
