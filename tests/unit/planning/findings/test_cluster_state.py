from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.findings import Finding, Severity, all_findings
from kafka_rollout.model.state import (
    ClientSoftware,
    ClusterState,
    GroupState,
    LoggedRequest,
    NodeMetrics,
    PartitionState,
    RegisteredNodes,
    RequestCount,
    TransactionState,
)
from kafka_rollout.model.topology import NO_RUNTIME, ClusterSpec
from kafka_rollout.planning.findings.cluster_state import check_cluster
from kafka_rollout.releases.facts import Release, VersionRange
from tests.unit.builders import (
    COMBINED,
    R340,
    R391,
    R431,
    REQUESTS,
    SEPARATE,
    catalogue,
    cluster,
    dynamic,
    node_state,
    partition,
    quorum,
    replace_node,
    silent,
    state,
)


def _findings(seen: ClusterState, spec: ClusterSpec = SEPARATE, **other: object) -> dict[tuple[str, str], Finding]:
    found = all_findings(check_cluster(spec, catalogue(), seen, **other))  # type: ignore[arg-type]
    for finding in found:
        assert finding.code == finding.code.upper()
        assert finding.sentence.endswith(".")
        assert finding.remedy or finding.severity is Severity.INFO
    assert len({f.identity for f in found}) == len(found)
    return {f.identity: f for f in found}


def _blockers(seen: ClusterState, spec: ClusterSpec = SEPARATE, **other: object) -> set[tuple[str, str]]:
    return {key for key, f in _findings(seen, spec, **other).items() if f.severity is Severity.BLOCKER}


@pytest.mark.parametrize("spec", [COMBINED, SEPARATE], ids=["combined", "separate"])
def test_a_well_cluster_has_no_findings(spec: ClusterSpec) -> None:
    assert _findings(state(spec), spec) == {}


def test_a_controller_that_runs_with_another_directory_is_not_waited_for() -> None:
    seen = quorum([1, 2, 3], 3, [1, 4, 5, 6])
    voters = [replace(v, directory_id=f"Old-{v.replica_id}") for v in seen.voters]
    voters[0] = replace(voters[0], log_end_offset=-1, last_fetch_ms=None, last_caught_up_ms=None)
    observers = tuple(replace(o, directory_id=f"new-{o.replica_id}") for o in seen.observers)
    replaced = replace(seen, voters=tuple(voters), observers=observers)
    found = _findings(state(quorum=replaced))
    finding = found["QUORUM-VOTER-REPLACED", "controller 1"]
    assert finding.severity is Severity.BLOCKER
    assert finding.sentence.startswith("Node 1 runs with directory new-1, and the voter is directory Old-1.")
    assert "remove-controller --controller-id 1 --controller-directory-id Old-1" in finding.remedy
    assert "Wait" not in finding.remedy
    assert ("QUORUM-VOTER-LAGS", "controller 1") not in found
    joining = _findings(state(quorum=replace(replaced, joins_itself=frozenset({1}))))
    assert ("QUORUM-VOTER-LAGS", "controller 1") in joining


def test_a_process_that_has_read_other_voters_is_named_although_its_file_was_corrected() -> None:
    line, right = "controller.quorum.voters", "1@c1:9093,2@c2:9093,3@c3:9093"
    assert _findings(state(quorum_in_use={1: {line: right}, 4: {line: right}})) == {}
    found = _findings(state(quorum_in_use={1: {line: right}, 4: {line: "1@c1:9093,3@c3:9093"}}))
    (one,) = found.values()
    assert (one.code, one.subject, one.severity) == ("VOTERS-IN-USE-DIFFER", "node 4", Severity.WARNING)
    assert "Node 4 runs with the voters 1, 3. Those of the quorum are 1, 2, 3" in one.sentence


def test_the_remedy_of_a_missing_replica_depends_on_its_broker() -> None:
    def remedy(unfenced: set[int], **other: object) -> str:
        lacking = partition("orders", 0, [4, 5, 6], isr=[4], **other)
        registered = RegisteredNodes(
            brokers=frozenset({4, 5, 6}), fenced=frozenset({4, 5, 6} - unfenced), controllers=None
        )
        found = _findings(state(partitions=(lacking,), registered=registered))
        (one,) = [one for (code, _), one in found.items() if code in ("UNDER-REPLICATED", "UNDER-MIN-ISR")]
        return one.remedy

    running = remedy({4, 5, 6}, min_isr=1)
    assert running.startswith("Brokers 5, 6 serve: wait until the replicas have caught up.")
    assert "REPLICATION-THROTTLED" in running
    assert "tart " not in running
    assert remedy({4}, min_isr=1).startswith("Start brokers 5, 6.")
    both = remedy({4, 5}, min_isr=2)
    assert both.startswith("Start broker 6. Broker 5 serves: wait")
    assert both.endswith("Or accept for this run that the topic is unavailable (accept_unavailable).")


def test_a_controller_that_observes_is_said_and_blocks_nothing() -> None:
    spec = cluster(controllers=[1, 2, 3, 9], brokers=[4, 5, 6])
    found = _findings(state(spec, quorum=quorum([1, 2, 3], 3, [9, 4, 5, 6])), spec)
    assert list(found) == [("CONTROLLER-NOT-VOTER", "controller 9")]
    assert found["CONTROLLER-NOT-VOTER", "controller 9"].severity is Severity.INFO


def test_partitions_that_the_brokers_do_not_show_are_a_blocker() -> None:
    shown = len(state().partitions)
    sees_more = {1: node_state(1, R391, partition_count=shown + 2)}
    (finding,) = (f for key, f in _findings(state(nodes={**state().nodes, **sees_more})).items() if "HIDDEN" in key[0])
    assert finding.severity is Severity.BLOCKER
    assert "the other 2" in finding.sentence
    # 3.4.0's controllers never forget what was deleted while they did not lead.
    counts_deleted = {1: node_state(1, R340, partition_count=shown + 6)}
    (finding,) = (f for k, f in _findings(state(nodes={**state().nodes, **counts_deleted})).items() if "HIDDEN" in k[0])
    assert finding.severity is Severity.WARNING
    assert "also count deleted partitions" in finding.sentence
    both = {**counts_deleted, 2: node_state(2, R391, partition_count=shown)}
    assert "PARTITIONS-HIDDEN" not in {k[0] for k in _findings(state(nodes={**state().nodes, **both}))}
    sees_all = {1: node_state(1, R391, partition_count=shown)}
    assert _findings(state(nodes={**state().nodes, **sees_all})) == {}


def test_where_the_release_lists_neither_fenced_brokers_nor_controllers_a_well_cluster_has_no_findings() -> None:
    registered = RegisteredNodes(brokers=frozenset({4, 5, 6}), fenced=None, controllers=None)
    assert _findings(state(registered=registered)) == {}


def test_nodes_that_only_the_cluster_knows_are_unlisted() -> None:
    registered = RegisteredNodes(
        brokers=frozenset({4, 5, 6, 7}), fenced=frozenset({8}), controllers=frozenset({1, 2, 3, 9})
    )
    seen = state(registered=registered, quorum=quorum([1, 2, 3, 10], 3, [4, 5, 6]))
    assert _blockers(seen) == {
        ("UNLISTED-BROKER", "broker 7"),
        ("UNLISTED-BROKER", "broker 8"),
        ("UNLISTED-CONTROLLER", "controller 9"),
        ("UNLISTED-CONTROLLER", "controller 10"),
    }


def test_the_replicas_of_an_unlisted_broker_are_reassigned_before_its_registration_is_removed() -> None:
    """Kafka removes it from the ISRs then: what only its host has in sync is lost."""
    registered = RegisteredNodes(brokers=frozenset({4, 5, 6, 7}), fenced=frozenset(), controllers=None)
    remedy = _findings(state(registered=registered))["UNLISTED-BROKER", "broker 7"].remedy
    assert 0 < remedy.index("reassign its replicas") < remedy.index("kafka-cluster.sh unregister ")


def test_a_node_that_only_the_inventory_knows_is_unknown() -> None:
    spec = cluster(controllers=[1, 2, 3], brokers=[4, 5, 6, 99])
    seen = state()
    seen = replace(seen, nodes=replace_node(seen, silent(99)), unanswered=("connection refused",))
    assert _blockers(seen, spec) == {("NODE-UNKNOWN", "node 99")}
    other_cluster = replace(seen, nodes=replace_node(seen, node_state(99)), unanswered=())
    assert _blockers(other_cluster, spec) == {("NODE-UNKNOWN", "node 99")}
    never_asked = replace(seen, nodes={i: n for i, n in seen.nodes.items() if i != 99}, unanswered=())
    assert _blockers(never_asked, spec) == {("NODE-UNKNOWN", "node 99")}


def test_a_known_node_that_is_silent_is_down() -> None:
    seen = state(unanswered=("connection refused",))
    seen = replace(seen, nodes=replace_node(seen, silent(6)))
    assert _blockers(seen) == {("NODE-DOWN", "node 6")}
    assert "connection refused" in _findings(seen)["NODE-DOWN", "node 6"].sentence


def test_a_node_that_is_down_has_the_first_error_of_its_log() -> None:
    seen = state()
    dead = replace(silent(6), log_error="Initial heap size set to a larger value than the maximum heap size")
    seen = replace(seen, nodes=replace_node(seen, dead))
    sentence = _findings(seen)["NODE-DOWN", "node 6"].sentence
    assert "Its log shows: Initial heap size set to a larger value than the maximum heap size." in sentence


def test_a_broker_that_only_partitions_name_is_down() -> None:
    """Before 4.0, no list of Kafka has a fenced broker."""
    seen = state()
    without = replace(seen.registered, brokers=seen.registered.brokers - {6}, fenced=None)
    hidden = replace(
        seen,
        registered=without,
        nodes=replace_node(seen, silent(6, "Its address is unknown.")),
        quorum=quorum([1, 2, 3], 3, [4, 5]),
        partitions=(partition("orders", 0, [4, 5, 6], isr=[4, 5]), partition("orders", 1, [5, 4, 6], isr=[4, 5, 6])),
    )
    found = _findings(hidden)["NODE-DOWN", "node 6"]
    assert found.severity is Severity.BLOCKER
    assert found.sentence.endswith(
        "does not respond (Its address is unknown.). It has 2 replicas, of which 1 are out of sync."
    )


def test_a_controller_without_an_address_is_down_unless_the_quorum_shows_its_fetches() -> None:
    spec = replace(SEPARATE, runtime=NO_RUNTIME, nodes=tuple(n for n in SEPARATE.nodes if n.node_id != 2))
    seen = state()
    nodes = {i: node for i, node in seen.nodes.items() if i != 2}
    assert ("NODE-DOWN", "node 2") not in _findings(replace(seen, nodes=nodes), spec)
    assert seen.quorum is not None
    voters = tuple(replace(v, last_fetch_ms=1) if v.replica_id == 2 else v for v in seen.quorum.voters)
    stopped = replace(seen, nodes=nodes, quorum=replace(seen.quorum, voters=voters))
    assert _findings(stopped, spec)["NODE-DOWN", "node 2"].severity is Severity.BLOCKER


def test_a_fenced_broker_is_seen_on_every_release() -> None:
    listed = RegisteredNodes(brokers=frozenset({4, 5, 6}), fenced=frozenset({6}), controllers=None)
    missing = RegisteredNodes(brokers=frozenset({4, 5}), fenced=None, controllers=None)
    for registered in (listed, missing):
        assert _blockers(state(registered=registered)) == {("NODE-FENCED", "node 6")}


def test_an_unknown_release_blocks_and_mixed_releases_inform() -> None:
    seen = state()
    seen = replace(seen, nodes={**seen.nodes, 1: node_state(1, None), 2: node_state(2, Release(3, 0, 0))})
    findings = _findings(seen)
    assert _blockers(seen) == {("RELEASE-UNKNOWN", "node 1"), ("RELEASE-NOT-IN-CATALOGUE", "node 2")}
    assert findings["MIXED-RELEASES", "releases"].severity is Severity.INFO


@pytest.mark.parametrize(
    ("bad", "code", "severity"),
    [
        (partition("t", 0, [4], min_isr=1), "RF-ONE-TOPIC", Severity.BLOCKER),
        (partition("__consumer_offsets", 7, [4], min_isr=1), "RF-ONE-TOPIC", Severity.BLOCKER),
        (partition("t", 0, [4, 5]), "MIN-ISR-EQUALS-RF", Severity.BLOCKER),
        (partition("t", 0, [4, 5], min_isr=3), "MIN-ISR-EQUALS-RF", Severity.BLOCKER),
        (partition("t", 0, [4, 5, 6], isr=[4]), "UNDER-MIN-ISR", Severity.BLOCKER),
        (partition("t", 0, [4, 5, 6], leader=-1), "OFFLINE-PARTITION", Severity.BLOCKER),
        (partition("t", 0, [4, 5, 6], isr=[4, 5]), "UNDER-REPLICATED", Severity.WARNING),
    ],
)
def test_partitions_in_need_are_findings_of_their_topic(bad: PartitionState, code: str, severity: Severity) -> None:
    good = partition("fine", 0, [4, 5, 6])
    findings = _findings(state(partitions=(good, bad)))
    assert {key: f.severity for key, f in findings.items()} == {(code, f"topic {bad.topic}"): severity}
    assert bad.name in next(iter(findings.values())).sentence


@pytest.mark.parametrize("bad", [partition("t", 0, [4, 5]), partition("t", 0, [4, 5, 6], isr=[4])])
def test_a_partition_under_min_isr_stops_consumers_too_and_not_only_producers(bad: PartitionState) -> None:
    (finding,) = _findings(state(partitions=(bad,))).values()
    assert "acks=all fails, and from 3.7.0 on consumers get no new records, whatever their acks" in finding.sentence


@pytest.mark.parametrize(
    ("running", "target", "number"),
    [
        (R391, Release(3, 6, 2), 2),
        (R391, Release(3, 7, 2), 0),
        (Release(3, 6, 2), Release(3, 5, 2), 0),
        (R391, None, 0),
    ],
)
def test_a_release_before_3_7_refuses_what_the_running_one_accepts(
    running: Release, target: Release | None, number: int
) -> None:
    """KAFKA-15583: from 3.7.0 on, acks=all needs no more in-sync replicas than the partition has replicas."""
    single, pair = partition("single", 0, [4], min_isr=2), partition("pair", 0, [4, 5], min_isr=3)
    seen = state(release=running, partitions=(single, pair, partition("fine", 0, [4, 5, 6])))
    codes = [key for key in _findings(seen, target=target) if key[0] == "MIN-ISR-ABOVE-RF"]
    assert len(codes) == number
    if number:
        (accepted,) = (
            f
            for f in _findings(seen, target=target, accept_unavailable=("pair",)).values()
            if f.identity == ("MIN-ISR-ABOVE-RF", "topic pair")
        )
        assert accepted.severity is Severity.WARNING
        assert "Kafka 3.6.2 refuses acks=all" in accepted.sentence


def test_a_restart_that_stops_no_broker_of_a_topic_does_not_touch_it() -> None:
    single, pair = partition("single", 0, [4], min_isr=1), partition("pair", 0, [4, 5], min_isr=2)
    offline = partition("gone", 0, [6, 4, 5], leader=-1)
    seen = state(partitions=(single, pair, offline))
    of_brokers = {("RF-ONE-TOPIC", "topic single"), ("MIN-ISR-EQUALS-RF", "topic pair")}
    dead = {("OFFLINE-PARTITION", "topic gone")}
    assert _blockers(seen, stops={1, 2, 3}) == dead
    assert _blockers(seen, stops={5}) == {("MIN-ISR-EQUALS-RF", "topic pair"), *dead}
    assert _blockers(seen) == _blockers(seen, stops={1, 4}) == {*of_brokers, *dead}


def test_a_topic_whose_unavailability_is_accepted_is_a_warning_that_names_the_pattern() -> None:
    single, offline = partition("tmp-1", 0, [4], min_isr=1), partition("tmp-2", 0, [4, 5, 6], leader=-1)
    seen = state(partitions=(single, offline, partition("kept", 0, [4], min_isr=1)))
    assert _blockers(seen, accept_unavailable=("tmp-*",)) == {("RF-ONE-TOPIC", "topic kept")}
    findings = _findings(seen, accept_unavailable=("tmp-*",))
    for key in (("RF-ONE-TOPIC", "topic tmp-1"), ("OFFLINE-PARTITION", "topic tmp-2")):
        assert findings[key].severity is Severity.WARNING
        assert findings[key].sentence.endswith("This run accepts it (tmp-*).")


def test_a_partition_without_a_replica_on_the_restarted_nodes_does_not_block() -> None:
    elsewhere = replace(partition("old", 0, [77], leader=-1, min_isr=1), isr=(77,))
    findings = _findings(state(partitions=(partition("fine", 0, [4, 5, 6]), elsewhere)))
    assert {key: f.severity for key, f in findings.items()} == {
        ("OFFLINE-PARTITION-ELSEWHERE", "topic old"): Severity.WARNING,
        ("UNLISTED-BROKER", "broker 77"): Severity.WARNING,
    }
    assert "not affect" not in findings["OFFLINE-PARTITION-ELSEWHERE", "topic old"].remedy


def test_a_replica_on_a_broker_that_nothing_else_names_blocks_where_kafka_does_not_list_fenced_brokers() -> None:
    seen = state(partitions=(partition("orders", 0, [4, 5, 77], isr=[4, 5]),))
    before = replace(seen, registered=replace(seen.registered, fenced=None))
    assert _findings(before)["UNLISTED-BROKER", "broker 77"].severity is Severity.BLOCKER
    assert _findings(seen)["UNLISTED-BROKER", "broker 77"].severity is Severity.WARNING


def test_a_topic_is_one_finding_that_counts_its_partitions() -> None:
    many = tuple(partition("big", i, [4], min_isr=1) for i in range(50))
    finding = _findings(state(partitions=many))["RF-ONE-TOPIC", "topic big"]
    assert "50 partitions" in finding.sentence
    assert len(finding.sentence) < 300


def test_a_quorum_that_cannot_spare_a_voter_or_is_unknown_blocks() -> None:
    for controllers in ([1], [1, 2]):
        spec = cluster(controllers=controllers, brokers=[4, 5, 6])
        assert _blockers(state(spec), spec) == {("QUORUM-NO-SPARE", "metadata quorum")}
        assert _blockers(state(spec), spec, accept_unavailable=["__*", "*"]) == {("QUORUM-NO-SPARE", "metadata quorum")}
        assert _blockers(state(spec), spec, accept_unavailable=["__cluster_metadata"]) == set()
        accepted = _findings(state(spec), spec, accept_unavailable=["__cluster_metadata"])
        assert accepted["QUORUM-NO-SPARE", "metadata quorum"].severity is Severity.WARNING
        for stops in ({4}, {4, 5, 6}, set[int]()):
            assert ("QUORUM-NO-SPARE", "metadata quorum") not in _findings(state(spec), spec, stops=stops)
        assert _blockers(state(spec), spec, stops={1, 4}) == {("QUORUM-NO-SPARE", "metadata quorum")}
    for unknown in (None, quorum([1, 2, 3], -1, [4, 5, 6])):
        assert _blockers(state(quorum=unknown)) == {("QUORUM-UNKNOWN", "metadata quorum")}


def test_a_voter_that_lags_warns_and_one_with_an_unknown_offset_blocks() -> None:
    lagging = _findings(state(quorum=quorum([1, 2, 3], 3, [4, 5, 6], n1=900)))
    assert lagging["QUORUM-VOTER-LAGS", "controller 1"].severity is Severity.WARNING
    well = quorum([1, 2, 3], 3, [4, 5, 6])
    lost = replace(well, voters=tuple(replace(v, log_end_offset=-1) if v.replica_id == 1 else v for v in well.voters))
    assert _blockers(state(quorum=lost)) == {("QUORUM-VOTER-LAGS", "controller 1")}


def test_nodes_that_report_different_levels_block_but_one_that_names_none_differs_from_nobody() -> None:
    seen = state()
    seen = replace(seen, nodes=replace_node(seen, node_state(5, finalized={"metadata.version": 20}, epoch=90)))
    findings = _findings(seen)
    assert "node 5: 20" in findings["FEATURES-DIFFER", "feature metadata.version"].sentence
    quiet = replace(seen, nodes=replace_node(seen, node_state(5, finalized={}, epoch=None)))
    assert _findings(quiet) == {}


def test_a_question_that_nobody_answered_blocks() -> None:
    assert _blockers(state(unanswered=("the groups of broker 4",))) == {("UNANSWERED", "the groups of broker 4")}


def _with_old_client(release: Release, count: int = 12, *, name: str = "sarama") -> ClusterState:
    """Each of six nodes counted Produce v2, from 3.7 on with the client."""
    counted = RequestCount(api="Produce", version=2, count=count)
    named = replace(counted, client_name=name, client_version="1.19")
    metrics = {"requests": (*REQUESTS, counted), "deprecated_requests": (named,) if release >= Release(3, 7, 0) else ()}
    return state(nodes={n.node_id: node_state(n.node_id, release, **metrics) for n in SEPARATE.nodes})


def test_old_clients_warn_where_the_target_refuses_them_and_inform_elsewhere() -> None:
    key = ("OLD-CLIENTS", "client sarama 1.19")
    to_four = _findings(_with_old_client(R391), target=R431)[key]
    assert to_four.severity is Severity.WARNING
    assert "Kafka 4.3.1 rejects: Produce v2 (72 times)." in to_four.sentence
    assert _findings(_with_old_client(R391), target=Release(3, 9, 1))[key].severity is Severity.INFO
    assert _findings(_with_old_client(R391, count=0), target=R431) == {}


def test_old_clients_are_those_since_the_last_start_of_a_broker() -> None:
    seen = _with_old_client(R391)
    nodes = {
        node_id: replace(node, process=replace(node.process, started_at=1000.0 * node_id))
        for node_id, node in seen.nodes.items()
    }
    (found,) = _findings(replace(seen, nodes=nodes), target=R431).values()
    assert found.sentence.startswith("Since the brokers started, the last one at 1970-01-01T01:40:00Z, this client")


def test_a_release_that_does_not_report_clients_still_counts_versions_that_the_target_rejects() -> None:
    (found,) = _findings(_with_old_client(R340), target=R431).values()
    assert (found.code, found.severity, found.subject) == ("OLD-CLIENTS", Severity.WARNING, "client unknown unknown")
    assert "Produce v2 (72 times)" in found.sentence
    assert "kafka.request.logger" in found.remedy
    assert _findings(_with_old_client(R340), target=R391) == {}


@pytest.mark.parametrize(("release", "name"), [(R340, "unknown"), (R391, "sarama")])
def test_the_address_of_an_old_client_is_that_of_its_logged_requests(release: Release, name: str) -> None:
    logged = LoggedRequest(
        api="PRODUCE", version=2, client_name=name, client_version="1.19", client_id="orders", address="10.0.0.7"
    )
    others = (
        replace(logged, version=9, address="10.0.0.8"),
        replace(logged, api="FETCH", address="10.0.0.9"),
    )
    seen = replace(_with_old_client(release, name=name), logged_requests=(logged, *others))
    (found,) = _findings(seen, target=R431).values()
    assert "It connects from 10.0.0.7 (client id orders), as lines of the brokers' logs say;" in found.sentence
    assert found.sentence.endswith("another client can have written such a line.")
    assert "logger" not in found.remedy


def test_agents_that_do_not_report_requests_leave_old_clients_unknown() -> None:
    quiet = state(nodes={n.node_id: node_state(n.node_id, R391, requests=()) for n in SEPARATE.nodes})
    (unknown,) = _findings(quiet, target=R431).values()
    assert (unknown.code, unknown.severity) == ("OLD-CLIENTS-UNKNOWN", Severity.WARNING)
    assert "The metrics of nodes 4, 5, 6 do not" in unknown.sentence
    assert _findings(quiet, target=R391) == {}
    assert _findings(state(release=R391), target=R431) == {}


def _exported(**metrics: object) -> ClusterState:
    """Return a cluster whose release is that of the jars, with these metrics and no release in them."""
    seen = state(nodes={n.node_id: node_state(n.node_id, None, **metrics) for n in SEPARATE.nodes})
    processes = {i: replace(n, process=replace(n.process, running=R391)) for i, n in seen.nodes.items()}
    return replace(seen, nodes=processes)


def test_metrics_without_the_release_miss_the_release_and_nothing_else() -> None:
    (found,) = _findings(_exported(), target=R431).values()
    assert (found.code, found.subject, found.severity) == ("METRICS-MISSING", "release", Severity.INFO)
    assert "clients" not in found.sentence


def test_old_clients_are_unknown_without_requests_whether_or_not_the_release_is_exported() -> None:
    found = _findings(_exported(requests=()), target=R431)
    assert ("OLD-CLIENTS-UNKNOWN", "metrics agents") in found


def test_an_old_request_is_found_under_a_name_in_lower_case() -> None:
    requests = (RequestCount(api="fetch", version=0, count=3), RequestCount(api="metadata", version=12, count=1))
    found = _findings(_exported(requests=requests), target=R431)
    assert "fetch v0 (18 times)" in found["OLD-CLIENTS", "client unknown unknown"].sentence


def test_a_node_without_any_metric_misses_all_of_them() -> None:
    seen = _exported()
    silent_agents = {i: replace(n, metrics=NodeMetrics()) for i, n in seen.nodes.items()}
    found = _findings(replace(seen, nodes=silent_agents), target=R431)["METRICS-MISSING", "metrics agents"]
    assert found.severity is Severity.WARNING
    assert "clients (KIP-896) are not observable" in found.sentence


def test_the_reason_is_named_why_an_agent_reports_no_values() -> None:
    seen, why = _exported(), "No metrics agent of node kafka-1 responds (prometheus: status 401)."
    refused = {i: replace(n, metrics=None, problem=why) for i, n in seen.nodes.items()}
    found = _findings(replace(seen, nodes=refused), target=R431)["METRICS-MISSING", "metrics agents"]
    assert found.sentence.endswith(f"there. {why}")


def test_a_metric_that_an_agent_cannot_read_is_named_also_if_the_agent_reads_no_other_one() -> None:
    seen = _exported()
    forbidden = NodeMetrics(unreadable=("jolokia: java: java.lang:type=Runtime has response status 403",))
    found = _findings(replace(seen, nodes={i: replace(n, metrics=forbidden) for i, n in seen.nodes.items()}))
    assert {("METRICS-MISSING", "metrics agents"), ("METRICS-MISSING", "unreadable values")} <= found.keys()
    assert found["METRICS-MISSING", "unreadable values"].sentence == (
        "Agents of nodes 1, 2, 3, 4, 5, 6 do not report these metrics, or with a value that they cannot have: "
        "jolokia: java: java.lang:type=Runtime has response status 403."
    )


def test_an_agent_of_the_inventory_that_does_not_respond_is_named_before_a_gate_waits_for_it() -> None:
    seen = _exported()
    one_silent = {
        i: replace(n, metrics=replace(n.metrics, unanswered={"prometheus": "status 401"}))
        for i, n in seen.nodes.items()
        if n.metrics is not None
    }
    found = _findings(replace(seen, nodes={**seen.nodes, **one_silent}))
    assert found["METRICS-MISSING", "agents without a response"].sentence == (
        "The inventory lists agents that do not respond (prometheus of nodes 1, 2, 3, 4, 5, 6: status 401). After "
        "levels are raised, the gate metadata-version waits for them until it fails."
    )
    assert ("METRICS-MISSING", "agents without a response") not in _findings(seen)


def test_clients_groups_and_transactions_are_shown() -> None:
    clients = (ClientSoftware(name="librdkafka", version="2.16", connections=2),)
    nodes = {n.node_id: node_state(n.node_id, clients=clients) for n in SEPARATE.nodes}
    groups = tuple(
        GroupState(group_id=str(i), type=kind, state="Stable") for i, kind in enumerate(["classic", "share"])
    )
    transactions = (TransactionState(transactional_id="t", state="Ongoing", producer_id=1),)
    findings = _findings(state(nodes=nodes, groups=groups, transactions=transactions))
    assert {code for code, _ in findings} == {"CLIENTS", "GROUP-TYPES", "TRANSACTIONS"}
    assert "librdkafka 2.16 (12 connections)" in findings["CLIENTS", "cluster orders"].sentence
    assert "1 classic, 1 share" in findings["GROUP-TYPES", "cluster orders"].sentence


GHOST = frozenset({1, 2, 3, 9})


def ghost(levels: dict[str, VersionRange] | None, finalized: int = 21, target: Release = R431) -> Finding:
    """The finding about controller 9, which registered with these levels (None: unknown)."""
    registered = {} if levels is None else {9: levels}
    nodes = {i: node_state(i, R391, finalized={"metadata.version": finalized}) for i in range(1, 7)}
    seen = replace(state(nodes=nodes), registered_levels=registered)
    seen = replace(seen, registered=replace(seen.registered, controllers=GHOST))
    (found,) = [f for f in _findings(seen, target=target).values() if f.code == "UNLISTED-CONTROLLER"]
    return found


def test_a_controller_that_registered_on_an_old_release_blocks_finalizing() -> None:
    found = ghost({"metadata.version": VersionRange(1, 21)})
    assert found.severity is Severity.BLOCKER
    assert "It does not support group.version 1, metadata.version 30, " in found.sentence
    assert "start a controller with node.id 9 on Kafka 4.3.1, so that it registers again" in found.remedy
    assert "remove-controller" not in found.remedy, "removes voters"
    assert "kafka-cluster.sh unregister " not in found.remedy, "removes brokers"
    assert ghost(None).severity is Severity.BLOCKER
    assert "Its supported levels are unknown." in ghost(None).sentence


def test_a_controller_that_registered_again_on_the_target_blocks_nothing() -> None:
    levels = {feature: known.supported for feature, known in catalogue().get(R431).features.items()}
    found = ghost(levels)
    assert found.severity is Severity.WARNING
    assert "supports the levels of Kafka 4.3.1" in found.sentence
    assert "no action is needed" in found.remedy


def test_from_level_33_on_a_command_removes_the_registration() -> None:
    for levels in (None, {"metadata.version": VersionRange(1, 21)}):
        found = ghost(levels, finalized=33)
        assert found.severity is Severity.BLOCKER
        assert "kafka-cluster.sh unregister-controller --bootstrap-server" in found.remedy
        assert found.remedy.endswith("--id 9).")


@pytest.mark.parametrize(
    ("kraft", "remedy"),
    [(0, "start a controller with node.id 9 at the address that controller.quorum.voters"), (1, "remove-controller")],
)
def test_a_voter_that_is_not_in_the_inventory_is_removed_as_a_voter_first(kraft: int, remedy: str) -> None:
    nodes = {i: node_state(i, R391, finalized={"metadata.version": 21, "kraft.version": kraft}) for i in range(1, 7)}
    voting = quorum((1, 2, 3, 9), leader=1)
    seen = replace(state(nodes=nodes), quorum=dynamic(voting) if kraft else voting)
    found = _findings(seen)["UNLISTED-CONTROLLER", "controller 9"]
    assert "It is a voter of the quorum" in found.sentence
    assert remedy in found.remedy
