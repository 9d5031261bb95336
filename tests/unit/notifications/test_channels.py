"""The Variables of the channels: what they accept, and one sentence for each error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_rollout.notifications.channels import SCAN_VARIABLE, VARIABLE, parse_channels
from kafka_rollout.notifications.due import SCAN_KINDS, Notification, NotificationKind, NotificationTimes

A, B = {"notifier": "a.A"}, {"notifier": "a.B"}


def notification(kind: NotificationKind = NotificationKind.TEST, cluster: str = "orders") -> Notification:
    return Notification(key="k", kind=kind, cluster=cluster, at=1.0, headline="h")


def test_without_variables_there_are_no_channels() -> None:
    for empty in (None, "", {}, "{}"):
        found = parse_channels(None, empty)
        assert (found.channels, found.problems, found.times) == ((), (), NotificationTimes())


@pytest.mark.parametrize("typed", [json.dumps, lambda setting: setting], ids=["text", "object"])
def test_a_channel_has_the_name_of_its_class_and_wants_what_it_names(typed: Any) -> None:
    setting = {
        "channels": [{**A, "kwargs": {"to": "x"}}, {**B, "kinds": ["test"], "clusters": ["orders"]}],
        "expires_before_minutes": 5,
        "not_finalized_days": 0.5,
    }
    found = parse_channels(typed(setting), None)
    assert [channel.name for channel in found.channels] == ["A", "B"]
    assert found.times == NotificationTimes(before_expiry_s=300.0, not_finalized_s=43_200.0)
    a, b = found.channels
    assert a.kwargs == {"to": "x"}
    assert a.wants(notification(NotificationKind.FINISHED, "other"))
    assert b.wants(notification())
    assert not b.wants(notification(NotificationKind.FINISHED))
    assert not b.wants(notification(cluster="other"))


def test_the_variable_of_the_scans_is_a_channel_for_their_kinds() -> None:
    (channel,) = parse_channels(None, A).channels
    assert (channel.name, channel.kinds) == (SCAN_VARIABLE, list(SCAN_KINDS))
    (problem,) = parse_channels(None, {"notify": "a.A"}).problems
    assert problem.startswith(f"Airflow Variable {SCAN_VARIABLE} cannot be used: notifier is missing. Write ")


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("[", "it is not JSON"),
        ([A], "it is not a JSON object"),
        ({"chanels": []}, "channels is missing"),
        ({"channels": [], "not_finalised_days": 1}, "not_finalised_days is an unknown key"),
        ({"channels": {}}, "channels must be a valid list"),
        ({"channels": [], "not_finalized_days": "7"}, "not_finalized_days must be a valid number"),
        ({"channels": [], "not_finalized_days": True}, "not_finalized_days must be a valid number"),
        ({"channels": [], "expires_before_minutes": -1}, "expires_before_minutes must be greater than or equal to 0"),
        ({"channels": ["a.A"]}, "channels[0] must be a valid dictionary or instance of NotificationChannel"),
        ({"channels": [{"notifier": 7}]}, "channels[0].notifier must be a valid string"),
        ({"channels": [{**A, "kind": []}]}, "channels[0].kind is an unknown key"),
        ({"channels": [{**A, "name": "a b"}]}, "channels[0].name string should match pattern"),
        ({"channels": [{**A, "kwargs": []}]}, "channels[0].kwargs must be a valid dictionary"),
        ({"channels": [{**A, "clusters": "x"}]}, "channels[0].clusters must be a valid list"),
        ({"channels": [A, A]}, "two channels have the name A; give each channel a name"),
    ],
)
def test_an_error_is_one_sentence_with_the_fix(setting: Any, why: str) -> None:
    (problem,) = parse_channels(setting, None).problems
    assert problem.startswith(f"Airflow Variable {VARIABLE} cannot be used: {why}")
    assert problem.endswith("or delete the Variable: what happens is then only in the log and on the page.")
    assert "\n" not in problem


def test_an_error_in_one_channel_does_not_affect_the_others_and_shows_no_value() -> None:
    setting = {"channels": [{"notifier": "a.A", "kinds": ["s3cret"]}, B]}
    found = parse_channels(setting, "[")
    assert [channel.name for channel in found.channels] == ["B"]
    assert [problem.partition(" cannot")[0] for problem in found.problems] == [
        f"Airflow Variable {VARIABLE}",
        f"Airflow Variable {SCAN_VARIABLE}",
    ]
    assert "channels[0].kinds[0] must be 'approval-pending'" in found.problems[0]
    assert "s3cret" not in found.problems[0]
