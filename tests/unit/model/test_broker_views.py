"""What brokers report of the metadata that clients set, and where they differ."""

from __future__ import annotations

from kafka_rollout.model.broker_views import BrokerView, find_disagreements

ALICE: BrokerView = {"ACL": {"User:alice": ""}, "quota of": {"user alice": "producer_byte_rate=1.0"}}


def test_equal_views_and_a_kind_that_only_some_brokers_offer_are_no_disagreement() -> None:
    subscriptions = {"client-metrics subscription": {"telemetry": "{}"}}
    assert find_disagreements({1: ALICE, 2: {**ALICE, **subscriptions}, 3: ALICE}) == {}
    assert find_disagreements({}) == {}


def test_a_subject_that_brokers_lack_is_named_with_them() -> None:
    none: BrokerView = {**ALICE, "ACL": {}}
    assert find_disagreements({1: ALICE, 2: none, 3: ALICE}) == {
        "ACL User:alice": "The ACL User:alice is missing on broker 2, and brokers 1, 3 have it."
    }


def test_other_values_are_named_by_broker() -> None:
    other: BrokerView = {**ALICE, "quota of": {"user alice": "producer_byte_rate=2.0"}}
    assert find_disagreements({1: ALICE, 2: other, 3: other, 4: {**ALICE, "quota of": {}}}) == {
        "quota of user alice": "The brokers do not have the same values of quota of user alice: broker 1 has "
        "producer_byte_rate=1.0; brokers 2, 3 have producer_byte_rate=2.0; broker 4 has none."
    }
