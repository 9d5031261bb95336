"""KIP-584's race: a broker with a narrower range registers while a level is being finalized. Checked afterwards.

Kafka refuses one of both: the controller refuses the level while such a broker is registered, or it refuses the
registration afterwards; or the broker exits when it replays the level. The result is a broker that is down or retries
its registration. This check finds it and shows the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_rollout.base.findings import BLOCKER, Check, CheckOf, Finding, FindingCode, Verdict
from kafka_rollout.features.support import FEATURE_UNSUPPORTED, support_findings, unlisted_node_findings
from kafka_rollout.model.state import NodeState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import METADATA_VERSION, ReleaseFacts
from kafka_rollout.run.step_events import FeatureRace
from kafka_rollout.steps.common.cluster_ports import ClusterPorts, observe_some, with_registered_levels
from kafka_rollout.steps.common.node_steps import read_last_error

# A node that exits or re-registers has done so by then.
_PAUSES_S = (1.0, 2.0, 4.0, 8.0)


NODE_GONE_AFTER_FINALIZING = FindingCode(
    "NODE-GONE-AFTER-FINALIZING", BLOCKER, "A node does not respond after levels were finalized."
)
NARROWER_NODE_JOINED = FindingCode(
    "NARROWER-NODE-JOINED", BLOCKER, "A node with a narrower range registered while a level was finalized."
)
RACE_CHECK = Check(
    "nodes-after-finalizing",
    "Nodes, compared with the levels that were finalized",
    "features.md#responses-of-the-api-and-reactions",
    (NODE_GONE_AFTER_FINALIZING, NARROWER_NODE_JOINED),
    of=(CheckOf.FINALIZING,),
)


def check_for_narrower_nodes(ports: ClusterPorts) -> Verdict:
    """Check every registered node against the finalized levels; the result is recorded.

    A node that supports less, and a node whose support is unknown after several checks, are blockers: the levels are
    finalized, and an operator must act.
    """
    for pause_s in (*_PAUSES_S, None):
        verdict = _check(ports)
        if verdict.ok or pause_s is None:
            break
        ports.clock.sleep(pause_s)
    ports.run.record(FeatureRace(ok=verdict.ok, findings=tuple(str(finding) for finding in verdict.findings)))
    return verdict


def _check(ports: ClusterPorts) -> Verdict:
    state = with_registered_levels(ports, observe_some(ports, ports.cluster.nodes, metrics=True))
    findings: list[Finding] = []
    levels = {feature: level for feature, level in sorted(state.finalized.items()) if level > 0}
    for feature, level in levels.items():
        for found in support_findings(ports.cluster, ports.catalogue, state, feature, level):
            if found.code == FEATURE_UNSUPPORTED.code:
                findings.append(_narrower_node(found, feature, level))
    for node in ports.cluster.nodes:
        seen = state.nodes[node.node_id]
        if seen.features is None:
            findings.append(_unresponsive(ports, node, seen, levels))
    findings += unlisted_node_findings(ports.cluster, state, levels)
    return Verdict(question="Does every node support the finalized levels?", findings=tuple(findings))


def _unresponsive(ports: ClusterPorts, node: NodeSpec, seen: NodeState, levels: Mapping[str, int]) -> Finding:
    """Return a finding for a node that does not respond, with the facts of its installed release."""
    installed = seen.process.installed
    details = f"{seen.problem} {read_last_error(ports, node)}".strip()
    if installed is None or installed not in ports.catalogue:
        sentence = f"may support less than {_format_levels(levels)}: {details}"
        remedy = (
            "If its log shows that it does not support a level, upgrade it to a release that does. Otherwise start it."
        )
    elif lacking := _lacking(ports.catalogue.get(installed), levels):
        sentence = f"its installed release {installed} does not support {_format_levels(lacking)}: {details}"
        remedy = _remedy(*lacking)
    else:
        sentence = f"its installed release {installed} supports every level: {details}"
        remedy = "Read in its log why it is down, and start it."
    return NODE_GONE_AFTER_FINALIZING.found(
        f"node {node.node_id}", f"Node {node.node_id} does not respond after finalizing, and {sentence}", remedy
    )


def _lacking(facts: ReleaseFacts, levels: Mapping[str, int]) -> Mapping[str, int]:
    known = {name: feature.supported for name, feature in facts.features.items()}
    return {name: level for name, level in levels.items() if name not in known or level not in known[name]}


def _format_levels(levels: Mapping[str, int]) -> str:
    return ", ".join(f"{feature} {level}" for feature, level in levels.items())


def _narrower_node(found: Finding, feature: str, level: int) -> Finding:
    return NARROWER_NODE_JOINED.found(
        found.subject,
        f"A node with a narrower range registered while {feature} was finalized at {level}. {found.sentence}",
        _remedy(feature),
    )


def _remedy(*features: str) -> str:
    ways = [f"--downgrade {feature}:LEVEL" for feature in features]
    ways += [f"--delete {feature}" for feature in features if feature != METADATA_VERSION]
    return (
        "Stop that node and upgrade it to a release that supports the level. Or lower the level (`features "
        f"update` with {' or '.join(ways)}) while it is not in use."
    )
