"""Values that must agree between nodes: a wrong line in one file is named before its node starts with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.model.host_state import DirectoryIdentity
from kafka_rollout.model.quorum_addresses import Address, parse_address
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.findings.agreement import BETWEEN_NODES, PER_NODE, NextStart, agreement_findings
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from tests.fakes.cluster import INCLUDE
from tests.unit.builders import cluster, dynamic, node_state, quorum, state

VOTERS = "controller.quorum.voters"
RIGHT = "1@kafka1:9093,2@kafka2:9093,3@kafka3:9093"


def _spec(**ports: int) -> ClusterSpec:
    spec = cluster(controllers=[1, 2, 3], brokers=[4, 5])
    return replace(
        spec,
        nodes=tuple(
            replace(node, controller_address=f"kafka{node.node_id}:{ports.get(f'n{node.node_id}', 9093)}")
            if node.is_controller
            else replace(node, broker_address=f"kafka{node.node_id}:9092")
            for node in spec.nodes
        ),
    )


SPEC = _spec()
_LEVELS = {"metadata.version": 21, "kraft.version": 1}
# A controller before 4.1 writes the level on request, and the quorum stays static.
WRITTEN = state(SPEC, nodes={node.node_id: node_state(node.node_id, finalized=_LEVELS) for node in SPEC.nodes})
assert WRITTEN.quorum is not None
DYNAMIC = replace(
    WRITTEN,
    quorum=replace(
        dynamic(WRITTEN.quorum), voter_addresses={voter: (Address(f"kafka{voter}", 9093),) for voter in (1, 2, 3)}
    ),
)


def _with_addresses(**addresses: str) -> ClusterState:
    """A dynamic quorum. `n3`: of voter 3; "" for one that the quorum did not show."""
    assert DYNAMIC.quorum is not None
    changed = {int(name[1:]): tuple(filter(None, (parse_address(one),))) for name, one in addresses.items()}
    of_voters = {**DYNAMIC.quorum.voter_addresses, **changed}
    return replace(DYNAMIC, quorum=replace(DYNAMIC.quorum, voter_addresses=of_voters))


def _configs(**changed: Mapping[str, str] | str) -> dict[int, dict[str, str]]:
    """The files of five nodes; `n3`: the voters of node 3, or other lines of it."""
    configs: dict[int, dict[str, str]] = {}
    for node in SPEC.nodes:
        role = "controller" if node.is_controller else "broker"
        listener = "CONTROLLER://:9093" if node.is_controller else "PLAINTEXT://:9092"
        configs[node.node_id] = {
            "node.id": str(node.node_id),
            "process.roles": role,
            "listeners": listener,
            "controller.listener.names": "CONTROLLER",
            VOTERS: RIGHT,
        }
        own = changed.get(f"n{node.node_id}", {})
        configs[node.node_id] |= {VOTERS: own} if isinstance(own, str) else own
    return configs


def _found(configs: dict[int, dict[str, str]], **other: Any) -> list[Finding]:
    seen: ClusterState = other.pop("state", state(SPEC))
    found = agreement_findings(NextStart(**{"cluster": SPEC, "state": seen, "configs": configs, **other}))
    assert len({one.identity for one in found}) == len(found)
    assert all(one.sentence.endswith(".") and one.remedy.endswith(".") for one in found)
    return list(found)


def _told(configs: dict[int, dict[str, str]], **other: Any) -> list[tuple[str, str, Severity]]:
    return [(one.code, one.subject, one.severity) for one in _found(configs, **other)]


@pytest.mark.parametrize("seen", [state(SPEC), WRITTEN], ids=["kraft.version 0", "kraft.version 1 without its voters"])
def test_a_quorum_whose_voters_have_no_directories_is_static(seen: ClusterState) -> None:
    bootstrap = {"controller.quorum.bootstrap.servers": "kafka1:9093", VOTERS: ""}
    told = [code for code, subject, _ in _told(_configs(n3=bootstrap), state=seen) if subject == "node 3"]
    assert told == ["QUORUM-VOTERS-MISSING"]
    assert _told(_configs(n3=bootstrap), state=DYNAMIC) == []


def test_files_that_agree_with_each_other_and_with_the_quorum_have_no_finding() -> None:
    assert _told(_configs()) == []
    assert _told({node_id: {} for node_id in (1, 2, 3)}) == [], "an unknown file has a finding of its own"


@pytest.mark.parametrize("node_id", [3, 4], ids=["a controller", "a broker"])
@pytest.mark.parametrize("voters", ["3@kafka3:9093", "1@kafka1:9093,3@kafka3:9093", f"{RIGHT},9@kafka9:9093"])
def test_a_file_with_other_voters_than_the_running_quorum_is_a_blocker(node_id: int, voters: str) -> None:
    (found, *more) = _found(_configs(**{f"n{node_id}": voters}))
    assert (found.code, found.severity) == ("VOTERS-DIFFER", Severity.BLOCKER)
    assert found.subject == f"{VOTERS} of node {node_id}"
    assert "The voters of the running quorum are 1, 2, 3, by its leader 3." in found.sentence
    assert [one.code for one in more if one.severity is Severity.BLOCKER] == []


def test_the_files_are_compared_with_each_other_where_the_quorum_cannot_be_read() -> None:
    (found,) = _found(_configs(n3="3@kafka3:9093"), state=state(SPEC, quorum=None))
    assert found.code == "VOTERS-DIFFER"
    assert "nodes 1, 2, 4, 5: 1, 2, 3; node 3: 3" in found.sentence
    assert _told(_configs(), state=state(SPEC, quorum=None)) == []


def test_a_leader_that_counts_by_a_wrong_file_does_not_make_it_right() -> None:
    wrong = state(SPEC, quorum=quorum([3], 3, [1, 2, 4, 5]))
    (found,) = _found(_configs(n3="3@kafka3:9093"), state=wrong)
    assert (found.code, found.subject) == ("VOTERS-DIFFER", f"{VOTERS} of nodes 1, 2, 4, 5")


def test_voters_in_files_do_not_count_in_a_dynamic_quorum() -> None:
    assert _told(_configs(n3="3@kafka3:20398"), state=DYNAMIC) == []


@pytest.mark.parametrize(
    ("voters", "severity", "sentence"),
    [
        ("1@kafka1:9093,2@kafka2:20398,3@kafka3:9093", "warning", "its address is kafka2:9093"),
        ("1@kafka2:9093,2@kafka2:9093,3@kafka3:9093", "blocker", "kafka2:9093 for controller 1. Controller 2 listens"),
        ("1@kafka1:9093,2@kafka-2:9093,3@kafka3:9093", "warning", "kafka-2:9093 for controller 2"),
        ("1@KAFKA1:9093,2@kafka2.:9093,3@localhost:9093", "", ""),
    ],
    ids=["another port", "another controller", "an unknown name", "the same meaning"],
)
def test_an_address_is_compared_with_that_at_which_the_controller_listens(
    voters: str, severity: str, sentence: str
) -> None:
    found = _found(_configs(n3=voters))
    assert [one.severity.value for one in found] == ([severity] if severity else [])
    assert all(one.code == "CONTROLLER-ADDRESS-DIFFERS" and sentence in one.sentence for one in found)


def test_an_address_is_wrong_where_another_controller_listens_and_nowhere_else() -> None:
    """A mapped port or an alias can lead to the right controller: only a resolver knows."""
    mapped = _told(_configs(n5=RIGHT.replace("kafka2:9093", "nat.example:29093")))
    assert [(code, severity) for code, _, severity in mapped] == [("CONTROLLER-ADDRESS-DIFFERS", Severity.WARNING)]
    (found,) = _found(_configs(n5=RIGHT.replace("kafka2:9093", "nat.example:29093")))
    assert "kafka2:9093" in found.sentence
    assert "Compare nat.example:29093" in found.remedy
    behind = "1@nat.example:19093,2@nat.example:29093,3@nat.example:39093"
    swapped = "1@nat.example:29093,2@nat.example:19093,3@nat.example:39093"
    told = _told(_configs(n1=behind, n2=behind, n3=behind, n4=behind, n5=swapped))
    wrong = [subject for _, subject, severity in told if severity is Severity.BLOCKER]
    assert wrong == ["controller 1 in the file of node 5", "controller 2 in the file of node 5"]


def test_the_port_of_another_controller_on_the_same_machine_is_wrong() -> None:
    spec = replace(SPEC, nodes=tuple(replace(node, controller_address=None) for node in SPEC.nodes))
    here = "1@127.0.0.1:9093,2@127.0.0.1:9094,3@127.0.0.1:9095"
    own = {f"n{number}": {"listeners": f"CONTROLLER://:{9092 + number}", VOTERS: here} for number in (1, 2, 3)}
    assert _told(_configs(**own, n4=here, n5=here), cluster=spec) == []
    (found,) = _found(_configs(**own, n4=here, n5=here.replace("1@127.0.0.1:9093", "1@127.0.0.1:9095")), cluster=spec)
    assert (found.severity, found.subject) == (Severity.BLOCKER, "controller 1 in the file of node 5")
    assert "Controller 3 listens there." in found.sentence


def test_a_node_alone_whose_address_is_mapped_is_not_refused() -> None:
    spec = cluster(controllers=[1], brokers=[1])
    lines = {"listeners": "CONTROLLER://:9093,PLAINTEXT://:9092", "controller.listener.names": "CONTROLLER"}
    configs = {1: {**lines, VOTERS: "1@kafka.example:19093"}}
    told = _told(configs, cluster=spec, state=state(spec, quorum=quorum([1], 1, [])))
    assert {severity for _, _, severity in told} == {Severity.WARNING}


def test_a_name_that_every_file_has_is_right_although_the_inventory_has_another() -> None:
    other = {node_id: lines | {VOTERS: RIGHT.replace("kafka", "10.0.0.")} for node_id, lines in _configs().items()}
    assert _told(other) == []
    mapped = {node_id: lines | {VOTERS: RIGHT.replace("9093", "19093")} for node_id, lines in _configs().items()}
    assert {one[2] for one in _told(mapped)} == {Severity.WARNING}, "a mapped port, or all files are wrong together"


def test_a_node_needs_the_address_of_one_controller_to_find_the_quorum() -> None:
    setting = "controller.quorum.bootstrap.servers"
    others = {f"n{number}": {setting: "kafka1:9093,kafka2:9093"} for number in (1, 2, 3, 4)}
    assert _told(_configs(**others, n5={setting: "kafka1:9093,gone:9093"})) == []
    (found,) = _found(_configs(**others, n5={setting: "other:1234"}))
    assert (found.code, found.severity, found.subject) == (
        "CONTROLLER-ADDRESS-DIFFERS",
        Severity.BLOCKER,
        f"{setting} of node 5",
    )
    in_use = {5: {setting: "other:1234"}}
    (found,) = _found(_configs(**others, n5={setting: "other:1234"}), state=state(SPEC, quorum_in_use=in_use))
    assert found.severity is Severity.WARNING, "a load balancer of its zone: its process has found the quorum with it"
    assert "its process uses it now" in found.sentence
    (found,) = _found(_configs(**others, n5={setting: "other:1234"}), state=state(SPEC, quorum_in_use={5: {}}))
    assert found.severity is Severity.BLOCKER, "a new line"
    in_use = {5: {setting: "other:1, zone:2"}}
    (found,) = _found(_configs(**others, n5={setting: "zone:2,OTHER:1"}), state=state(SPEC, quorum_in_use=in_use))
    assert found.severity is Severity.WARNING, "the same addresses"
    balanced = {f"n{number}": {setting: "quorum.example:443"} for number in (1, 2, 3, 4, 5)}
    assert _told(_configs(**balanced)) == [], "the name of a load balancer, that every file has"


def test_a_static_quorum_needs_the_voters_in_every_file() -> None:
    setting = "controller.quorum.bootstrap.servers"
    (found,) = _found(_configs(n4={setting: "kafka1:9093", VOTERS: ""}))
    assert (found.code, found.subject) == ("QUORUM-VOTERS-MISSING", "node 4")


def test_the_listener_of_the_controllers_has_the_same_name_on_all_nodes() -> None:
    (found,) = _found(_configs(n5={"controller.listener.names": "CTL"}), state=DYNAMIC)
    assert (found.code, found.severity, found.subject) == (
        "CONTROLLER-LISTENERS-DIFFER",
        Severity.BLOCKER,
        "listener CTL",
    )
    assert "of node 5 begins with CTL, which the files of controllers 1, 2, 3 do not have" in found.sentence
    two = {"controller.listener.names": "CONTROLLER,CTL", "listeners": "CONTROLLER://:9093,CTL://:9095"}
    assert _told(_configs(n1=two, n2=two, n3=two, n5={"controller.listener.names": "ctl"}), state=DYNAMIC) == []


def test_a_broker_of_a_static_quorum_can_give_the_controllers_a_name_of_its_own() -> None:
    """It pairs its own name with the addresses of its own voters, and no controller sends it names of listeners."""
    assert _told(_configs(n5={"controller.listener.names": "CTL"})) == []
    own = {"controller.listener.names": "CTL", "listeners": "CTL://:9093"}
    assert [one[:2] for one in _told(_configs(n3=own))] == [
        ("CONTROLLER-LISTENERS-DIFFER", "listener CONTROLLER"),
        ("CONTROLLER-LISTENERS-DIFFER", "listener CTL"),
    ], "the leader sends its addresses to the other voters by name"


def test_a_broker_replicates_through_a_listener_that_the_others_have() -> None:
    own = {"listeners": "PLAINTEXT://:9092,INTERNAL://:9094", "inter.broker.listener.name": "INTERNAL"}
    (found,) = _found(_configs(n4=own))
    assert (found.code, found.severity) == ("INTER-BROKER-LISTENERS-DIFFER", Severity.BLOCKER)
    assert "The inter-broker listener of node 4 is INTERNAL, which the files of brokers 5 do not have" in found.sentence
    assert _told(_configs(n4=own, n5={"listeners": own["listeners"]})) == []


_SECURED = {"authorizer.class.name": "a.StandardAuthorizer", "super.users": "User:a;User:b"}


def _secured(**changed: Mapping[str, str]) -> dict[int, dict[str, str]]:
    return {node_id: lines | _SECURED | changed.get(f"n{node_id}", {}) for node_id, lines in _configs().items()}


@pytest.mark.parametrize("node_id", [3, 4], ids=["a controller", "a broker"])
def test_a_node_without_the_authorizer_of_the_others_is_a_blocker(node_id: int) -> None:
    (found,) = _found(_secured(**{f"n{node_id}": {"authorizer.class.name": " "}}))
    assert (found.code, found.severity, found.subject) == (
        "AUTHORIZERS-DIFFER",
        Severity.BLOCKER,
        f"authorizer.class.name of node {node_id}",
    )
    assert f"After a restart, node {node_id} serves every client" in found.sentence
    assert _told(_secured(n4={"authorizer.class.name": "${env:CLASS}"})) == [], "unknown, with a finding of its own"


def test_an_authorizer_of_the_brokers_alone_is_a_warning_for_each_controller() -> None:
    without = {"authorizer.class.name": ""}
    found = _found(_secured(n1=without, n2=without, n3=without))
    assert {(one.code, one.severity) for one in found} == {("AUTHORIZERS-DIFFER", Severity.WARNING)}
    assert len(found) == 3


@pytest.mark.parametrize(
    ("name", "line", "same"),
    [
        ("authorizer.class.name", "com.example.Other", "a.StandardAuthorizer "),
        ("super.users", "User:a;User:b;User:mallory", " User:b ; User:a;"),
        ("allow.everyone.if.no.acl.found", "TRUE", "false"),
        ("early.start.listeners", "PLAINTEXT", ""),
        ("ssl.principal.mapping.rules", "RULE:^CN=(.*?),.*$/$1/,DEFAULT", " DEFAULT"),
        ("sasl.kerberos.principal.to.local.rules", "RULE:[1:$1]", "DEFAULT"),
        (
            "principal.builder.class",
            "com.example.Builder",
            "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        ),
    ],
)
def test_what_the_authorizers_decide_by_is_compared_between_nodes(name: str, line: str, same: str) -> None:
    (found,) = _found(_secured(n5={name: line}))
    assert (found.code, found.severity, found.subject) == ("AUTHORIZERS-DIFFER", Severity.WARNING, name)
    assert f"node 5: {line}" in found.sentence
    assert _told(_secured(n5={name: same})) == []
    assert _told(_secured(n5={name: "${env:X}"})) == []


def test_early_listeners_are_those_of_brokers_or_of_controllers() -> None:
    early = {f"n{node_id}": {"early.start.listeners": "CONTROLLER"} for node_id in (1, 2, 3)}
    assert _told(_secured(**early)) == []


def test_without_an_authorizer_its_settings_have_no_meaning() -> None:
    assert _told(_configs(n4={"super.users": "User:a", "allow.everyone.if.no.acl.found": "true"})) == []


KEY, OLD_KEY = "delegation.token.secret.key", "delegation.token.master.key"


def _with_keys(**keys: str) -> dict[int, dict[str, str]]:
    """`n3`: of node 3; the others have the key `one-secret`."""
    return _configs(**{f"n{number}": {KEY: keys.get(f"n{number}", "one-secret")} for number in range(1, 6)})


def test_a_broker_with_another_key_of_delegation_tokens_is_a_blocker_that_shows_no_key() -> None:
    (found,) = _found(_with_keys(n5="other-secret"))
    assert (found.code, found.severity, found.subject) == ("TOKEN-KEYS-DIFFER", Severity.BLOCKER, KEY)
    assert "differs: nodes 1, 2, 3, 4; node 5" in found.sentence
    assert "secret" not in str(found).replace(KEY, "")
    assert _told(_with_keys(n5=" one-secret ")) == []
    assert _told(_with_keys(n5="${file:/etc/kafka/secret:key}")) == [], "unknown"
    assert _told(_configs()) == [], "tokens are not used"


def test_a_node_without_the_key_of_delegation_tokens_is_a_warning() -> None:
    (found,) = _found(_with_keys(n1="", n2=""))
    assert (found.code, found.severity, found.subject) == (
        "TOKEN-KEYS-DIFFER",
        Severity.WARNING,
        f"{KEY} of nodes 1, 2",
    )
    assert found.sentence.startswith(f"Nodes 1, 2 have no {KEY}, and other nodes have one.")


def test_the_older_name_of_the_key_counts_on_a_release_that_has_it_and_without_the_newer_one() -> None:
    releases = load_catalogue(INCLUDE)
    before, after = (releases.get(Release.parse(one)) for one in ("3.9.1", "4.0.1"))
    configs = _with_keys()
    configs[4] = {**configs[4], KEY: "", OLD_KEY: "one-secret"}
    configs[5] = {**configs[5], OLD_KEY: "other-secret"}
    assert _told(configs, facts=before) == []
    assert _told(configs, facts=after) == [("TOKEN-KEYS-DIFFER", f"{KEY} of node 4", Severity.WARNING)]
    configs[4][OLD_KEY] = "third-secret"
    assert _told(configs, facts=before) == [("TOKEN-KEYS-DIFFER", KEY, Severity.BLOCKER)]


def test_brokers_serve_the_same_protocols_of_groups() -> None:
    name, facts = "group.coordinator.rebalance.protocols", load_catalogue(INCLUDE).get(Release.parse("4.3.1"))
    (found,) = _found(_configs(n5={name: "classic"}), facts=facts)
    assert (found.code, found.severity, found.subject) == ("GROUP-PROTOCOLS-DIFFER", Severity.WARNING, name)
    assert "node 4: classic,consumer,streams; node 5: classic" in found.sentence
    assert _told(_configs(n5={name: "Streams, consumer,classic"}), facts=facts) == [], "the default"
    assert _told(_configs(n1={name: "classic"}), facts=facts) == [], "a controller coordinates no groups"
    assert _told(_configs(n5={name: "${env:X}"}), facts=facts) == []
    older = load_catalogue(INCLUDE).get(Release.parse("3.6.2"))
    assert _told(_configs(n5={name: "consumer"}), facts=older) == [], "no setting of this release"


@pytest.mark.parametrize("written", ["04", "+4", " 4 "])
def test_a_node_id_is_the_number_that_java_reads(written: str) -> None:
    assert _told(_configs(n4={"node.id": written})) == []


def test_node_id_and_roles_are_those_of_the_inventory() -> None:
    configs = _configs(n4={"node.id": "5"}, n5={"process.roles": "controller,broker"}, n1={"node.id": "${env:ID}"})
    assert [one[:2] for one in _told(configs)] == [
        ("NODE-DIFFERS", "node.id of node-4"),
        ("NODE-DIFFERS", "process.roles of node-5"),
    ]


def test_directories_have_the_id_of_the_cluster_and_one_of_their_own() -> None:
    def directory(path: str, **ids: str) -> DirectoryIdentity:
        return DirectoryIdentity(path=path, cluster_id=ids.get("cluster", "abc"), directory_id=ids.get("own", path))

    good = {4: (directory("/a"), directory("/b")), 5: (directory("/c"), DirectoryIdentity(path="/older"))}
    assert _told(_configs(), directories=good) == []
    copied = {4: (directory("/a"), directory("/b")), 5: (directory("/x", own="/b"), directory("/y", cluster="other"))}
    assert _told(_configs(), directories=copied) == [
        ("CLUSTER-ID-DIFFERS", "/y of node 5", Severity.BLOCKER),
        ("DIRECTORY-ID-TWICE", "directory.id /b", Severity.BLOCKER),
    ]


def test_the_directory_on_disk_is_the_one_that_has_the_vote() -> None:
    seen = quorum([1, 2, 3], 3, [4, 5])
    voters = tuple(replace(voter, directory_id=f"id-{voter.replica_id}") for voter in seen.voters)
    assert DYNAMIC.quorum is not None
    addresses = DYNAMIC.quorum.voter_addresses
    dynamic = state(SPEC, quorum=replace(seen, voters=voters, voter_addresses=addresses))

    def on_disk(directory_id: str) -> dict[int, tuple[DirectoryIdentity, ...]]:
        return {
            1: (
                DirectoryIdentity(path="/meta", directory_id=directory_id, is_of_metadata=True),
                DirectoryIdentity(path="/data", directory_id="other"),
            )
        }

    assert _told(_configs(), state=dynamic, directories=on_disk("id-1")) == []
    (found,) = _found(_configs(), state=dynamic, directories=on_disk("new"))
    assert (found.code, found.subject, found.severity) == ("VOTER-DIRECTORY-DIFFERS", "controller 1", Severity.BLOCKER)


def test_addresses_are_read_as_kafka_writes_them() -> None:
    assert parse_address(" [FE80::1]:9093 ") == Address("fe80::1", 9093)
    assert str(parse_address("[fe80::1]:9093")) == "[fe80::1]:9093"
    assert parse_address("kafka1") is None


@pytest.mark.parametrize("release", sorted(load_catalogue(INCLUDE)), ids=str)
def test_every_setting_about_other_nodes_is_compared_or_has_a_reason_why_not(release: Any) -> None:
    """A new release can bring one: its author decides here whether nodes must agree about it."""
    words = (
        "authorizer",
        "delegation.token",
        "group.coordinator.new",
        "principal",
        "rebalance.protocols",
        "controller.listener",
        "controller.quorum",
        "inter.broker",
        "listener",
        "node.id",
        "process.roles",
    )
    own = ("remote.log.metadata.manager.listener.name", "control.plane.listener.name", "inter.broker.protocol.version")
    names = {name for name in load_catalogue(INCLUDE).get(release).config_names if any(word in name for word in words)}
    assert names - BETWEEN_NODES.keys() - PER_NODE.keys() - set(own) == set()
    assert not BETWEEN_NODES.keys() & PER_NODE.keys()


def test_the_address_of_a_voter_in_the_log_is_compared_with_those_that_are_proven() -> None:
    assert _told(_configs(), state=DYNAMIC) == []
    other = _with_addresses(n3="controllers.example:9093")
    assert _told(_configs(), state=other) == [("VOTER-ADDRESS-UNCONFIRMED", "controller 3", Severity.WARNING)]
    advertised = {"advertised.listeners": "CONTROLLER://controllers.example:9093"}
    assert _told(_configs(n3=advertised), state=other), "what the controller says of itself is no proof"
    listening = {"listeners": "CONTROLLER://controllers.example:9093"}
    assert _told(_configs(n3=listening), state=other) == []


def test_an_address_that_the_quorum_did_not_show_or_that_two_voters_have_is_said() -> None:
    (unknown,) = _found(_configs(), state=_with_addresses(n2=""))
    assert "did not show" in unknown.sentence
    shared = _with_addresses(n2="kafka1:9093")
    first, second = _found(_configs(), state=shared)
    assert "It is also that of node 2." in first.sentence
    assert "If one of them no longer exists, remove it (kafka-metadata-quorum.sh remove-controller)" in first.remedy
    assert first.remedy == second.remedy
    both = _told(_configs(), state=shared)
    assert both == [("VOTER-ADDRESS-UNCONFIRMED", f"controller {voter}", Severity.BLOCKER) for voter in (1, 2)]
