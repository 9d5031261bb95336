"""Checks of each node's configuration and Java for the releases that it will run.

Kafka's own classes validate the configuration when the plan is made. Immediately before a stop they validate it again
if it changed: the running process never reads the file again, but the next process would fail.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from kafka_rollout.base.errors import NotObservableError, TransientError, UserError
from kafka_rollout.base.findings import Checked, Finding
from kafka_rollout.model.configs import with_inventory_values
from kafka_rollout.model.host_state import DirectoryFormat
from kafka_rollout.model.plan import ConfigChange, Plan, ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.planning.checks import NO_RESTART
from kafka_rollout.planning.findings.configuration import config_findings, effective_config, java_findings
from kafka_rollout.planning.findings.hosts import HOSTS_CHECK, host_problems
from kafka_rollout.planning.findings.jvm_properties import (
    JVM_PROPERTIES_CHECK,
    jvm_findings,
    needs_jvm_arguments,
)
from kafka_rollout.releases.facts import Release
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

_AT_ONCE = 8


def node_configs(ports: ClusterPorts) -> dict[int, Mapping[str, str]]:
    """Return the current configuration of every node; without nodes whose configuration is not observable."""

    def read(node: NodeSpec) -> Mapping[str, str] | None:
        with suppress(NotObservableError):
            return ports.runtime.config(node)
        return None

    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="configs") as pool:
        found = list(zip(ports.cluster.nodes, pool.map(read, ports.cluster.nodes), strict=True))
    return {node.node_id: config for node, config in found if config is not None}


def config_problems(
    ports: ClusterPorts,
    path: Sequence[Release],
    configs: Mapping[int, Mapping[str, str]],
    *,
    down: bool = False,
) -> dict[int, tuple[str, ...]]:
    """Return the errors of each node's configuration on the releases of `path` (target last), by their own classes.

    The validated configurations are recorded. `down`: for a downgrade, without bootstrap.checkpoint.
    """
    problems: dict[int, tuple[str, ...]] = {}
    overrides: dict[str, str] = {}
    for release in path:
        overrides |= ports.cluster.release_overrides.get(str(release), {})  # a line stays on the releases after it
        of_nodes = {
            node_id: _to_check(ports, ports.cluster.node(node_id), {**config, **overrides}, down=down)
            for node_id, config in configs.items()
        }
        for node_id, found in ports.classes.config_problems_of(release, of_nodes).items():
            problems[node_id] = (
                *problems.get(node_id, ()),
                *(problem if release == path[-1] else f"{release}: {problem}" for problem in found),
            )
    ports.run.save_fingerprints({node_id: _fingerprint(config) for node_id, config in configs.items()})
    return problems


def _to_check(
    ports: ClusterPorts, node: NodeSpec, config: Mapping[str, str], *, down: bool
) -> tuple[Mapping[str, str], Mapping[str, DirectoryFormat] | None]:
    """Return the configuration of a node and the formats of its directories, as Kafka's classes check them.

    `down` leaves out bootstrap.checkpoint: the scan of the metadata logs finds a level that the release cannot read,
    and the run lowers it while the node is stopped (BOOTSTRAP-CHECKPOINT-TOO-NEW).
    """
    formats = ports.runtime.directory_formats(node, config)
    if down and formats is not None:
        formats = {path: replace(found, bootstrap=None) for path, found in formats.items()}
    return with_inventory_values(node, config), formats


def java_versions(ports: ClusterPorts, nodes: Sequence[NodeSpec] | None = None) -> dict[int, int]:
    """Return Java's feature version by node; default: all nodes."""
    versions = {}
    for node in ports.cluster.nodes if nodes is None else nodes:
        # Missing means unknown, which is a blocker of the plan, or not observable.
        with suppress(TransientError, UserError, NotObservableError):
            versions[node.node_id] = ports.runtime.java_version(node)
    return versions


def check_hosts(ports: ClusterPorts, releases: Sequence[Release], nodes: Sequence[NodeSpec] | None = None) -> Checked:
    """Check the hosts of nodes (default: all) that will run `releases`."""
    asked = ports.cluster.nodes if nodes is None else nodes
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="hosts") as pool:
        seen = pool.map(lambda node: (node.node_id, ports.runtime.host(node, releases)), asked)
        hosts = {node_id: host for node_id, host in seen if host is not None}
    managed, runtime = ports.cluster.manages_nodes, f"The runtime {ports.cluster.runtime}"
    return HOSTS_CHECK.ran(
        host_problems(ports.cluster, ports.catalogue, hosts, releases),
        unless=f"{runtime} has no hosts of its own." if managed and not hosts else "",
        unknown="" if managed else f"{runtime} sees no hosts.",
    )


def check_jvm(
    ports: ClusterPorts,
    releases: Sequence[Release],
    configs: Mapping[int, Mapping[str, str]],
    changes: Sequence[ConfigChange],
) -> Checked:
    """Check the properties of the JVM that `releases` need. `changes`: of the plan, by release.

    The arguments of nodes are read only if their configuration needs such a property.
    """
    wanted = {
        node_id: {release: effective_config(node_id, config, changes, release) for release in releases}
        for node_id, config in configs.items()
    }
    arguments: dict[int, tuple[str, ...]] = {}
    for node_id, by_release in wanted.items():
        if any(map(needs_jvm_arguments, by_release.values())):
            with suppress(TransientError, UserError, NotObservableError):  # unknown, which a finding reports
                arguments[node_id] = ports.runtime.jvm_arguments(ports.cluster.node(node_id))
    return JVM_PROPERTIES_CHECK.ran(
        jvm_findings(wanted, arguments, observable=ports.cluster.manages_nodes), unless="" if releases else NO_RESTART
    )


def host_findings(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, node: NodeSpec) -> tuple[Finding, ...]:
    """Return the findings that prevent `node` from starting on the release of the release step, by its current host."""
    release = release_step.to_release
    alone = replace(ports.cluster, nodes=(node,))
    config = ports.runtime.config(node)
    problems: tuple[str, ...] = ()
    if ports.run.load_fingerprints().get(node.node_id) != _fingerprint(config):
        checked = effective_config(node.node_id, config, plan.config_changes, release)
        problems = ports.classes.config_problems(
            release, *_to_check(ports, node, checked, down=release < release_step.from_release)
        )
    return (
        *config_findings(release, {node.node_id: problems}),
        *java_findings(alone, ports.catalogue, (release,), java_versions(ports, (node,))),
        *check_hosts(ports, (release,), (node,)).findings,
        *check_jvm(ports, (release,), {node.node_id: config}, plan.config_changes).findings,
    )


def _fingerprint(config: Mapping[str, str]) -> str:
    """A hash: a configuration can hold passwords."""
    return hashlib.sha256(json.dumps(dict(config), sort_keys=True).encode()).hexdigest()
