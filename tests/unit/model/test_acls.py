"""The questions that show what ACLs mean, and what other answers mean for principals."""

from __future__ import annotations

from ipaddress import IPv4Address

from kafka_rollout.model.acls import (
    STRANGER,
    AclAnswers,
    AclQuestion,
    Action,
    compare_answers,
    describe_access,
    questions_of,
)
from kafka_rollout.releases.facts import Release
from tests.acls import read_acl

READ, DESCRIBE, TOPIC = 3, 8, 2
ORDERS = (Action(READ, TOPIC, "orders"), Action(DESCRIBE, TOPIC, "orders"))


def question(principal: str, *acls: object) -> AclQuestion:
    (found,) = (one for one in questions_of(acls) if one.principal == principal)  # type: ignore[arg-type]
    return found


def test_a_range_is_asked_at_its_ends_beside_them_and_far_away() -> None:
    found = question("User:alice", read_acl("User:alice", host="10.0.0.0/8"))
    assert set(found.addresses) == {"9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0", "192.0.2.1"}
    assert found.actions == ORDERS, "READ implies DESCRIBE"


def test_an_address_far_away_is_in_no_range_and_a_host_name_is_no_address() -> None:
    everywhere = question("User:alice", read_acl("User:alice", host="0.0.0.0/0"))
    assert set(everywhere.addresses) == {str(IPv4Address(0)), "255.255.255.255", "2001:db8::1"}
    named = question("User:alice", read_acl("User:alice", host="host.example/24"), read_acl("User:alice", host="::1"))
    assert set(named.addresses) == {"::1", "192.0.2.1"}
    assert question("User:alice", read_acl("User:alice", host="10.0.0.7/99")).addresses == ("10.0.0.7", "192.0.2.1")


def test_a_principal_is_also_asked_where_an_acl_for_everybody_meets_a_pattern_of_its_own() -> None:
    own = read_acl("User:alice", host="10.0.0.0/8", resource_name="pay", pattern_type=4, permission=2)
    common = read_acl("User:*", resource_name="payments")
    other = read_acl("User:*", resource_name="orders")
    asked = {action.resource_name for action in question("User:alice", own, common, other).actions}
    assert asked == {"pay", "paykafka-rollout-probe", "payments"}


def test_a_principal_without_any_acl_is_asked_too() -> None:
    assert question(STRANGER, read_acl("User:alice")).actions == ORDERS
    assert questions_of(()) == ()


def test_all_is_asked_as_each_operation_that_kafka_checks_on_the_resource() -> None:
    found = question("User:alice", read_acl("User:alice", operation=2, resource_type=5))
    assert [action.operation for action in found.actions] == [4, 8, 15]


def test_other_answers_are_told_by_principal_with_the_acls() -> None:
    acls = (read_acl("User:alice"), read_acl("User:alice", host="10.0.0.0/8", permission=2), read_acl("User:bob"))
    asked = AclQuestion("User:alice", ("10.0.0.0", "11.0.0.0"), ORDERS)
    old = AclAnswers(unknown=(), allowed=(((True, True), (True, None)),))
    new = AclAnswers(unknown=(), allowed=(((False, False), (True, True)),))
    (change,) = compare_answers(acls, [asked], old, new)
    assert (change.principal, change.more, set(change.actions)) == ("User:alice", False, set(ORDERS))
    assert describe_access(change, Release(4, 3, 1), Release(4, 4, 0)) == (
        "User:alice loses READ, DESCRIBE on topic orders from 10.0.0.0. Kafka 4.3.1 allows it and Kafka 4.4.0 denies "
        "it, by the ACLs 'allow User:alice READ from * on topic orders', 'deny User:alice READ from 10.0.0.0/8 on "
        "topic orders'."
    )
    assert compare_answers(acls, [asked], old, old) == ()
    stranger = AclQuestion(STRANGER, ("10.0.0.0",), ORDERS[:1])
    (change,) = compare_answers(
        acls,
        [stranger],
        AclAnswers(unknown=(), allowed=(((False,),),)),
        AclAnswers(unknown=(), allowed=(((True,),),)),
    )
    assert describe_access(change, Release(4, 3, 1), Release(4, 4, 0)).startswith("Every principal gains READ on topic")
