"""Findings about the state of the cluster that affect a rolling change.

Severity:
- BLOCKER: the change makes something unavailable, a value is unknown, or the cluster is already degraded. An approval
  does not change that. Fix the cluster and plan again.
- WARNING: the state recovers while the gates wait (under-replicated partitions, a voter with lag), or only the operator
  can decide whether it matters (old clients).
- INFO: facts for the approver. The same findings are checked again before every stop and before finalizing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from kafka_rollout.base.findings import (
    BLOCKER,
    INFO,
    WARNING,
    Check,
    Checked,
    Examined,
    Finding,
    FindingCode,
    Need,
    unknown,
)
from kafka_rollout.base.internal_topics import METADATA_TOPIC
from kafka_rollout.base.wording import count, few, nodes
from kafka_rollout.features.support import (
    CONTROLLER_UNREGISTRATION_LEVEL,
    FIRST_KRAFT_UPGRADE,
    removed_broker_remedy,
    removed_controller_remedy,
    unlisted_controller_lacks,
)
from kafka_rollout.gates.counters import COUNTER_CHECK, counter_findings
from kafka_rollout.model.counters import COUNTS_PARTITIONS_SINCE
from kafka_rollout.model.plan import accepts_no_quorum, find_acceptance
from kafka_rollout.model.quorum_addresses import QUORUM_VOTERS, parse_voters
from kafka_rollout.model.state import (
    ClusterState,
    NodeState,
    PartitionState,
    QuorumState,
    check_caught_up,
    describe_replaced,
    find_unlisted_brokers,
    find_unlisted_controllers,
    find_unlisted_replicas,
    majority,
)
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.planning.findings.claims import check_claims
from kafka_rollout.planning.findings.clients import CLIENTS_CHECK, USE_CHECK, client_findings, use_findings
from kafka_rollout.planning.findings.not_observable import OBSERVABLE_CHECK, not_observable_findings
from kafka_rollout.planning.findings.releases import REPORTED_CHECK, reported_release_findings
from kafka_rollout.releases.facts import KRAFT_VERSION, METADATA_VERSION, Catalogue, Release

UNLISTED_BROKER = FindingCode(
    "UNLISTED-BROKER",
    (BLOCKER, WARNING),
    "A broker that is registered or has replicas is missing in the inventory. A warning if it is not registered.",
)
UNLISTED_CONTROLLER = FindingCode(
    "UNLISTED-CONTROLLER",
    (BLOCKER, WARNING),
    "A registered controller is missing in the inventory. A warning if its registration supports the target's levels.",
)
UNLISTED_CHECK = Check(
    "unlisted-nodes",
    "Registered nodes that the inventory lacks",
    "upgrade.md#unlisted-controllers",
    (UNLISTED_BROKER, UNLISTED_CONTROLLER),
    needs=(Need.QUORUM, Need.TOPICS),
)
UNANSWERED = FindingCode(
    "UNANSWERED",
    BLOCKER,
    "A query to the cluster failed.",
    "Check the listener and the metrics agents of the node, then plan again. A failed query blocks the plan.",
)
PARTITIONS_HIDDEN = FindingCode(
    "PARTITIONS-HIDDEN",
    (BLOCKER, WARNING),
    "The controllers report more partitions than the brokers list to this tool's user.",
    "Grant this user DESCRIBE on all topics. If a topic was deleted a moment ago, plan again.",
)
NODE_DOWN = FindingCode(
    "NODE-DOWN",
    BLOCKER,
    "A node that the inventory, the quorum, a registration or a partition names does not respond.",
    "Start the node, or read its log and fix the error. Then plan again.",
)
NODE_UNKNOWN = FindingCode(
    "NODE-UNKNOWN",
    BLOCKER,
    "A node of the inventory is not registered in the cluster.",
    "Correct the inventory, or start the node.",
)
NODE_FENCED = FindingCode("NODE-FENCED", BLOCKER, "A broker is registered and serves no requests.")
RELEASE_UNKNOWN = FindingCode(
    "RELEASE-UNKNOWN",
    BLOCKER,
    "The release of a node is unknown.",
    "Check prometheus_url and jolokia_url in the inventory and make sure that both agents respond.",
)
RELEASE_NOT_IN_CATALOGUE = FindingCode(
    "RELEASE-NOT-IN-CATALOGUE", BLOCKER, "A node runs a release that the catalogue does not contain."
)
METRICS_MISSING = FindingCode(
    "METRICS-MISSING",
    (WARNING, INFO),
    "Metrics that the tool needs are missing. Info if only the release is, which follows from jars or levels too.",
    "Continue if the versions of the clients are known. Otherwise configure an agent with the rules of "
    "include/metrics/jmx_exporter.yaml, then plan again.",
)
NEXT_START_DIFFERS = FindingCode(
    "NEXT-START-DIFFERS",
    (WARNING, BLOCKER),
    "The link or the package of a node is that of another release than its process runs, so its next start, also after "
    "a crash, is on this release. A blocker if the run starts the node again on the release that it runs.",
    "Switch the link, or install the package, of the release that runs, and correct the software that manages it. "
    "Leave it only if it was prepared for this run.",
)
MIXED_RELEASES = FindingCode(
    "MIXED-RELEASES",
    INFO,
    "The nodes run different releases.",
    "An interrupted run continues with the nodes that do not run the target release.",
)
QUORUM_UNKNOWN = FindingCode(
    "QUORUM-UNKNOWN",
    BLOCKER,
    "The metadata quorum cannot be read, or it has no leader.",
    "Start a majority of the controllers, then plan again.",
)
QUORUM_NO_SPARE = FindingCode(
    "QUORUM-NO-SPARE",
    (BLOCKER, WARNING),
    "The quorum cannot lose a voter that the run stops. A warning if the run accepts it.",
    f"Run at least three controllers, or accept for this run that the quorum is unavailable while a controller "
    f"restarts (accept_unavailable: {METADATA_TOPIC}).",
)
QUORUM_VOTER_LAGS = FindingCode(
    "QUORUM-VOTER-LAGS",
    (WARNING, BLOCKER),
    "A voter is not caught up. A blocker if its lag is unknown.",
    "Wait until the voter has caught up. If it does not, read its log.",
)
QUORUM_VOTER_REPLACED = FindingCode(
    "QUORUM-VOTER-REPLACED",
    BLOCKER,
    "A controller runs with another directory than the one that has the vote (KIP-853). It stays an observer.",
)
VOTERS_IN_USE_DIFFER = FindingCode(
    "VOTERS-IN-USE-DIFFER",
    WARNING,
    "A node's process has read other voters than those of the static quorum. It does not follow every leader.",
    "Correct controller.quorum.voters in the file of this node, and restart it before the others.",
)
CONTROLLER_NOT_VOTER = FindingCode(
    "CONTROLLER-NOT-VOTER",
    INFO,
    "A controller of the inventory is an observer of the quorum. It restarts as one, and has no vote.",
)
FEATURES_DIFFER = FindingCode(
    "FEATURES-DIFFER",
    BLOCKER,
    "The nodes report different finalized levels.",
    "Wait until all nodes have read the newest metadata. If a node stays behind, read its log.",
)
OFFLINE_PARTITION_ELSEWHERE = FindingCode(
    "OFFLINE-PARTITION-ELSEWHERE",
    WARNING,
    "A partition has no leader and no replica on a node of the inventory.",
    "Start the brokers of its replicas, reassign the replicas, or delete the topic.",
)
_OR_ACCEPT = "or accept for this run that the topic is unavailable (accept_unavailable)."
RF_ONE_TOPIC = FindingCode(
    "RF-ONE-TOPIC",
    (BLOCKER, WARNING),
    "A partition has a single replica: it is unavailable while its broker restarts. A warning if the run accepts it.",
    f"Raise the replication factor with kafka-reassign-partitions.sh, delete the topic, {_OR_ACCEPT}",
)
MIN_ISR_EQUALS_RF = FindingCode(
    "MIN-ISR-EQUALS-RF",
    (BLOCKER, WARNING),
    "A topic requires every replica in sync, so a restart makes it unavailable. A warning if the run accepts it.",
    f"Set min.insync.replicas of the topic below its replication factor, add replicas, {_OR_ACCEPT}",
)
MIN_ISR_ABOVE_RF = FindingCode(
    "MIN-ISR-ABOVE-RF",
    (BLOCKER, WARNING),
    "The target of a downgrade refuses acks=all, which the running release accepts: min.insync.replicas is above the "
    "number of replicas. A warning if the run accepts it.",
    f"Set min.insync.replicas of the topic to at most its number of replicas, {_OR_ACCEPT}",
)
OFFLINE_PARTITION = FindingCode(
    "OFFLINE-PARTITION",
    (BLOCKER, WARNING),
    "A partition has no leader. A warning if the run accepts it.",
    f"Start a broker that has an in-sync replica, {_OR_ACCEPT}",
)
UNDER_MIN_ISR = FindingCode(
    "UNDER-MIN-ISR",
    (BLOCKER, WARNING),
    "A partition is under its min.insync.replicas. A warning if the run accepts it.",
)
UNDER_REPLICATED = FindingCode(
    "UNDER-REPLICATED",
    WARNING,
    "A partition has replicas out of sync.",
)
LACKING_REPLICAS = frozenset({OFFLINE_PARTITION.code, UNDER_MIN_ISR.code, UNDER_REPLICATED.code})
"""Codes of the findings whose subject is a topic with replicas out of sync."""
QUERIES_CHECK = Check(
    "query-responses",
    "Responses to every query",
    "upgrade.md#findings",
    (UNANSWERED,),
    needs=(Need.QUORUM, Need.NODES, Need.LEVELS, Need.TOPICS, Need.GROUPS, Need.SETTINGS, Need.LOGS),
)
HIDDEN_CHECK = Check(
    "hidden-partitions",
    "Partitions that the brokers hide from this tool",
    "upgrade.md#findings",
    (PARTITIONS_HIDDEN,),
    needs=(Need.METRICS, Need.TOPICS),
    examines=Examined.TOPICS,
)
NODES_CHECK = Check(
    "node-registration",
    "Registration and release of each node",
    "upgrade.md#findings",
    (NODE_DOWN, NODE_UNKNOWN, NODE_FENCED, RELEASE_UNKNOWN, RELEASE_NOT_IN_CATALOGUE),
    needs=(Need.NODES,),
)
AGENTS_CHECK = Check(
    "metrics-agents", "Metrics agents of the nodes", "hosts.md#metrics", (METRICS_MISSING,), needs=(Need.NODES,)
)
MIXED_CHECK = Check(
    "mixed-releases",
    "Different releases in the cluster",
    "upgrade.md#findings",
    (MIXED_RELEASES, NEXT_START_DIFFERS),
    needs=(Need.NODES,),
)
QUORUM_CHECK = Check(
    "metadata-quorum",
    "Metadata quorum",
    "upgrade.md#findings",
    (
        QUORUM_UNKNOWN,
        QUORUM_NO_SPARE,
        QUORUM_VOTER_LAGS,
        QUORUM_VOTER_REPLACED,
        VOTERS_IN_USE_DIFFER,
        CONTROLLER_NOT_VOTER,
    ),
    needs=(Need.QUORUM,),
    examines=Examined.VOTERS,
)
AGREEMENT_CHECK = Check(
    "finalized-levels-agree",
    "Finalized levels that the nodes report",
    "upgrade.md#findings",
    (FEATURES_DIFFER,),
    needs=(Need.NODES,),
)
PARTITIONS_CHECK = Check(
    "partition-availability",
    "Replicas and leaders of the partitions",
    "upgrade.md#findings",
    (
        RF_ONE_TOPIC,
        MIN_ISR_EQUALS_RF,
        MIN_ISR_ABOVE_RF,
        OFFLINE_PARTITION,
        UNDER_MIN_ISR,
        UNDER_REPLICATED,
        OFFLINE_PARTITION_ELSEWHERE,
    ),
    needs=(Need.TOPICS,),
    examines=Examined.TOPICS,
)


def check_cluster(
    cluster: ClusterSpec,
    catalogue: Catalogue,
    state: ClusterState,
    *,
    target: Release | None = None,
    accept_unavailable: Sequence[str] = (),
    tiered: Collection[int] = (),
    stops: Collection[int] | None = None,
) -> tuple[Checked, ...]:
    """Return the checks of one observation.

    `accept_unavailable`: names and patterns of topics whose unavailability is a warning, not a blocker. `tiered`: ids
    of the brokers with tiered storage. `stops`: the nodes that a run can stop; None: all of the inventory.
    """
    return (
        QUERIES_CHECK.ran(_unanswered(state)),
        HIDDEN_CHECK.ran(_hidden(state)),
        UNLISTED_CHECK.ran(unlisted_node_findings(cluster, catalogue, state, target)),
        OBSERVABLE_CHECK.ran(not_observable_findings(cluster, catalogue, state)),
        NODES_CHECK.ran(
            (
                *(f for node in cluster.nodes for f in _node(cluster, catalogue, state, node)),
                *_silent_controllers(cluster, state),
            )
        ),
        AGENTS_CHECK.ran(_without_metrics(cluster, state)),
        COUNTER_CHECK.ran(counter_findings(cluster, state, tiered=tiered)),
        REPORTED_CHECK.ran(reported_release_findings(cluster, catalogue, state)),
        check_releases(cluster, state),
        QUORUM_CHECK.ran(_quorum(cluster, state, accept_unavailable, stops)),
        AGREEMENT_CHECK.ran(_features(state)),
        PARTITIONS_CHECK.ran(
            _partitions(cluster, state, accept_unavailable, target, stops),
            unknown=unknown("min.insync.replicas", _without_min_isr(state.partitions)),
        ),
        CLIENTS_CHECK.ran(client_findings(cluster, catalogue, state, target=target)),
        USE_CHECK.ran(use_findings(cluster, state)),
        check_claims(cluster, state),
    )


def _unanswered(state: ClusterState) -> Iterable[Finding]:
    # A node that does not respond at all has its own finding (NODE-DOWN, NODE-UNKNOWN, RELEASE-UNKNOWN).
    known = {n.problem for n in state.nodes.values() if n.features is None or n.metrics is None}
    for question in sorted(set(state.unanswered) - known):
        yield UNANSWERED.found(question, f"A query failed: {question}.")


def _hidden(state: ClusterState) -> Iterable[Finding]:
    """Report topics that the brokers hide because the user of this tool has no DESCRIBE permission.

    The controllers' count is read before the partitions, so a topic created in between does not count as hidden.
    """
    reporting = [n for n in state.nodes.values() if n.metrics and n.metrics.partition_count]
    trusted = [n for n in reporting if n.release is not None and n.release >= COUNTS_PARTITIONS_SINCE]
    counted = max((n.metrics.partition_count or 0 for n in trusted or reporting if n.metrics), default=0)
    shown = len(state.partitions)
    if counted > shown:
        doubt = "" if trusted else ", if they exist: controllers of this release also count deleted partitions"
        yield PARTITIONS_HIDDEN.found(
            "this tool's user",
            f"The controllers report {counted} partitions, but the brokers list only {shown} to the user "
            f"of this tool. The gates do not check the other {counted - shown}{doubt}.",
            severity=BLOCKER if trusted else WARNING,
        )


def _node(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, node: NodeSpec) -> Iterable[Finding]:
    seen = state.nodes.get(node.node_id)
    subject = f"node {node.node_id}"
    why = f" ({seen.problem})" if seen and seen.problem else ""
    shown = f" Its log shows: {seen.log_error.rstrip('.')}." if seen and seen.log_error else ""
    if seen is None or seen.features is None:
        if _known(state, node):
            yield NODE_DOWN.found(subject, f"{node.name} does not respond{why}.{shown}{_replicas_on(state, node)}")
        else:
            yield NODE_UNKNOWN.found(
                subject,
                f"{node.name} of the inventory is not registered in the cluster and does not respond{why}.{shown}",
            )
        return
    if not _known(state, node):
        yield NODE_UNKNOWN.found(
            subject,
            f"{node.name} responds, but it is not registered in this cluster: it is fenced or belongs to "
            "another cluster.",
            "Check its addresses in the inventory and read its log.",
        )
    elif node.is_broker and node.node_id not in state.registered.unfenced:
        yield NODE_FENCED.found(
            subject,
            f"Broker {node.node_id} is fenced: it is registered but serves no requests.",
            f"Read the log of broker {node.node_id} and fix the error that keeps it fenced.",
        )
    if cluster.manages_nodes or seen.release is not None:  # else another finding says that it is not observable
        yield from _release(catalogue, seen, node)


def _release(catalogue: Catalogue, seen: NodeState, node: NodeSpec) -> Iterable[Finding]:
    subject = f"node {node.node_id}"
    if seen.release is None and seen.version:
        version = seen.version
        yield RELEASE_UNKNOWN.found(
            subject,
            f"{node.name} reports version {version}, which is not an Apache release and matches no rule for a vendor.",
            f"Set apache_releases in the inventory to the Apache release of {version}.",
        )
    elif seen.release is None:
        yield RELEASE_UNKNOWN.found(subject, f"{node.name} does not report its running release (metric app-info).")
    elif seen.release not in catalogue:
        known = ", ".join(str(release) for release in catalogue)
        yield RELEASE_NOT_IN_CATALOGUE.found(
            subject,
            f"{node.name} runs {seen.release}, which is not in the catalogue (it contains {known}).",
            f"Add it with `kafka-rollout-derive add {seen.release}`.",
        )


def _without_metrics(cluster: ClusterSpec, state: ClusterState) -> Iterable[Finding]:
    """Report what the metrics of running nodes lack, each need alone, while the release is known from the process.

    Requests by version and single counters have own findings (OLD-CLIENTS-UNKNOWN, COUNTERS-NOT-EXPORTED).
    """
    running = {
        node: now
        for node in cluster.nodes
        if (now := state.nodes.get(node.node_id)) is not None and now.features is not None and now.release is not None
    }
    source = "jars of the process" if cluster.manages_nodes else "supported levels"
    unread = [node.node_id for node, now in running.items() if now.metrics is None or not now.metrics.is_read]
    if unread:
        reasons = dict.fromkeys(filter(None, (state.nodes[node_id].problem for node_id in unread)))
        yield METRICS_MISSING.found(
            "metrics agents",
            f"No metrics agent reports values of {nodes(unread)}. The release is that of the {source}. Connected "
            "client software and old clients (KIP-896) are not observable, and the gates do not check Kafka's error "
            f"counters there.{f' {few(reasons, limit=3)}' if reasons else ''}",
        )
    answered = {node: now.metrics for node, now in running.items() if now.metrics is not None}
    if unreadable := {node.node_id: metrics.unreadable for node, metrics in answered.items() if metrics.unreadable}:
        reasons = dict.fromkeys(reason for of_node in unreadable.values() for reason in of_node)
        yield METRICS_MISSING.found(
            "unreadable values",
            f"Agents of {nodes(unreadable)} do not report these metrics, or with a value that they cannot have: "
            f"{few(reasons)}.",
            "Correct the rules of the exporter, whose page must have the metrics of one process, or the access policy "
            "of Jolokia.",
        )
    silent: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for node, metrics in answered.items():
        for one in metrics.unanswered.items():
            silent[one].append(node.node_id)
    if silent:
        listed = (f"{agent} of {nodes(ids)}: {reason.rstrip('.')}" for (agent, reason), ids in sorted(silent.items()))
        yield METRICS_MISSING.found(
            "agents without a response",
            f"The inventory lists agents that do not respond ({few(listed, limit=3)}). After levels are raised, the "
            "gate metadata-version waits for them until it fails.",
            "Correct the agents, or remove their URLs from the inventory. Then plan again.",
        )
    without_release = [node.node_id for node, seen in answered.items() if seen.is_read and seen.release is None]
    if without_release:
        yield METRICS_MISSING.found(
            "release",
            f"The metrics of {nodes(without_release)} do not contain the release (app-info). It is that of the "
            f"{source}.",
            "No action is needed. Exporters' rules can add the text of app-info: include/metrics/jmx_exporter.yaml.",
            severity=INFO,
        )


def _known(state: ClusterState, node: NodeSpec) -> bool:
    """Return whether any list of the cluster contains the node. A quorum that was not read proves nothing."""
    registered, quorum = state.registered, state.quorum
    known = registered.brokers | (registered.fenced or frozenset()) | (registered.controllers or frozenset())
    if node.is_broker and any(node.node_id in partition.replicas for partition in state.partitions):
        return True
    if quorum is not None:
        known |= {replica.replica_id for replica in (*quorum.voters, *quorum.observers)}
    elif node.is_controller:
        return True
    return node.node_id in known


def _replicas_on(state: ClusterState, node: NodeSpec) -> str:
    """Return how many replicas a broker that does not respond has, and how many of them are out of sync."""
    replicas = [one for one in state.partitions if node.node_id in one.replicas] if node.is_broker else []
    missing = sum(node.node_id not in one.isr for one in replicas)
    return f" It has {count(len(replicas), 'replica')}, of which {missing} are out of sync." if replicas else ""


def _silent_controllers(cluster: ClusterSpec, state: ClusterState) -> Iterable[Finding]:
    """Report controllers that this tool cannot query, and that the quorum does not show as running.

    A run cannot manage nodes that the inventory lacks (UNLISTED-CONTROLLER), so this is about other clusters.
    """
    if cluster.manages_nodes or state.quorum is None:
        return
    for node_id in sorted(find_unlisted_controllers(cluster, state)):
        if not state.quorum.is_fetching(node_id):
            yield NODE_DOWN.found(
                f"node {node_id}",
                f"Controller {node_id} is in the quorum or registered, and the leader does not report a fetch by it "
                f"in the last {state.quorum.fetch_limit_ms / 1000:g} s.",
            )


def _releases(state: ClusterState) -> Iterable[Finding]:
    if len(state.releases) > 1:
        running = "; ".join(
            f"{nodes(i for i, n in state.nodes.items() if n.release == release)}: {release}"
            for release in sorted(state.releases)
        )
        yield MIXED_RELEASES.found("releases", f"The nodes run different releases ({running}).")


def check_releases(cluster: ClusterSpec, state: ClusterState, *, stays: Collection[int] = ()) -> Checked:
    """Check the releases that run, and those of the next starts. `stays`: the nodes that a run stops and starts again
    on the release that they run.
    """
    return MIXED_CHECK.ran((*_releases(state), *_next_starts(cluster, state, stays)))


def _next_starts(cluster: ClusterSpec, state: ClusterState, stays: Collection[int]) -> Iterable[Finding]:
    """Report nodes whose process is of another release than the link or the package on the host."""
    differing: defaultdict[tuple[Release, Release, bool], list[int]] = defaultdict(list)
    for node_id, node in sorted(state.nodes.items()) if cluster.manages_nodes else ():
        running, installed = node.release, node.process.installed
        if node.process.pid is not None and running is not None and installed not in (None, running):
            differing[running, installed, node_id in stays].append(node_id)
    for (running, installed, restarts), ids in differing.items():
        yield NEXT_START_DIFFERS.found(
            f"{nodes(ids)}, release {installed}",
            f"The next start of {nodes(ids)} is on Kafka {installed}: the link or the package was switched while the "
            f"process of {running} runs.",
            severity=BLOCKER if restarts else WARNING,
        )


def _quorum(
    cluster: ClusterSpec, state: ClusterState, accept_unavailable: Sequence[str], stops: Collection[int] | None
) -> Iterable[Finding]:
    quorum = state.quorum
    if quorum is None and not cluster.manages_nodes:
        return  # a failed or refused query, which has its own finding
    if quorum is None or quorum.leader_id < 0:
        seen = "cannot be read" if quorum is None else "has no leader"
        yield QUORUM_UNKNOWN.found("metadata quorum", f"The metadata quorum of {cluster.name} {seen}.")
        return
    voters = len(quorum.voters)
    if not quorum.has_spare and (stops is None or quorum.voter_ids & set(stops)):
        found = (
            f"The quorum has {count(voters, 'voter')} and needs {majority(voters)}: while a controller restarts, no "
            "leader is elected, no ISR changes, and no topic is created."
        )
        if accepts_no_quorum(accept_unavailable):
            yield QUORUM_NO_SPARE.found(
                "metadata quorum",
                f"{found} This run accepts it ({METADATA_TOPIC}).",
                "Approve the plan only if this can wait until the controller has restarted. If a broker fails "
                "meanwhile, the partitions that it leads have no leader.",
                severity=WARNING,
            )
        else:
            yield QUORUM_NO_SPARE.found("metadata quorum", found)
    for voter in quorum.voters:
        caught_up, evidence = check_caught_up(quorum, voter.replica_id)
        if not caught_up and voter.replica_id in quorum.replaced_voters - quorum.joins_itself:
            yield QUORUM_VOTER_REPLACED.found(
                f"controller {voter.replica_id}",
                f"N{describe_replaced(quorum, voter.replica_id)[1:]}. It never becomes the voter by itself.",
                f"Remove the old voter (kafka-metadata-quorum.sh --bootstrap-server {cluster.bootstrap_servers} "
                f"{remove_controller(quorum, voter.replica_id)}), then add the new one on its host (… "
                "--command-config its server.properties, add-controller).",
            )
        elif not caught_up:
            unknown = quorum.lag(voter.replica_id) is None
            yield QUORUM_VOTER_LAGS.found(
                f"controller {voter.replica_id}",
                f"Voter {voter.replica_id} is not caught up: {evidence}.",
                severity=BLOCKER if unknown else WARNING,
            )

    for node_id, in_use in sorted(({} if state.has_dynamic_quorum else state.quorum_in_use).items()):
        read = parse_voters(in_use)
        if read is not None and read.keys() != quorum.voter_ids:
            yield VOTERS_IN_USE_DIFFER.found(
                f"node {node_id}",
                f"Node {node_id} runs with the voters {', '.join(map(str, sorted(read)))}. Those of the quorum are "
                f"{', '.join(map(str, sorted(quorum.voter_ids)))}, by its leader {quorum.leader_id}. While another "
                f"voter leads, node {node_id} can lose the quorum.",
            )
    for node in cluster.controllers:
        if node.node_id not in quorum.voter_ids and quorum.observer(node.node_id) is not None:
            yield CONTROLLER_NOT_VOTER.found(
                f"controller {node.node_id}",
                f"Controller {node.node_id} is an observer of the quorum, not one of its {count(voters, 'voter')}.",
                "No action is needed for a standby. If it must vote, add it: kafka-metadata-quorum.sh add-controller.",
            )


def remove_controller(quorum: QuorumState | None, node_id: int) -> str:
    """Return the words of kafka-metadata-quorum.sh that remove a voter."""
    voter = next((one for one in quorum.voters if one.replica_id == node_id), None) if quorum else None
    directory = (voter.directory_id if voter else "") or "ID"
    return f"remove-controller --controller-id {node_id} --controller-directory-id {directory}"


def _features(state: ClusterState) -> Iterable[Finding]:
    """Report different finalized levels.

    Controllers before 3.5 report no finalized levels, so they are ignored. Epochs always differ and are not compared.
    kraft.version is not part of the metadata that nodes read.
    """
    answers = {i: n.features.finalized for i, n in state.nodes.items() if n.features and n.features.finalized}
    for feature in sorted({feature for levels in answers.values() for feature in levels} - {KRAFT_VERSION}):
        by_level: defaultdict[int, list[int]] = defaultdict(list)
        for node_id, levels in answers.items():
            by_level[levels.get(feature, 0)].append(node_id)
        if len(by_level) > 1:
            listed = "; ".join(f"{nodes(ids)}: {level}" for level, ids in sorted(by_level.items()))
            yield FEATURES_DIFFER.found(
                f"feature {feature}", f"The nodes report different finalized levels of {feature} ({listed})."
            )


def _partitions(
    cluster: ClusterSpec,
    state: ClusterState,
    accept_unavailable: Sequence[str],
    target: Release | None,
    stops: Collection[int] | None,
) -> Iterable[Finding]:
    """Return one finding per topic and kind, internal topics included. A more severe kind hides the milder ones.

    A partition without a replica on a node of the inventory is unaffected by the restarts, and one without a replica on
    a node of `stops` by what a stop does to a healthy partition.
    """
    topics: defaultdict[str, list[PartitionState]] = defaultdict(list)
    for partition in state.partitions:
        topics[partition.topic].append(partition)
    serving = state.registered.unfenced
    nodes_ = {node.node_id for node in cluster.nodes}
    stopped = nodes_ if stops is None else nodes_.intersection(stops)
    loses_limit = target is not None and target < _LIMITS_MIN_ISR and any(r >= _LIMITS_MIN_ISR for r in state.releases)
    for topic, members in sorted(topics.items()):
        affected = [p for p in members if nodes_.intersection(p.replicas)]
        if elsewhere := [p for p in members if p.leader < 0 and p not in affected]:
            yield OFFLINE_PARTITION_ELSEWHERE.found(
                f"topic {topic}",
                f"{_listed(topic, elsewhere)} have no leader and no replica on a node of the inventory, for example "
                f"{_replicas(elsewhere[0])}.",
            )
        pattern = find_acceptance(accept_unavailable, topic)
        kinds = (*_KINDS, _above_replicas(target)) if target and loses_limit else _KINDS
        for applies, code, sentence in kinds:
            counts = stopped if code in _OF_A_STOP else nodes_
            if bad := [p for p in affected if applies(p) and counts.intersection(p.replicas)]:
                text = f"{_listed(topic, bad)} {sentence}, for example {_replicas(bad[0])}."
                if pattern and code.severities[0] is BLOCKER:
                    accepted = f"{text} This run accepts it ({pattern})."
                    yield code.found(f"topic {topic}", accepted, _ACCEPTED, severity=WARNING)
                elif code in (UNDER_REPLICATED, UNDER_MIN_ISR):
                    yield code.found(f"topic {topic}", text, _remedy_of_missing(code, bad, serving))
                else:
                    yield code.found(f"topic {topic}", text)


def _remedy_of_missing(code: FindingCode, bad: Sequence[PartitionState], serving: Collection[int]) -> str:
    """Return what brings the replicas back, by whether their brokers serve."""
    missing = {replica for partition in bad for replica in set(partition.replicas) - set(partition.isr)}
    parts = []
    if down := sorted(missing - set(serving)):
        parts.append(f"Start {_brokers(down)}.")
    if slow := sorted(missing & set(serving)):
        parts.append(
            f"{_brokers(slow).capitalize()} {'serves' if len(slow) == 1 else 'serve'}: wait until the replicas "
            "have caught up. If they do not, look for REPLICATION-THROTTLED, and read the log for errors of "
            "ReplicaFetcherThread."
        )
    parts.append(
        "The gates wait for the replicas that a node needs."
        if code is UNDER_REPLICATED
        else f"{_OR_ACCEPT.capitalize()}"
    )
    return " ".join(parts)


def _brokers(ids: Collection[int]) -> str:
    return f"broker{'' if len(ids) == 1 else 's'} {', '.join(map(str, sorted(ids)))}"


def _without_min_isr(partitions: Iterable[PartitionState]) -> str:
    topics = sorted({partition.topic for partition in partitions if not partition.has_known_min_isr})
    return f"The min.insync.replicas of {count(len(topics), 'topic')} is unknown ({few(topics)})." if topics else ""


def _listed(topic: str, members: Sequence[PartitionState]) -> str:
    return f"{count(len(members), 'partition')} of {topic} ({few(p.partition for p in members)})"


def _replicas(partition: PartitionState) -> str:
    return (
        f"{partition.name} with replicas {list(partition.replicas)}, ISR {list(partition.isr)}, "
        f"min.insync.replicas {partition.min_insync_replicas if partition.has_known_min_isr else 'unknown'}"
    )


_LIMITS_MIN_ISR = Release(3, 7, 0)  # KAFKA-15583: from here on acks=all needs no more replicas than there are


def _above_replicas(target: Release) -> tuple[Callable[[PartitionState], bool], FindingCode, str]:
    return (
        lambda p: p.has_known_min_isr and p.min_insync_replicas > len(p.replicas),
        MIN_ISR_ABOVE_RF,
        f"have fewer replicas than min.insync.replicas: Kafka {target} refuses acks=all for them, also with every "
        "replica in sync",
    )


_OF_A_STOP = (RF_ONE_TOPIC, MIN_ISR_EQUALS_RF)  # what the stop of a broker does to a healthy partition
_ACCEPTED = "Approve the plan only if the clients of this topic can wait until the nodes have restarted."
_KINDS: tuple[tuple[Callable[[PartitionState], bool], FindingCode, str], ...] = (
    (
        lambda p: len(p.replicas) == 1,
        RF_ONE_TOPIC,
        "have a single replica: they are unavailable while its broker restarts",
    ),
    (
        lambda p: p.has_known_min_isr and 1 < len(p.replicas) <= p.min_isr,
        MIN_ISR_EQUALS_RF,
        "require every replica in sync: while one of their brokers restarts, acks=all fails, and from 3.7.0 on "
        "consumers get no new records, whatever their acks",
    ),
    (lambda p: p.leader < 0, OFFLINE_PARTITION, "have no leader"),
    (
        lambda p: p.has_known_min_isr and p.is_under_min_isr,
        UNDER_MIN_ISR,
        "are under their min.insync.replicas: acks=all fails, and from 3.7.0 on consumers get no new records, whatever "
        "their acks",
    ),
    (
        lambda p: not (p.has_known_min_isr and p.is_under_min_isr) and p.is_missing_replicas,
        UNDER_REPLICATED,
        "have replicas out of sync",
    ),
)


def unlisted_node_findings(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, target: Release | None
) -> Iterable[Finding]:
    """Yield a finding for each registered node that the inventory lacks. `target`: the target of the run, if any."""
    for node_id in sorted(find_unlisted_controllers(cluster, state)) if cluster.manages_nodes else ():
        yield _unlisted_controller(cluster, catalogue, state, node_id, target)
    for node_id in sorted(find_unlisted_brokers(cluster, state)):
        yield UNLISTED_BROKER.found(
            f"broker {node_id}",
            f"Broker {node_id} is registered in the cluster but not listed in the inventory. It blocks finalizing.",
            removed_broker_remedy(cluster, node_id),
        )
    for node_id, partitions in sorted(find_unlisted_replicas(cluster, state).items()):
        is_known = state.registered.fenced is not None
        what = "it is not registered" if is_known else "it is not in service: fenced, or not registered"
        yield UNLISTED_BROKER.found(
            f"broker {node_id}",
            f"Broker {node_id} has replicas of {count(partitions, 'partition')}. The inventory does not list it, and "
            f"{what}.",
            "If it is a broker of this cluster, start it and add it to the inventory. If not, reassign its replicas.",
            severity=WARNING if is_known else BLOCKER,
        )


def _unlisted_controller(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, node_id: int, target: Release | None
) -> Finding:
    """Return the finding: a blocker unless the controller's registration supports the levels to be finalized."""
    subject = f"controller {node_id}"
    found = f"Controller {node_id} is registered in the cluster but not listed in the inventory."
    voters = {voter.replica_id for voter in state.quorum.voters} if state.quorum else set()
    if node_id in voters:
        remove = (
            f"Else remove the voter (kafka-metadata-quorum.sh --bootstrap-server {cluster.bootstrap_servers} "
            f"{remove_controller(state.quorum, node_id)}), then plan again."
        )
        # Kafka does not change the voters of a static quorum: up to 3.7 a node with other voters in its file does not
        # start (QuorumState.initialize), and from 3.8 on it counts votes by its own file.
        replace_it = (
            f"Else start a controller with node.id {node_id} at the address that {QUORUM_VOTERS} has for it, with an "
            f"empty formatted directory, and add it to the inventory. Do not change {QUORUM_VOTERS}: fewer voters need "
            f"a dynamic quorum (kraft.version 1, from {FIRST_KRAFT_UPGRADE} on)."
        )
        return UNLISTED_CONTROLLER.found(
            subject,
            f"{found} It is a voter of the quorum, and blocks finalizing.",
            f"If it runs, add it to the inventory. {remove if state.has_dynamic_quorum else replace_it}",
            severity=BLOCKER,
        )
    known = [release for release in (target, max(state.releases, default=None)) if release and release in catalogue]
    levels = {name: facts.default_level for name, facts in catalogue.get(known[0]).features.items()} if known else {}
    lacking = unlisted_controller_lacks(state, node_id, levels) if known else None
    removable = state.finalized.reported.get(METADATA_VERSION, 0) >= CONTROLLER_UNREGISTRATION_LEVEL
    remedy = removed_controller_remedy(cluster, state, node_id, f"Kafka {known[0]}" if known else "")
    if lacking == ():
        return UNLISTED_CONTROLLER.found(
            subject,
            f"{found} Its registration supports the levels of Kafka {known[0]}, so it does not block finalizing.",
            remedy
            if removable
            else "If it runs, add it to the inventory. If not, no action is needed: its registration can be removed "
            f"from metadata.version {CONTROLLER_UNREGISTRATION_LEVEL} on.",
            severity=WARNING,
        )
    what = "Its supported levels are unknown." if lacking is None else f"It does not support {', '.join(lacking)}."
    return UNLISTED_CONTROLLER.found(subject, f"{found} {what} It blocks finalizing.", remedy, severity=BLOCKER)
