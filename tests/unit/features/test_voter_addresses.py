"""The addresses that voters get with kraft.version 1 are those that the nodes use already, or the change is blocked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kafka_rollout.base.findings import Finding
from kafka_rollout.features.requests import parse_requests
from kafka_rollout.features.rules import check_requests
from kafka_rollout.model.quorum_addresses import QUORUM_BOOTSTRAP, QUORUM_VOTERS, Address
from kafka_rollout.model.state import ClusterState
from tests.unit.builders import SEPARATE, catalogue, dynamic
from tests.unit.features.test_requests import on_431

VOTERS = "1@c1:9093,2@c2:9093,3@C3.:9093"
REGISTERED = {1: Address("c1", 9093), 2: Address("c2", 9093), 3: Address("c3", 9093)}


def seen(
    registered: Mapping[int, Address] = REGISTERED, used: Mapping[int, str] = dict.fromkeys(range(1, 7), VOTERS)
) -> ClusterState:
    """A static quorum. `used`: node → controller.quorum.voters of its process."""
    state = on_431()
    return replace(
        state,
        registered=replace(state.registered, controller_addresses=registered),
        quorum_in_use={node_id: {QUORUM_VOTERS: voters} for node_id, voters in used.items()},
    )


def blocked(state: ClusterState) -> dict[str, str]:
    verdict = check_requests(SEPARATE, catalogue(), state, parse_requests(["kraft.version:1"]))
    return {one.subject: one.sentence for one in verdict.blockers if one.code == "VOTER-ADDRESS-CHANGES"}


def test_addresses_that_the_nodes_use_already_do_not_block() -> None:
    assert blocked(seen()) == {}


@pytest.mark.parametrize("other", [Address("controllers.example.com", 9093), Address("c2", 9193), Address("c1", 9093)])
def test_a_registered_address_that_no_node_uses_blocks(other: Address) -> None:
    (sentence,) = blocked(seen({**REGISTERED, 2: other})).values()
    assert sentence.startswith(f"Controller 2 has registered {other}, and the nodes reach it at c2:9093 (")


def test_one_node_that_uses_another_address_blocks() -> None:
    used = {**dict.fromkeys(range(1, 6), VOTERS), 6: VOTERS.replace("1@c1", "1@10.0.0.1")}
    assert list(blocked(seen(used=used))) == ["controller 1"]


def test_what_is_unknown_blocks() -> None:
    assert "did not show" in blocked(seen({1: REGISTERED[1], 2: REGISTERED[2]}))["controller 3"]
    assert {"controller 1", "controller 2", "controller 3"} <= blocked(seen(used={})).keys()


def test_a_node_that_did_not_report_what_it_uses_blocks() -> None:
    """It can reach a controller at another address than the others."""
    assert list(blocked(seen(used=dict.fromkeys((1, 2, 3, 5), VOTERS)))) == ["nodes 4, 6"]
    bootstrap = seen()
    in_use = {**bootstrap.quorum_in_use, 6: {QUORUM_BOOTSTRAP: "c1:9093"}}
    assert blocked(replace(bootstrap, quorum_in_use=in_use)) == {}


def found(state: ClusterState) -> dict[str, Finding]:
    verdict = check_requests(SEPARATE, catalogue(), state, parse_requests(["kraft.version:1"]))
    return {f"{one.code} {one.subject}": one for one in verdict.findings}


def test_the_plan_names_which_address_each_voter_gets() -> None:
    other = found(seen({**REGISTERED, 2: Address("10.0.0.2", 9093)}))
    assert "controller 1 c1:9093, controller 2 10.0.0.2:9093" in other["VOTER-ADDRESSES controllers"].sentence
    lacking = found(seen({1: REGISTERED[1], 2: REGISTERED[2]}))
    assert "controller 3 unknown" in lacking["VOTER-ADDRESSES controllers"].sentence


def test_a_name_and_an_ip_address_of_one_host_have_a_way_out_without_a_change_of_the_other_nodes() -> None:
    used = dict.fromkeys(range(1, 7), VOTERS.replace("1@c1", "1@10.0.0.1"))
    remedy = found(seen(used=used))["VOTER-ADDRESS-CHANGES controller 1"].remedy
    assert "`advertised.listeners` of controller 1 to 10.0.0.1:9093, and restart this controller" in remedy


def test_each_blocked_address_has_a_remedy() -> None:
    used = {**dict.fromkeys(range(1, 6), VOTERS), 6: VOTERS.replace("1@c1", "1@10.0.0.1")}
    for state in (seen(used=used), seen({1: REGISTERED[1], 2: REGISTERED[2]}), seen(used={})):
        assert all(one.remedy for one in found(state).values())


def test_a_dynamic_quorum_uses_the_registered_addresses_already() -> None:
    state = seen({}, {})
    assert state.quorum is not None
    assert blocked(replace(state, quorum=dynamic(state.quorum))) == {}
