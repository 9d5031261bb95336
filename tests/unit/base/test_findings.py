"""Findings of stored plans have the names of this version."""

from __future__ import annotations

import pytest

from kafka_rollout.base.findings import BLOCKER, Finding
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.planning.findings.cluster import UNLISTED_BROKER


@pytest.mark.parametrize(
    ("stored", "now"),
    [("GHOST-BROKER", "UNLISTED-BROKER"), ("WAY-BACK-CLOSED", "ROLLBACK-CLOSED"), ("RF-ONE-TOPIC", "RF-ONE-TOPIC")],
)
def test_a_stored_finding_has_its_present_code(stored: str, now: str) -> None:
    content = {"code": stored, "severity": "blocker", "subject": "broker 9", "sentence": "It is there.", "remedy": ""}
    found = from_json(Finding, content)
    assert (found.code, to_json(found)["code"]) == (now, now)


def test_an_approved_finding_of_an_earlier_version_is_not_new() -> None:
    stored = {"code": "GHOST-BROKER", "severity": "blocker", "subject": "broker 9", "sentence": "Old.", "remedy": ""}
    again = UNLISTED_BROKER.found("broker 9", "Broker 9 is registered.", "Unregister it.")
    assert again.severity is BLOCKER
    assert from_json(Finding, stored).identity == again.identity
