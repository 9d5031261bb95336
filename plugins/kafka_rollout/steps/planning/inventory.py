"""Check an inventory: whether every node can be observed and managed as a run needs it. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from kafka_rollout.base.errors import NotObservableError, RolloutError, TransientError
from kafka_rollout.base.findings import Finding, Severity, Verdict
from kafka_rollout.base.wording import count
from kafka_rollout.model.rights import RIGHT_MISSING, find_rights_of_runs
from kafka_rollout.model.state import ProcessState
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.planning.findings.cluster import NODE_DOWN
from kafka_rollout.planning.findings.configuration import java_findings
from kafka_rollout.planning.findings.hosts import HOST_REFUSED, HOST_RIGHT_MISSING, HOST_UNREACHABLE
from kafka_rollout.planning.findings.not_observable import not_observable
from kafka_rollout.releases.facts import Release
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.outside import find_outside
from kafka_rollout.steps.planning.hosts import check_hosts

_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedNode:
    """A node as the runtime reports it. A value that was not reported is None, with a finding."""

    node: NodeSpec
    process: ProcessState | None = None
    java: int | None = None
    findings: tuple[Finding, ...] = ()


def check_inventory(ports: ClusterPorts, releases: Sequence[Release]) -> tuple[tuple[CheckedNode, ...], Verdict]:
    """Return every node and all findings. `releases`: those that the nodes must have."""
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="inventory") as pool:
        nodes = tuple(pool.map(lambda node: _check(ports, node, releases), ports.cluster.nodes))
    of_nodes = (finding for node in nodes for finding in node.findings)
    findings = (*_rights(ports), *of_nodes, *find_outside(ports).findings)
    return nodes, Verdict(question=f"Is the inventory of {ports.cluster.name} complete?", findings=findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """What is ready, in one line, and the commands that print what is missing."""

    ok: bool
    sentence: str
    commands: tuple[str, ...] = ()


def readiness(cluster: ClusterSpec, nodes: Sequence[CheckedNode], verdict: Verdict) -> Readiness:
    """Return the last line of the check of an inventory."""
    missing = {finding.code for finding in verdict.findings}
    commands = []
    if HOST_RIGHT_MISSING.text in missing or any("sudoers" in finding.remedy for finding in verdict.findings):
        commands.append(f"kafka-rollout inventory sudoers --cluster {cluster.name}")
    if RIGHT_MISSING.text in missing:
        commands.append(f"kafka-rollout inventory acls --cluster {cluster.name}")
    if verdict.blockers:
        ready = sum(not any(f.severity is Severity.BLOCKER for f in one.findings) for one in nodes)
        sentence = (
            f"Not ready: {count(len(verdict.blockers), 'blocker')}. {ready} of {count(len(nodes), 'node')} without one."
        )
        return Readiness(ok=False, sentence=sentence, commands=tuple(commands))
    can = "observe and manage" if cluster.manages_nodes else "observe"
    dry = "" if cluster.manages_nodes else " Each run is a dry run, because the runtime is none."
    sentence = f"Ready: a run can {can} {'the node' if len(nodes) == 1 else f'all {len(nodes)} nodes'}.{dry}"
    return Readiness(ok=True, sentence=sentence, commands=tuple(commands))


def read_configurations(ports: ClusterPorts) -> tuple[dict[int, Mapping[str, str]], dict[int, str]]:
    """Return the configuration of each node, and the reason for those that cannot be read.

    It is the file on the host, or, while sudo does not permit to read it, what the node itself reports.
    """

    def read(node: NodeSpec) -> Mapping[str, str] | str:
        try:
            return ports.runtime.config(node)
        except RolloutError as error:
            try:
                return ports.admin.node_config(node)
            except RolloutError as other:
                return f"{error.sentence} {other.sentence}"

    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="inventory") as pool:
        found = dict(zip(ports.cluster.nodes, pool.map(read, ports.cluster.nodes), strict=True))
    configs = {node.node_id: one for node, one in found.items() if not isinstance(one, str)}
    return configs, {node.node_id: one for node, one in found.items() if isinstance(one, str)}


def _rights(ports: ClusterPorts) -> tuple[Finding, ...]:
    try:
        return find_rights_of_runs(ports.cluster, ports.admin.missing_rights())
    except RolloutError as error:
        return (NODE_DOWN.found("brokers", error.sentence, error.remedy),)


def _check(ports: ClusterPorts, node: NodeSpec, releases: Sequence[Release]) -> CheckedNode:
    """The first error of the runtime ends the check of a node, because the others would repeat it."""
    process: ProcessState | None = None
    java: int | None = None
    findings: list[Finding] = []
    try:
        process = ports.runtime.process(node)
        findings += check_hosts(ports, releases, (node,)).findings
        ports.runtime.config(node)
        java = ports.runtime.java_version(node)
        alone = replace(ports.cluster, nodes=(node,))
        findings += java_findings(alone, ports.catalogue, releases, {node.node_id: java})
    except NotObservableError as error:
        findings.append(
            not_observable(f"node {node.node_id}", f"Host, process and files of node {node.name}", error.remedy)
        )
    except RolloutError as error:
        code = HOST_UNREACHABLE if isinstance(error, TransientError) else HOST_REFUSED
        findings.append(code.found(f"node {node.node_id}", error.sentence, error.remedy))
    try:
        ports.admin.features(node)
    except RolloutError as error:
        findings.append(NODE_DOWN.found(f"node {node.node_id}", error.sentence, error.remedy))
    return CheckedNode(node=node, process=process, java=java, findings=tuple(findings))
