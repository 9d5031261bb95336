"""Read the certificates of all listeners with TLS: of brokers and controllers, with an inventory or without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_rollout.base.findings import Checked
from kafka_rollout.model.listeners import find_listeners
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ReadPorts, at_once
from kafka_rollout.planning.findings.certificates import (
    CERTIFICATES_CHECK,
    certificate_findings,
    unread_certificates,
)


def check_certificates(
    ports: ReadPorts,
    configs: Mapping[int, Mapping[str, str]],
    *,
    lasts_s: float,
    nodes: Sequence[NodeSpec] | None = None,
) -> Checked:
    """Check the certificates of nodes (default: all). `configs`: by node id; without one, only the addresses at which
    this tool reaches the node are read. `lasts_s`: expected seconds until the end of the run."""
    asked = ports.cluster.nodes if nodes is None else nodes
    found = at_once(lambda node: ports.admin.certificates(node, _addresses(node, configs.get(node.node_id, {}))), asked)
    certificates = {node.node_id: one for node, one in zip(asked, found, strict=True) if one}
    now = ports.clock.now()
    return CERTIFICATES_CHECK.ran(
        certificate_findings(certificates, now=now, planned_end=now + lasts_s),
        unless="" if certificates else "No listener that is known uses TLS.",
        unknown=unread_certificates(certificates),
    )


def _addresses(node: NodeSpec, config: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses of the node's own listeners with TLS. One that listens everywhere is reached at the node's
    host."""
    known = node.broker_address or node.controller_address or ""
    addresses = []
    for one in find_listeners(config).served if config.get("listeners") else ():
        host, _, port = one.address.rpartition(":")
        if one.uses_tls and port.isdigit() and int(port) and (host := host or known.rpartition(":")[0]):
            addresses.append(f"{host}:{port}")
    return tuple(dict.fromkeys(addresses))
