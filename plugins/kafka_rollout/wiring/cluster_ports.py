"""Opens the ports of a cluster with the real adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, assert_never

from kafka_rollout.base.lease import Fence
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.control.lock import fence_cluster_ports, make_fence
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.ports.cluster import NodeRuntime
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import Catalogue, Release
from kafka_rollout.releases.reported import identify_release
from kafka_rollout.run.ports import ChangeLock, RunStore
from kafka_rollout.run.traffic import TrafficVerdict

if TYPE_CHECKING:
    from paramiko import SSHClient

    from kafka_rollout.client.admin import KafkaAdmin
    from kafka_rollout.client.requests import SilentNodes
    from kafka_rollout.client.security.client_security import ClientSecurity
    from kafka_rollout.metadata_log.changes.places import Places
    from kafka_rollout.nodes.metrics import NodeMetricsReader
    from kafka_rollout.nodes.runtimes.hosts.shells import SshShell
    from kafka_rollout.releases.jars.cache import ReleaseCache


@contextmanager
def open_cluster_ports(
    cluster_name: str,
    run_id: str,
    security: ClientSecurity | None = None,
    settings: Settings | None = None,
    *,
    call: str = "",
    ssh: Callable[[str], SSHClient] | None = None,
    adjust: Callable[[ClusterPorts], ClusterPorts] = lambda ports: ports,
) -> Iterator[ClusterPorts]:
    """Yield the ports of a cluster, and close its connections at the end. Raises UserError for an unknown cluster.

    `call`: the call of a person that this process belongs to; by default it is one. `ssh`: opens a connection to a
    host; default: with the SSH configuration of the user. `adjust` replaces ports before their changes are fenced.
    """
    from kafka_rollout.client.security.carried_security import remove_stale_files
    from kafka_rollout.run.store.database import close_idle_connections
    from kafka_rollout.run.store.opening import open_lock, open_run

    settings = settings or Settings.from_environment()
    remove_stale_files(settings.home)
    cluster = get_cluster(cluster_name, settings)
    run, lock = open_run(cluster.name, run_id, settings), open_lock(settings, call=call)
    shown = nullcontext() if call else lock.calling(cluster.name, run_id)
    try:
        with shown, _open(cluster, run_id, run, lock, settings, security=security, ssh=ssh, adjust=adjust) as ports:
            yield ports
    finally:
        close_idle_connections()  # the process of a task ends without exit handlers


@contextmanager
def open_ports_to_read(
    cluster: ClusterSpec,
    security: ClientSecurity | None = None,
    settings: Settings | None = None,
    *,
    ssh: Callable[[str], SSHClient] | None = None,
    silent: SilentNodes | None = None,
) -> Iterator[ClusterPorts]:
    """Yield the ports of a cluster without a run: nothing is stored, and every change is refused. `ssh`: as above.

    `silent`: the nodes that did not answer when the cluster was discovered.
    """
    from kafka_rollout.run.memory import MemoryRunStore, NoLock

    settings = settings or Settings.from_environment()
    with _open(
        cluster, "check", MemoryRunStore(), NoLock(), settings, security=security, ssh=ssh, silent=silent
    ) as ports:
        yield ports


@contextmanager
def _open(
    cluster: ClusterSpec,
    run_id: str,
    run: RunStore,
    lock: ChangeLock,
    settings: Settings,
    *,
    security: ClientSecurity | None,
    ssh: Callable[[str], SSHClient] | None = None,
    adjust: Callable[[ClusterPorts], ClusterPorts] = lambda ports: ports,
    silent: SilentNodes | None = None,
) -> Iterator[ClusterPorts]:
    """Yield the fenced ports, and close their connections at the end; `ssh` and `adjust` as in `open_cluster_ports`."""
    from kafka_rollout.base.system.clock import SystemClock
    from kafka_rollout.client.admin import KafkaAdmin
    from kafka_rollout.client.requests import SilentNodes
    from kafka_rollout.groups.reading.live import LiveCoordinatorLogs
    from kafka_rollout.metadata_log.classes.kafka_classes import JvmKafkaClasses
    from kafka_rollout.metadata_log.node_logs.directories import DirectoryMetadataLogs
    from kafka_rollout.nodes.outside import OutsideReader
    from kafka_rollout.rehearsal.machine.local import LocalRehearsals
    from kafka_rollout.releases.jars.cache import ReleaseCache

    cache = ReleaseCache.from_settings(settings)
    catalogue = get_catalogue(settings)
    closing = ExitStack()
    clock = SystemClock()
    fence = make_fence(lock, cluster.name, clock)
    silent = silent or SilentNodes()
    admin = KafkaAdmin(cluster, security, fence=fence, silent=silent)
    open_shell = partial(_open_shell, settings, ssh, closing)
    runtime, metrics, places = _reach_nodes(cluster, admin, cache, catalogue, fence=fence, open_shell=open_shell)
    ports = ClusterPorts(
        run_id=run_id,
        cluster=cluster,
        catalogue=catalogue,
        admin=admin,
        runtime=runtime,
        metrics=metrics,
        outside=OutsideReader(cluster, security.prometheus if security else None, clock),
        classes=JvmKafkaClasses(cache),
        logs=LiveCoordinatorLogs(
            cluster=cluster, catalogue=catalogue, settings=settings, security=security, silent=silent
        ),
        metadata_logs=DirectoryMetadataLogs(cache, places),
        rehearsals=LocalRehearsals(cluster=cluster, admin=admin, runtime=runtime, clock=clock, settings=settings),
        traffic=_TrafficOfRun(cluster, run_id, settings),
        run=run,
        lock=lock,
        clock=clock,
    )
    closing.callback(ports.admin.close)
    with closing:
        yield fence_cluster_ports(adjust(ports))


@dataclass(frozen=True, slots=True)
class _TrafficOfRun:
    cluster: ClusterSpec
    run_id: str
    settings: Settings

    def check(self) -> TrafficVerdict | None:
        from kafka_rollout.traffic.processes.of_run import check_traffic

        return check_traffic(self.cluster, self.run_id, settings=self.settings)


def _reach_nodes(
    cluster: ClusterSpec,
    admin: KafkaAdmin,
    cache: ReleaseCache,
    catalogue: Catalogue,
    *,
    fence: Fence,
    open_shell: Callable[[], SshShell],
) -> tuple[NodeRuntime, NodeMetricsReader, Places]:
    """Return the adapters of the cluster's runtime: processes, metrics, directories of the metadata log.

    `open_shell`: opens the connections to its hosts.
    """
    from kafka_rollout.metadata_log.changes.places import LocalPlaces
    from kafka_rollout.nodes.metrics import NodeMetricsReader

    def identify(version: str) -> Release | None:
        return identify_release(version, catalogue, cluster.apache_releases).release

    metrics = NodeMetricsReader(identify=identify, names=cluster.metrics)
    match cluster.runtime:
        case "local_process":
            from kafka_rollout.nodes.runtimes.local_process import LocalProcessRuntime

            local = LocalProcessRuntime(cluster, cache, fence)
            return local, metrics, LocalPlaces(local.metadata_log_dir, fence)
        case "ssh_service":
            from kafka_rollout.nodes.metadata_places import HostPlaces
            from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
            from kafka_rollout.nodes.runtimes.hosts.shells import SshTransport

            shell = open_shell()
            hosts = SshServiceRuntime(cluster, shell, identify, cache.artifacts, fence=fence)
            metrics = replace(metrics, through=partial(SshTransport, shell))
            return hosts, metrics, HostPlaces(hosts)
        case "none":
            from kafka_rollout.nodes.runtimes.no_runtime import NoRuntime

            unmanaged = NoRuntime(cluster, admin, metrics)
            return unmanaged, metrics, LocalPlaces(unmanaged.metadata_log_dir)
        case unknown:
            assert_never(unknown)


def _open_shell(settings: Settings, ssh: Callable[[str], SSHClient] | None, closing: ExitStack) -> SshShell:
    """Return the connections to the hosts. `closing` closes them."""
    from kafka_rollout.nodes.runtimes.hosts.shells import SshShell, connect_as_user

    shell = SshShell(ssh or connect_as_user(settings.ssh_config))
    closing.callback(shell.close)
    return shell
