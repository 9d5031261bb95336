"""UpdateFeatures on the wire: every version, every error and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from kafka.protocol.admin import UpdateFeaturesRequest, UpdateFeaturesResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.findings import Severity
from kafka_rollout.client.features import node_features, send_feature_updates
from kafka_rollout.client.requests import ClusterConnections
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.features.requests import FeatureUpdateResult, refused_by_controller
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from tests.fakes.clock import FakeClock
from tests.unit.builders import state
from tests.unit.client.kafka_listener import accepting_plain
from tools.demo.folder import PROJECT_ROOT

FIXTURES = PROJECT_ROOT / "tests" / "fixtures"

NONE, TIMED_OUT, AUTHORIZATION, NOT_CONTROLLER, INVALID_REQUEST = 0, 7, 31, 41, 42
INVALID_UPDATE_VERSION, FEATURE_UPDATE_FAILED, UNKNOWN = 95, 96, -1


@dataclass
class Controller:
    """Offers UpdateFeatures up to `highest`; answers by `answers`, then always by the last one."""

    highest: int = 2
    answers: list[Callable[[int], Any]] = field(default_factory=lambda: [whole(NONE)])
    asked: list[Any] = field(default_factory=list)

    def __call__(self, api_key: int, version: int, body: bytes) -> Any:
        if api_key == ApiVersionsRequest.API_KEY:
            key = ApiVersionsResponse.ApiVersion
            offered = [
                key(api_key=ApiVersionsRequest.API_KEY, min_version=0, max_version=4),
                key(api_key=UpdateFeaturesRequest.API_KEY, min_version=0, max_version=self.highest),
            ]
            return ApiVersionsResponse(version=version, error_code=0, api_keys=offered)
        self.asked.append((version, body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer(version)


def whole(error: int, message: str | None = None) -> Callable[[int], Any]:
    """One answer for all features, as newer controllers give it."""
    return lambda version: UpdateFeaturesResponse(
        version=version, throttle_time_ms=0, error_code=error, error_message=message, results=[]
    )


_PATIENCE_S = 60.0


def each(**errors: int) -> Callable[[int], Any]:
    """An answer for each feature, as older controllers give it."""
    result = UpdateFeaturesResponse.UpdatableFeatureResult
    return lambda version: UpdateFeaturesResponse(
        version=version,
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        results=[
            result(feature=name.replace("_", "."), error_code=code, error_message="said")
            for name, code in errors.items()
        ],
    )


def ask(
    *controllers: Controller, validate_only: bool = False, unsafe: bool = False, **levels: int
) -> dict[str, FeatureUpdateResult]:
    from contextlib import ExitStack

    with ExitStack() as stack:
        listeners = [stack.enter_context(accepting_plain(controller)) for controller in controllers]
        nodes = tuple(
            NodeSpec(node_id=n, name=f"n{n}", roles=frozenset({Role.BROKER}), broker_address=listener.address)
            for n, listener in enumerate(listeners, start=1)
        )
        connections = ClusterConnections(ClusterSpec(name="c", nodes=nodes), ClientSecurity(), timeout_s=_PATIENCE_S)
        stack.callback(connections.close)
        results = send_feature_updates(
            connections,
            {name.replace("_", "."): level for name, level in levels.items()} or {"group.version": 1},
            {"transaction.version": 2},
            validate_only=validate_only,
            unsafe=unsafe,
            timeout_s=_PATIENCE_S,
            clock=FakeClock(),
        )
    return {result.feature: result for result in results}


def test_not_controller_is_asked_again_at_the_next_broker_until_one_knows_the_new_controller() -> None:
    first, second = Controller(answers=[whole(NOT_CONTROLLER)]), Controller()
    assert ask(first, second)["group.version"].accepted
    assert (len(first.asked), len(second.asked)) == (1, 1)


def test_without_any_controller_the_time_ends_and_says_that_nothing_was_changed() -> None:
    with pytest.raises(TransientError, match=r"NOT_CONTROLLER.*nothing was changed"):
        ask(Controller(answers=[whole(NOT_CONTROLLER)] * 1000))


def test_a_missing_right_is_named() -> None:
    with pytest.raises(RefusedError, match="CLUSTER_AUTHORIZATION_FAILED") as refused:
        ask(Controller(answers=[whole(AUTHORIZATION)]))
    assert "ALTER on CLUSTER" in refused.value.remedy


@pytest.mark.parametrize("error", [TIMED_OUT, UNKNOWN])
def test_an_answer_after_which_nobody_knows_is_not_sent_to_another_broker(error: int) -> None:
    first, second = Controller(answers=[whole(error)]), Controller()
    with pytest.raises(TransientError):
        ask(first, second)
    assert second.asked == []


def test_a_connection_that_ends_before_the_answer_is_not_sent_to_another_broker() -> None:
    first, second = Controller(answers=[lambda _: None]), Controller()
    with pytest.raises(TransientError, match="did not answer"):
        ask(first, second)
    assert (len(first.asked), second.asked) == (1, [])


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (INVALID_REQUEST, "INVALID_REQUEST"),
        (FEATURE_UPDATE_FAILED, "FEATURE_UPDATE_FAILED"),
        (INVALID_UPDATE_VERSION, "INVALID_UPDATE_VERSION"),
    ],
)
def test_a_refusal_of_the_whole_request_is_every_feature_s_own(error: int, name: str) -> None:
    results = ask(Controller(answers=[whole(error, "because")]), group_version=1, share_version=1)
    assert {(r.error, r.message) for r in results.values()} == {(name, "because")}


RECORDED: dict[str, str] = json.loads((FIXTURES / "update-features-3.4.1-zookeeper.json").read_text())
# Its code as FEATURE_UPDATE_FAILED: no released controller gets that far, ZooKeeper's supporting no feature at all.
_CODE, _AS_FAILED = "002a", "0060"


@pytest.mark.parametrize("message", sorted(RECORDED))
@pytest.mark.parametrize("name", ["INVALID_REQUEST", "FEATURE_UPDATE_FAILED"])
def test_a_recorded_refusal_ends_in_a_sentence_with_what_to_do(message: str, name: str) -> None:
    recorded = RECORDED[message]
    if name == "FEATURE_UPDATE_FAILED":
        recorded = recorded.replace(_CODE, _AS_FAILED, 1)

    def answer(version: int) -> Any:
        return UpdateFeaturesResponse.decode(bytes.fromhex(recorded), version=version)

    results = ask(Controller(highest=1, answers=[answer]), no_such_version=1)
    refused = results["no.such.version"]
    assert (refused.error, refused.message) == (name, message)
    found = refused_by_controller(state(), refused.feature, 1, refused.error, refused.message)
    assert found.sentence == f"The controller rejected no.such.version 1: {name} {message}"
    assert found.severity is Severity.BLOCKER
    assert found.remedy.endswith(("repeat it.", "repeat the request."))


@pytest.mark.parametrize("version", [0, 1])
def test_older_controllers_answer_for_each_feature(version: int) -> None:
    old = Controller(highest=version, answers=[each(group_version=NONE, share_version=FEATURE_UPDATE_FAILED)])
    results = ask(old, group_version=1, share_version=1)
    assert {f: r.error for f, r in results.items()} == {
        "group.version": "NONE",
        "share.version": "FEATURE_UPDATE_FAILED",
    }


def test_version_0_says_allow_downgrade_where_later_ones_name_the_upgrade_type() -> None:
    for highest, last_of_update in ((0, b"\x01"), (1, b"\x02"), (2, b"\x02")):
        controller = Controller(highest=highest, answers=[whole(NONE)])
        assert ask(controller, transaction_version=1)["transaction.version"].accepted
        ((version, body),) = controller.asked
        assert version == highest
        # …level 1, allowDowngrade or SAFE_DOWNGRADE, tags, (validateOnly,) tags
        assert body.endswith(b"\x00\x01" + last_of_update + b"\x00" * (2 if highest == 0 else 3))


@pytest.mark.parametrize("more", [{"validate_only": True}, {"unsafe": True, "transaction_version": 1}])
def test_version_0_is_not_asked_for_what_it_cannot_say(more: dict[str, Any]) -> None:
    controller = Controller(highest=0)
    (result,) = ask(controller, **more).values()
    assert (result.error, controller.asked) == ("UNSUPPORTED_VERSION", [])


def test_a_level_below_one_is_sent_as_zero() -> None:
    controller = Controller()
    assert ask(controller, transaction_version=-3)["transaction.version"].accepted
    assert b"\x00\x00\x02\x00\x00\x00" in controller.asked[0][1]


def test_a_level_can_have_a_minimum() -> None:
    level = ApiVersionsResponse.FinalizedFeatureKey(name="x.version", max_version_level=4, min_version_level=2)
    answer = ApiVersionsResponse(error_code=0, api_keys=[], finalized_features=[level], finalized_features_epoch=7)
    seen = node_features(answer)
    assert (dict(seen.finalized), dict(seen.finalized_min), seen.epoch) == ({"x.version": 4}, {"x.version": 2}, 7)
    assert not seen.without_quorum


@pytest.mark.parametrize("epoch", [-1, None])
def test_levels_without_an_epoch_are_not_finalized_ones(epoch: int | None) -> None:
    """KAFKA-19964: a controller that has read no metadata reports its minimum metadata.version as finalized."""
    level = ApiVersionsResponse.FinalizedFeatureKey(name="metadata.version", max_version_level=7, min_version_level=7)
    seen = node_features(
        ApiVersionsResponse(error_code=0, api_keys=[], finalized_features=[level], finalized_features_epoch=epoch)
    )
    assert (dict(seen.finalized), dict(seen.finalized_min), seen.epoch) == ({}, {}, None)
    assert seen.without_quorum


@pytest.mark.parametrize(("keys", "mode"), [((0, 1, 18), False), ((0, 1, 4, 18), True)])
def test_a_node_that_serves_leader_and_isr_runs_in_zookeeper_mode(keys: tuple[int, ...], mode: bool) -> None:
    served = [ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=1) for key in keys]
    assert node_features(ApiVersionsResponse(error_code=0, api_keys=served)).in_zookeeper_mode is mode
