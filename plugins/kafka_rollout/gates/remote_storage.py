"""The conditions that a started broker has initialised its tiered storage (KIP-405), and reaches the remote storage.

A broker that cannot read `__remote_log_metadata` is registered and in sync. It copies, deletes and serves no remote
data, and a new follower cannot build its state. Kafka up to 4.1 logs this and goes on; from 4.2 on the broker exits.
A broker that cannot reach the remote storage, for example with wrong credentials, has initialised. Its requests fail.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from kafka_rollout.base.findings import WARNING, Check, Examined, Finding, FindingCode, Need
from kafka_rollout.base.wording import nodes
from kafka_rollout.gates.counters import REMOTE_REQUESTS, Unchecked, remote_requests_succeed
from kafka_rollout.gates.gate import GateCondition, doubtful, layout_doubt
from kafka_rollout.model.configs import is_reference
from kafka_rollout.model.counters import REMOTE_ERROR_RATES
from kafka_rollout.model.node_log import REMOTE_LOG_MANAGER, UNKNOWN_LAYOUT, SeenLog
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.releases.facts import Release

CONDITION = "tiered storage is initialised"
SYSTEM_ENABLE = "remote.log.storage.system.enable"
MANAGER_CLASS = "remote.log.metadata.manager.class.name"
KAFKA_MANAGER = REMOTE_LOG_MANAGER
# Releases before do not create the manager, whatever the setting.
SINCE = Release(3, 6, 0)

REMOTE_LOG_NOT_CHECKED = FindingCode(
    "REMOTE-LOG-NOT-CHECKED",
    WARNING,
    "Brokers use tiered storage, and no scan reads the metadata of remote segments.",
    "Let the run pause after the first broker. Consume a topic from an offset that is only in remote storage, "
    "then continue.",
)
REMOTE_STORAGE_CHECK = Check(
    "tiered-storage",
    "Tiered storage",
    "upgrade.md#findings",
    (REMOTE_LOG_NOT_CHECKED,),
    needs=(Need.BROKER_CONFIGS,),
    examines=Examined.BROKERS,
)


def uses_tiered_storage(config: Mapping[str, str]) -> bool:
    """Return whether a broker's configuration enables tiered storage; an unknown value counts as enabled."""
    value = config.get(SYSTEM_ENABLE, "false").strip()
    return value.lower() == "true" or is_reference(value)


def tiered_brokers(cluster: ClusterSpec, configs: Mapping[int, Mapping[str, str]]) -> frozenset[int]:
    """Return the brokers whose configurations enable tiered storage for certain. `configs`: by node id."""
    values = {broker.node_id: configs.get(broker.node_id, {}).get(SYSTEM_ENABLE, "") for broker in cluster.brokers}
    return frozenset(node_id for node_id, value in values.items() if value.strip().lower() == "true")


def metadata_manager(config: Mapping[str, str]) -> str:
    """Return the class that keeps the metadata of remote segments."""
    return config.get(MANAGER_CLASS, "").strip() or KAFKA_MANAGER


def check_tiered_storage(
    node: NodeSpec,
    config: Mapping[str, str],
    release: Release,
    seen: SeenLog | None,
    accepted: Mapping[str, str] | None = None,
    *,
    brokers: Sequence[int] = (),
) -> GateCondition | None:
    """Return the condition for a broker with tiered storage, None for another one.

    `seen`: the log of the node's process; None if the runtime cannot read it. `accepted`: doubt → who accepted it.
    `brokers`: all of the cluster, for one acceptance of a layout that no gate can read. What no log can show is named
    as not checked, as the plan announces. Kafka 3.6 to 4.1 also log that the manager has initialised after an error
    with which it refuses every call, so a success removes no error.
    """
    if release < SINCE or not uses_tiered_storage(config):
        return None
    who = f"node {node.node_id}"
    manager = metadata_manager(config)
    if manager != KAFKA_MANAGER:
        return _not_checked(f"{who} uses {manager}, whose state Kafka does not log")
    if is_reference(config[SYSTEM_ENABLE]):
        return _not_checked(f"a config provider has {SYSTEM_ENABLE} of {who}")
    of_process = f"{who}{f' ({seen.who})' if seen else ''}"
    if seen is not None and seen.remote_errors:
        doubt = f"{of_process}: the log shows an error of {_short(manager)}"
        evidence = f"{who} may not have initialised {_short(manager)}: its log shows: {seen.remote_errors[0]}"
        return doubtful(CONDITION, evidence, (doubt,), accepted)
    if seen is not None and seen.is_cut:
        return GateCondition(name=CONDITION, is_met=False, evidence=f"the log of {who} is not read to its end yet")
    if seen is not None and seen.has_initialised:
        return GateCondition(name=CONDITION, is_met=True, evidence=f"{who} has initialised {_short(manager)}")
    if seen is None or seen.why_unknown:
        why = "cannot be read" if seen is None else seen.why_unknown
        doubt = f"{of_process}: the log does not show that {_short(manager)} has initialised"
        if len(brokers) > 1 and seen is not None and seen.problem == UNKNOWN_LAYOUT:
            doubt = layout_doubt(brokers, f"that {_short(manager)} has initialised")
        return doubtful(CONDITION, f"the log of {who}, which shows this, {why}", (doubt,), accepted)
    evidence = f"{who} has not initialised {_short(manager)} since its start: it serves no remote data"
    return GateCondition(name=CONDITION, is_met=False, evidence=evidence)


def check_remote_requests(
    node: NodeSpec, config: Mapping[str, str], release: Release, state: ClusterState, unchecked: Unchecked
) -> GateCondition | None:
    """Return the condition for a broker with tiered storage, None for another one. `unchecked`: as in Plan."""
    if release < SINCE or not uses_tiered_storage(config):
        return None
    seen = state.nodes.get(node.node_id)
    reported = seen.metrics.counters if seen and seen.metrics else {}
    if is_reference(config[SYSTEM_ENABLE]) and not reported.keys() & set(REMOTE_ERROR_RATES):
        why = f"a config provider has {SYSTEM_ENABLE} of node {node.node_id}, and no agent reports the rates of errors"
        return _not_checked(why, name=REMOTE_REQUESTS)
    return remote_requests_succeed(node, state, unchecked)


def _not_checked(why: str, *, name: str = CONDITION) -> GateCondition:
    return GateCondition(name=name, is_met=True, evidence=f"not checked: {why}")


def _short(class_name: str) -> str:
    return class_name.rpartition(".")[2]


def remote_storage_findings(
    cluster: ClusterSpec, configs: Mapping[int, Mapping[str, str]], target: Release
) -> Iterator[Finding]:
    """Yield what no check of the run covers on brokers with tiered storage. `configs`: by node id."""
    by_manager: defaultdict[str, list[int]] = defaultdict(list)
    for broker in cluster.brokers:
        config = configs.get(broker.node_id, {})
        if uses_tiered_storage(config):
            by_manager[metadata_manager(config)].append(broker.node_id)
    for manager, ids in sorted(by_manager.items()):
        gates = (
            "The gates check that each broker has initialised its metadata manager."
            if manager == KAFKA_MANAGER
            else f"The gates do not check {manager}."
        )
        yield REMOTE_LOG_NOT_CHECKED.found(
            f"tiered storage of {nodes(ids)}",
            f"Tiered storage is enabled on {nodes(ids)}. The scan does not read the metadata of remote segments "
            f"(__remote_log_metadata), so it is unknown whether Kafka {target} can load it. {gates} They wait while "
            "copies or fetches fail, but a broker that has not tried any passes.",
        )
