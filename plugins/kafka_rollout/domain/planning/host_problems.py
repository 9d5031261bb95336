"""Findings about the hosts of nodes: what would fail after a node is stopped, found before anything is stopped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafka_rollout.domain.model.findings import Finding, blocker
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.model.state import HostState
from kafka_rollout.domain.model.topology import ClusterSpec, NodeSpec

STOP_DEADLINE_S = 180.0  # for a controlled shutdown
_FREE_BYTES = 1 << 20  # for copies of the configuration


def host_problems(
    cluster: ClusterSpec, hosts: Mapping[int, HostState], releases: Sequence[Release]
) -> tuple[Finding, ...]:
    """Return the blockers of all hosts. `hosts`: by node id, without nodes that have no host.

    `releases`: those that the nodes will run.
    """
    return tuple(
        finding
        for node in cluster.nodes
        if (host := hosts.get(node.node_id)) is not None
        for finding in _problems(node, host, releases)
    )


def _problems(node: NodeSpec, host: HostState, releases: Sequence[Release]) -> Iterable[Finding]:
    subject = f"node {node.node_id}"
    for release in releases:
        if release not in host.releases:
            yield blocker(
                "RELEASE-NOT-ON-HOST",
                f"{subject}, release {release}",
                f"Kafka {release} is not installed on host {host.name}: there is no {host.folders.get(release)}/libs.",
                f"Unpack the archive of {release} there, then plan again.",
            )
    if not host.symlink_can_switch:
        yield blocker(
            "SYMLINK-IS-NO-LINK",
            subject,
            f"{host.symlink} on host {host.name} is not a symbolic link, so the release cannot be switched.",
            "Replace it by a link to the folder of the installed release, or correct the inventory.",
        )
    if host.stop_timeout_s is not None and host.stop_timeout_s < STOP_DEADLINE_S:
        yield blocker(
            "STOP-TIMEOUT-SHORT",
            subject,
            f"systemd kills {host.unit} on host {host.name} {host.stop_timeout_s:.0f} s after a stop was requested "
            f"(TimeoutStopSec). A controlled shutdown can take {STOP_DEADLINE_S:.0f} s.",
            f"Set TimeoutStopSec={STOP_DEADLINE_S:.0f} or more in the unit and run `systemctl daemon-reload`.",
        )
    if host.denied:
        yield blocker(
            "HOST-RIGHT-MISSING",
            subject,
            f"sudo on host {host.name} refuses {len(host.denied)} of the commands of a run: {'; '.join(host.denied)}.",
            "Add these lines to the sudoers file of the host (docs/hosts.md).",
        )
    if host.free_bytes is not None and host.free_bytes < _FREE_BYTES:
        yield blocker(
            "HOST-DISK-FULL",
            subject,
            f"The file system of the configuration on host {host.name} has {host.free_bytes} bytes left. A run copies "
            "the configuration there.",
            "Free space on this file system.",
        )
