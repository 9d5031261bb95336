"""The checks of a plan, in one list for both directions, what each examined, and what was not observed for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kafka_rollout.base.findings import Checked, Examined, Finding, Need, OfSomeNodes
from kafka_rollout.base.wording import count, few, nodes
from kafka_rollout.features.requests import (
    LEVEL_OUT_OF_RANGE,
    NO_ROLLBACK,
    RANGES_CHECK,
    ROLLBACK_LEVELS_CHECK,
    range_findings,
    unknown_level_findings,
)
from kafka_rollout.gates.remote_storage import REMOTE_STORAGE_CHECK, remote_storage_findings
from kafka_rollout.groups.findings import GROUPS_CHECK, group_findings, leave_to_gate
from kafka_rollout.model.configs import NodeConfigs, unresolved_settings
from kafka_rollout.model.plan import Direction, Lowering, Plan
from kafka_rollout.model.rights import RIGHTS_CHECK, right_findings
from kafka_rollout.model.state import ClusterState, NodeState, find_unlisted_controllers
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.findings.advisories import (
    ADVISORIES_CHECK,
    AdvisoryFacts,
    advisory_findings,
    age_findings,
    judge_advisories,
    review_findings,
    review_note,
)
from kafka_rollout.planning.findings.agreement import BETWEEN_NODES_CHECK, planned_agreement_findings
from kafka_rollout.planning.findings.configuration import (
    CONFIGURATION_CHECK,
    DIRECTORIES_CHECK,
    JAVA_CHECK,
    SHUTDOWN_CHECK,
    byte_order_mark_findings,
    config_findings,
    controlled_shutdown_findings,
    directory_findings,
    java_findings,
    java_maximum_findings,
    planned_configs,
)
from kafka_rollout.planning.findings.not_observable import FILES_CHECK, unobserved_nodes, unresolved_config_findings
from kafka_rollout.planning.findings.releases import (
    GAPS_CHECK,
    OF_DOWNGRADES,
    OF_EVERY_PLAN,
    ROLLBACK_END_CHECK,
    gap_findings,
    rollback_end_findings,
)
from kafka_rollout.planning.findings.starts import START_FILES_CHECK, ObservedStarts, start_findings
from kafka_rollout.planning.findings.zookeeper import ZOOKEEPER_CHECK, can_migrate, zookeeper_findings
from kafka_rollout.planning.observation import PlanObservation
from kafka_rollout.planning.release_path import PAST_CHECK, find_nodes_ahead
from kafka_rollout.releases.facts import METADATA_VERSION, Release

NO_RESTART = "No node changes its release."


def check_change(observed: PlanObservation, plan: Plan) -> Iterator[Checked]:
    """Yield the checks of a plan that are not about its cluster alone (`check_cluster`), in their order."""
    cluster, catalogue, state, configs = observed.cluster, observed.catalogue, observed.state, observed.configs
    path, ahead, down = plan.path, plan.path[1:], plan.direction is Direction.DOWNGRADE
    finalized = state.finalized.reported
    planned = planned_configs(path, configs, plan.config_changes)
    unless = "" if ahead else NO_RESTART
    yield RIGHTS_CHECK.ran(right_findings(cluster, state.missing_rights))
    yield ZOOKEEPER_CHECK.ran(
        zookeeper_findings(cluster, state, configs, observed.registrations),
        unless="" if can_migrate(state) else "No node runs a release below 4.0.",
    )
    yield SHUTDOWN_CHECK.ran(controlled_shutdown_findings(cluster, configs), unless=unless)
    yield DIRECTORIES_CHECK.ran(
        directory_findings(
            cluster,
            {release: planned[release] for release in path},
            path,
            finalized.get(METADATA_VERSION, 0),
            plan.levels.get(METADATA_VERSION, finalized.get(METADATA_VERSION, 0)),
            unsafe=plan.unsafe,
        )
    )
    past = find_nodes_ahead(state, path[min(1, len(path) - 1)], down=down)
    yield PAST_CHECK.ran([past] if past else [])
    yield RANGES_CHECK.ran(
        unknown_level_findings(state)
        or (
            finding
            for release in ahead
            for finding in range_findings(
                catalogue, state, release, code=LEVEL_OUT_OF_RANGE, planned=plan.lowered
            ).findings
        ),
        unless=unless if state.finalized.is_known else "",
    )
    yield GROUPS_CHECK.ran(
        leave_to_gate(found for release in ahead for found in group_findings(catalogue, state, release)), unless=unless
    )
    yield GAPS_CHECK.ran(gap_findings(catalogue, path, OF_DOWNGRADES if down else OF_EVERY_PLAN))
    yield _check_advisories(observed, path, planned)
    yield ROLLBACK_LEVELS_CHECK.ran(
        range_findings(catalogue, state, path[0], code=NO_ROLLBACK, planned=plan.lowered).findings
        if state.finalized.is_known
        else ()
    )
    if not down:
        yield ROLLBACK_END_CHECK.ran(rollback_end_findings(catalogue, path, finalized), unless=unless)
    starts = _next_starts(observed, plan)
    yield CONFIGURATION_CHECK.ran(
        (*config_findings(plan.target, starts.rejected), *byte_order_mark_findings(configs)),
        unless=unless,
    )
    yield START_FILES_CHECK.ran(start_findings(starts), unless=unless)
    yield BETWEEN_NODES_CHECK.ran(
        planned_agreement_findings(
            cluster, catalogue, state, {release: planned[release] for release in ahead}, observed.directories
        ),
        unless=unless,
    )
    yield REMOTE_STORAGE_CHECK.ran(remote_storage_findings(cluster, configs, plan.target), unless=unless)
    started = {release: planned[release] for release in path}
    rollback_to = None if path[0] in ahead else path[0]
    yield JAVA_CHECK.ran(
        (
            *java_findings(cluster, catalogue, ahead, observed.java),
            *java_maximum_findings(cluster, catalogue, started, observed.java, rollback_to=rollback_to),
        ),
        unless=unless,
    )
    yield FILES_CHECK.ran(
        (
            *unobserved_nodes(cluster, configs, "configurations"),
            *unresolved_config_findings(configs),
            *unobserved_nodes(cluster, observed.java, "Java versions"),
        )
    )


def _next_starts(observed: PlanObservation, plan: Plan) -> ObservedStarts:
    """Return the starts on the releases ahead, and those on the release of now: of the controllers in a live downgrade,
    of all nodes in the undo of an offline one."""
    if plan.lowering is Lowering.ONLINE:
        return observed.starts
    again = observed.starts_again
    if plan.lowering is Lowering.LIVE:
        again = again.of({node.node_id for node in observed.cluster.controllers})
    return again.then(observed.starts, plan.target, is_target=True)


def _check_advisories(
    observed: PlanObservation, path: Sequence[Release], planned: Mapping[Release, NodeConfigs]
) -> Checked:
    cluster, catalogue, state = observed.cluster, observed.catalogue, observed.state
    facts = AdvisoryFacts(
        cluster=cluster,
        finalized=state.finalized.reported,
        state=state,
        configs=planned,
        java=observed.java,
        registrations=observed.registrations,
        dynamic=None if isinstance(observed.dynamic, Finding) else observed.dynamic,
        unknown=unknown_responses(cluster, state),
    )
    judged = judge_advisories(catalogue, path, facts)
    return ADVISORIES_CHECK.ran(
        (
            *advisory_findings(judged, observable=cluster.manages_nodes),
            *review_findings(catalogue, path[1:]),
            *age_findings(catalogue, path),
        ),
        note=review_note(catalogue, judged),
    )


def unknown_values(observed: PlanObservation, path: Iterable[Release]) -> dict[Need, str]:
    """Return need → sentence about what was not observed: a check that needs it has not passed.

    `path`: the releases of the plan. Needs that were observed completely are left out.
    """
    cluster, state, configs = observed.cluster, observed.state, observed.configs
    found = unknown_responses(cluster, state)
    known = _nodes(cluster, state)
    if unread := [node_id for node_id in known if node_id not in configs]:
        found[Need.CONFIGS] = _of_nodes("The configuration of", unread, known)
        of_brokers = [node.node_id for node in cluster.brokers]
        if brokers := [node_id for node_id in of_brokers if node_id in unread]:
            found[Need.BROKER_CONFIGS] = _of_nodes("The configuration of", brokers, of_brokers)
    elif unresolved := [node_id for node_id, config in configs.items() if unresolved_settings(config)]:
        found[Need.CONFIGS] = found[Need.BROKER_CONFIGS] = f"Config providers have values of {nodes(unresolved)}."
    if no_java := [node_id for node_id in known if node_id not in observed.java]:
        found[Need.JAVA] = _of_nodes("The Java version of", no_java, known)
    if gaps := [f"{release} ({few(facts)})" for release in path if (facts := observed.catalogue.get(release).gaps)]:
        found[Need.FACTS] = f"The catalogue lacks facts of {few(gaps)}."
    return found


def unknown_responses(cluster: ClusterSpec, state: ClusterState) -> dict[Need, str]:
    """Return what the nodes and their agents did not report, as in `unknown_values`."""
    found: dict[Need, str] = {}
    by_need: dict[Need, dict[str, None]] = {}
    of_nodes = {node.problem for node in state.nodes.values()}
    for sentence in (*state.unanswered, *state.not_observable):
        if sentence not in of_nodes:
            for need in [state.needs[sentence]] if sentence in state.needs else _OF_RESPONSES:
                by_need.setdefault(need, {})[sentence] = None
    for need, sentences in by_need.items():
        found[need] = f"Not every query was answered: {few(sentences)}"
    known = _nodes(cluster, state)
    asked = [node.node_id for node in cluster.nodes]
    if silent := [node_id for node_id in asked if not _responds(cluster, state.nodes.get(node_id))]:
        silence = _of_nodes("The response of", silent, asked)
        found[Need.NODES] = f"{found[Need.NODES]} {silence}" if Need.NODES in found else silence
    if not state.finalized.is_known:
        found[Need.LEVELS] = "No node that responds reports the finalized levels."
    metrics = {node_id: seen.metrics for node_id, seen in state.nodes.items()}
    unread = [i for i in known if not (seen := metrics.get(i)) or not seen.is_read]
    if unread:
        found[Need.METRICS] = _of_nodes("The metrics of", unread, known, "are")
    return found


def _of_nodes(what: str, lacking: Sequence[int], known: Sequence[int], verb: str = "is") -> str:
    sentence = f"{what} {nodes(lacking)} {verb} unknown."
    judged = [node_id for node_id in known if node_id not in lacking]
    return OfSomeNodes(f"{sentence} The rest, {nodes(judged)}, was checked.") if judged else sentence


_OF_RESPONSES = (Need.QUORUM, Need.NODES, Need.LEVELS, Need.TOPICS, Need.GROUPS, Need.SETTINGS)


def _responds(cluster: ClusterSpec, seen: NodeState | None) -> bool:
    """Return whether the node reported its levels and, where a runtime manages it, its process."""
    return (
        seen is not None and seen.features is not None and (not cluster.manages_nodes or seen.process.pid is not None)
    )


def _nodes(cluster: ClusterSpec, state: ClusterState) -> list[int]:
    """Return the ids of all nodes, with the controllers that the inventory lacks."""
    return [*(node.node_id for node in cluster.nodes), *sorted(find_unlisted_controllers(cluster, state))]


def examined_text(what: Examined, observed: PlanObservation, plan: Plan) -> str:
    """Return the examined objects with their numbers: `3 brokers, 3 controllers`."""
    cluster, state = observed.cluster, observed.state
    match what:
        case Examined.NODES | Examined.HOSTS | Examined.FILES:
            return nodes_text(observed)
        case Examined.BROKERS:
            return count(len(cluster.brokers), "broker")
        case Examined.VOTERS:
            return count(len(state.quorum.voters), "voter") if state.quorum else "no voters"
        case Examined.TOPICS:
            topics = len({partition.topic for partition in state.partitions})
            return f"{count(topics, 'topic')}, {count(len(state.partitions), 'partition')}"
        case Examined.GROUPS:
            return f"{count(len(state.groups), 'group')}, {count(len(state.transactions), 'transactional id')}"
        case Examined.CLIENTS:
            reporting = [seen for seen in state.nodes.values() if seen.metrics and seen.metrics.is_read]
            return f"metrics of {count(len(reporting), 'node')}"
        case Examined.LEVELS:
            return count(len(state.finalized.reported), "finalized feature")
        case Examined.RELEASES:
            return " → ".join(map(str, plan.path))
        case Examined.RIGHTS:
            return "the user of this tool"
        case Examined.CONFIGS | Examined.DYNAMIC:
            return f"settings of {count(len(observed.configs), 'node')}"
        case Examined.JAVA:
            return f"{count(len(observed.java), 'Java version')}"
        case Examined.LOGS:
            return "records of groups and transactions"


def nodes_text(observed: PlanObservation) -> str:
    """Return the number of nodes by role; a combined node counts as both. Controllers without an address are named."""
    cluster = observed.cluster
    controllers = count(len(cluster.controllers), "controller")
    if not cluster.controllers and observed.state.quorum is None:
        controllers = "controllers unknown"
    known = f"{count(len(cluster.brokers), 'broker')}, {controllers}"
    hidden = len(find_unlisted_controllers(cluster, observed.state))
    return f"{known}, {count(hidden, 'controller')} not reachable" if hidden else known
