"""Requests to nodes: lost connections are opened again, a silent node causes a timeout, each error has its reaction."""

from __future__ import annotations

import gc
import socket
import ssl
import struct
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.admin import ListGroupsResponse, UpdateFeaturesRequest, UpdateFeaturesResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, TransientError
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.client.connection import NodeConnection, NotSentError, ask_api_versions, read_response
from kafka_rollout.client.features import UpgradeType, node_features, send_feature_updates, upgrade_type
from kafka_rollout.client.requests import ClusterConnections, Target, error_name, raise_for_error
from kafka_rollout.client.security.client_security import ClientSecurity, SecurityProtocol
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from kafka_rollout.releases.facts import VersionRange
from tests.fakes.clock import FakeClock
from tests.unit.client.kafka_listener import Listener, accepting_plain
from tests.waiting import wait_until

PLAINTEXT = ClientSecurity()
NODE = Target(node_id=1, address="a:1", who="Node 1")


def _spec(*addresses: str) -> ClusterSpec:
    return ClusterSpec(
        name="demo",
        nodes=tuple(
            NodeSpec(node_id=n, name=f"broker-{n}", roles=frozenset({Role.BROKER}), broker_address=address)
            for n, address in enumerate(addresses, start=1)
        ),
    )


@pytest.fixture
def closed_ports() -> Iterator[tuple[str, str]]:
    """Nobody listens on them, and nobody can begin to: they are bound."""
    with socket.socket() as one, socket.socket() as other:
        for held in (one, other):
            held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{one.getsockname()[1]}", f"127.0.0.1:{other.getsockname()[1]}"


def test_threads_that_read_the_first_responses_of_a_version_do_not_disturb_each_other() -> None:
    """kafka-python can register a class that the garbage collection then removes: nobody could read a response."""

    def request(version: int) -> UpdateFeaturesRequest:
        made = UpdateFeaturesRequest(version=version)
        made.with_header(correlation_id=7)
        return made

    def read() -> None:
        together.wait()
        for version in versions:
            read_response(request(version), responses[version])

    versions = range(UpdateFeaturesResponse.max_version + 1)
    responses: dict[int, memoryview] = {}
    for version in versions:
        response = UpdateFeaturesResponse(version=version, error_code=0)
        response.with_header(correlation_id=7)
        responses[version] = memoryview(response.encode(header=True))
    switched = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    gc.freeze()  # a collection looks at nothing that was there before
    try:
        for _ in range(300):
            UpdateFeaturesResponse._VERSIONS.clear()
            UpdateFeaturesResponse._struct._compiled_encoders.clear()
            together = threading.Barrier(4)
            with ThreadPoolExecutor(4) as pool:
                for done in [pool.submit(read) for _ in range(4)]:
                    done.result(60)
            gc.collect()
            read_response(request(0), responses[0])
    finally:
        gc.unfreeze()
        sys.setswitchinterval(switched)


def test_one_connection_serves_many_questions() -> None:
    with accepting_plain() as listener:
        connection = NodeConnection(listener.address, "Node 1", PLAINTEXT)
        for _ in range(5):
            assert connection.ask(listener.question(), timeout_s=60).error_code == 0
        connection.close()
        assert listener.connections == 1


def test_a_connection_that_was_lost_while_idle_is_opened_again() -> None:
    with accepting_plain() as listener:
        connection = NodeConnection(listener.address, "Node 1", PLAINTEXT)
        connection.ask(listener.question(), timeout_s=60)
        link = connection._link
        assert link is not None
        listener.hang_up()
        wait_until(lambda: not link.is_usable(), 60)
        assert connection.ask(listener.question(), timeout_s=60).error_code == 0
        connection.close()
        assert listener.connections == 2


def test_threads_share_a_connection_without_mixing_answers_up() -> None:
    with accepting_plain() as listener:
        connection = NodeConnection(listener.address, "Node 1", PLAINTEXT)
        answers: list[Any] = []
        threads = [
            threading.Thread(target=lambda: answers.append(connection.ask(listener.question(), timeout_s=60)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        connection.close()
        assert [answer.error_code for answer in answers] == [0] * 8


def test_a_node_that_takes_the_question_and_stays_silent_is_given_up_in_time() -> None:
    asked: list[int] = []

    def silent(api_key: int, version: int, body: bytes) -> Any:
        if api_key in asked:
            time.sleep(60)
            return None
        asked.append(api_key)
        return Listener.well(None, api_key, version, body)  # type: ignore[arg-type]

    with accepting_plain(silent) as listener:
        connection = NodeConnection(listener.address, "Node 1 (broker-1)", PLAINTEXT)
        connection.ask(listener.question(), timeout_s=60)  # the link is there: only the answer can be late
        began = time.monotonic()
        with pytest.raises(TransientError, match=r"Node 1 \(broker-1\) did not answer ListGroups: no answer") as caught:
            connection.ask(listener.question(), timeout_s=0.3)
        assert time.monotonic() - began < 30
        assert not isinstance(caught.value, NotSentError)
        connection.close()


def test_a_node_that_hangs_up_on_the_question_may_have_acted_on_it() -> None:
    def hangs_up(api_key: int, version: int, body: bytes) -> Any:
        return Listener.well(None, api_key, version, body) if api_key == ApiVersionsRequest.API_KEY else None  # type: ignore[arg-type]

    with accepting_plain(hangs_up) as listener:
        connection = NodeConnection(listener.address, "Node 1", PLAINTEXT)
        with pytest.raises(TransientError) as caught:
            connection.ask(listener.question(), timeout_s=60)
        assert not isinstance(caught.value, NotSentError)
        connection.close()


def test_a_node_that_has_answered_and_then_closes_connections_is_not_asked_about_its_security() -> None:
    answers = [True, False]

    def stops(api_key: int, version: int, body: bytes) -> Any:
        known = api_key == ApiVersionsRequest.API_KEY or answers.pop(0)
        return Listener.well(None, api_key, version, body) if known else None  # type: ignore[arg-type]

    with accepting_plain(stops) as listener:
        connection = NodeConnection(listener.address, "Node 1", PLAINTEXT)
        connection.ask(listener.question(), timeout_s=60)
        with pytest.raises(TransientError, match="the node closed the connection") as stopped:
            connection.ask(listener.question(), timeout_s=60)
        connection.close()
    assert stopped.value.remedy == ""
    answers[:] = [False]
    with accepting_plain(stops) as listener:
        connection = NodeConnection(listener.address, "Node 1", PLAINTEXT)
        with pytest.raises(TransientError, match="the node closed the connection") as refused:
            connection.ask(listener.question(), timeout_s=60)
        connection.close()
    assert refused.value.remedy.startswith("Does the listener need TLS or SASL?")


def test_a_node_that_is_not_there_was_never_asked(closed_ports: tuple[str, str]) -> None:
    with pytest.raises(NotSentError, match="Node 1 cannot be reached: connection refused"):
        NodeConnection(closed_ports[0], "Node 1", PLAINTEXT).ask(Listener.question(), timeout_s=60)


def _tls_error(kind: type[ssl.SSLError], reason: str | None) -> ssl.SSLError:
    error = kind(1, "EOF occurred in violation of protocol")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError("reset"),
        _tls_error(ssl.SSLEOFError, "UNEXPECTED_EOF_WHILE_READING"),  # Python 3.11.7
        _tls_error(ssl.SSLZeroReturnError, None),  # Python 3.11.2
        _tls_error(ssl.SSLError, "UNEXPECTED_EOF_WHILE_READING"),
    ],
    ids=["reset", "eof", "zero-return", "reason-alone"],
)
def test_a_closed_connection_has_the_same_sentence_on_each_python(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handshake of a listener that closes the connection ends with another class on each Python and OpenSSL."""
    tls = ClientSecurity(protocol=SecurityProtocol.SSL)
    connection = NodeConnection("127.0.0.1:9092", "Node 1", tls)

    def closed(_deadline: float) -> socket.socket:
        raise error

    monkeypatch.setattr(connection, "_connect", closed)
    with pytest.raises(NotSentError) as raised:
        connection.ask(ApiVersionsRequest(), timeout_s=1)
    assert raised.value.sentence == "Node 1 cannot be reached: the node closed the connection."
    assert raised.value.remedy.startswith("Does the listener need SASL?")


def test_a_port_that_speaks_something_else_is_no_stack_trace() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(RefusedError, match="this port speaks HTTP"):
            NodeConnection(f"127.0.0.1:{server.getsockname()[1]}", "Node 1", PLAINTEXT).ask(
                Listener.question(), timeout_s=60
            )


def test_an_announced_size_takes_no_memory_before_its_bytes_arrive() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def announce() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(struct.pack(">i", 200 << 20))

        threading.Thread(target=announce, daemon=True).start()
        tracemalloc.start()
        try:
            with pytest.raises(RolloutError, match="Node 1"):
                NodeConnection(f"127.0.0.1:{server.getsockname()[1]}", "Node 1", PLAINTEXT).ask(
                    Listener.question(), timeout_s=60
                )
            assert tracemalloc.get_traced_memory()[1] < 32 << 20
        finally:
            tracemalloc.stop()


def test_the_newest_version_of_api_versions_that_a_node_knows_is_used() -> None:
    asked: list[int] = []

    def old(api_key: int, version: int, body: bytes) -> Any:
        if api_key == ApiVersionsRequest.API_KEY:
            asked.append(version)
            if version > 3:
                key = ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=3)
                return ApiVersionsResponse(version=0, error_code=35, api_keys=[key])
        return Listener.well(None, api_key, version, body)  # type: ignore[arg-type]

    with accepting_plain(old) as listener:
        connection = NodeConnection(listener.address, "Node 1", PLAINTEXT)
        assert connection.ask(listener.question(), timeout_s=60).error_code == 0
        connection.close()
    assert asked == [4, 3]


def test_when_one_broker_is_silent_the_others_are_asked_and_it_comes_last_from_then_on() -> None:
    with accepting_plain(lambda *_: time.sleep(60)) as silent, accepting_plain() as listener:
        nodes = ClusterConnections(_spec(silent.address, listener.address), PLAINTEXT, timeout_s=4)
        for _ in range(3):
            assert nodes.first_answer(nodes.brokers, Listener.question(), lambda r, t: t.node_id) == 2
        nodes.close()
        assert silent.connections == 1


def test_when_nobody_answers_everybody_is_named(closed_ports: tuple[str, str]) -> None:
    admin = KafkaAdmin(_spec(*closed_ports), timeout_s=2)
    with pytest.raises(TransientError, match=r"Node 1 \(broker-1\).*Node 2 \(broker-2\)"):
        admin.cluster_id()
    admin.close()


def test_a_request_that_changes_things_is_not_repeated_at_the_next_broker_once_it_was_sent() -> None:
    def hangs_up(api_key: int, version: int, body: bytes) -> Any:
        return Listener.well(None, api_key, version, body) if api_key == ApiVersionsRequest.API_KEY else None  # type: ignore[arg-type]

    with accepting_plain(hangs_up) as first, accepting_plain() as second:
        nodes = ClusterConnections(_spec(first.address, second.address), PLAINTEXT, timeout_s=60)
        with pytest.raises(TransientError):
            nodes.first_answer(nodes.brokers, Listener.question(), lambda r, t: r, only_if_not_sent=True)
        assert second.connections == 0
        assert nodes.first_answer(nodes.brokers, Listener.question(), lambda r, t: t.node_id) == 2
        nodes.close()


def test_closed_connections_stay_closed() -> None:
    with accepting_plain() as listener:
        nodes = ClusterConnections(_spec(listener.address), PLAINTEXT, timeout_s=60)
        nodes.ask(nodes.brokers[0], Listener.question())
        nodes.close()
        with pytest.raises(TransientError, match="closed"):
            nodes.ask(nodes.brokers[0], Listener.question())


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *((code, TransientError) for code in (41, 14, 15, 16, -1, 6, 3, 9, 51, 56, 72, 74, 75, 88, 89, 100)),
        *((code, RefusedError) for code in (29, 30, 31, 53)),
        *((code, FatalError) for code in (35, 42, 9999)),
    ],
)
def test_an_error_code_becomes_the_error_of_its_reaction(code: int, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        raise_for_error(SimpleNamespace(error_code=code), "UpdateFeatures", NODE, "ALTER on CLUSTER")
    assert error_name(code) in str(caught.value)
    assert "Node 1" in str(caught.value)
    if kind is RefusedError:
        assert "ALTER on CLUSTER" in str(caught.value)


def test_a_missing_right_to_list_groups_is_named() -> None:
    def forbidden(api_key: int, version: int, body: bytes) -> Any:
        if api_key == ApiVersionsRequest.API_KEY:
            return Listener.well(None, api_key, version, body)  # type: ignore[arg-type]
        return ListGroupsResponse(version=version, error_code=31, groups=[])

    with accepting_plain(forbidden) as listener:
        connection = NodeConnection(listener.address, "Node 1", PLAINTEXT)
        response = connection.ask(listener.question(), timeout_s=60)
        connection.close()
    with pytest.raises(RefusedError, match="DESCRIBE on CLUSTER"):
        raise_for_error(response, "ListGroups", NODE)


@pytest.mark.parametrize(
    ("current", "target", "unsafe", "kind"),
    [
        (0, 1, False, UpgradeType.UPGRADE),
        (21, 30, True, UpgradeType.UPGRADE),
        (21, 21, False, UpgradeType.UPGRADE),
        (30, 29, False, UpgradeType.SAFE_DOWNGRADE),
        (30, 29, True, UpgradeType.UNSAFE_DOWNGRADE),
        (1, 0, False, UpgradeType.SAFE_DOWNGRADE),
        (0, 0, False, UpgradeType.SAFE_DOWNGRADE),
    ],
)
def test_the_upgrade_type_follows_from_the_levels(current: int, target: int, unsafe: bool, kind: UpgradeType) -> None:
    assert upgrade_type(current, target, unsafe=unsafe) is kind


def test_each_listener_is_opened_with_its_own_settings() -> None:
    plain = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    brokers, controllers = (
        ClientSecurity.from_airflow_connection_extra(plain, login=user, password="secret") for user in ("b", "c")
    )
    with accepting_plain() as broker, accepting_plain() as controller:
        node = NodeSpec(
            node_id=1,
            name="node-1",
            roles=frozenset(Role),
            broker_address=broker.address,
            controller_address=controller.address,
        )
        security = brokers.model_copy(update={"controllers": controllers})
        nodes = ClusterConnections(ClusterSpec(name="two", nodes=(node,)), security, timeout_s=60)
        for target in (*nodes.brokers, *nodes.controllers):
            ask_api_versions(partial(nodes.ask, target))
        nodes.close()
    assert [listener.tokens[0].split(b"\0")[1] for listener in (broker, controller)] == [b"b", b"c"]


def test_a_session_lasts_from_the_request_and_not_from_its_slow_answer() -> None:
    def slowly(api_key: int, version: int, body: bytes) -> Any:
        if api_key != SaslAuthenticateRequest.API_KEY:
            return Listener.well(None, api_key, version, body)  # type: ignore[arg-type]
        time.sleep(0.9)
        return SaslAuthenticateResponse(
            version=version, error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=1000
        )

    plain = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    security = ClientSecurity.from_airflow_connection_extra(plain, login="b", password="secret")
    with accepting_plain(slowly) as listener:
        connection = NodeConnection(listener.address, "Node 1", security)
        for _ in range(2):
            connection.ask(listener.question(), timeout_s=60)
        connection.close()
    assert listener.connections == 2


def test_an_answer_without_epoch_has_none() -> None:
    silent = node_features(ApiVersionsResponse(version=3, finalized_features_epoch=-1))
    assert (silent.supported, silent.finalized, silent.epoch) == ({}, {}, None)
    supported = ApiVersionsResponse.SupportedFeatureKey(name="group.version", min_version=0, max_version=1)
    told = node_features(ApiVersionsResponse(version=4, supported_features=[supported], finalized_features_epoch=7))
    assert (told.supported, told.epoch) == ({"group.version": VersionRange(0, 1)}, 7)


class _Answering:
    """ClusterConnections that returns one prepared response to every request, and keeps the request."""

    brokers = ()

    def __init__(self, response: Any) -> None:
        self.response = response
        self.request: Any = None

    def first_answer(self, targets: Any, request: Any, accept: Any, *, only_if_not_sent: bool, fence: Any) -> Any:
        self.request = request
        return accept(self.response, NODE)


def _update(response: Any, targets: dict[str, int]) -> tuple[dict[str, str], Any]:
    nodes = _Answering(response)
    results = send_feature_updates(
        nodes,  # type: ignore[arg-type]
        targets,
        {"metadata.version": 21, "group.version": 1},
        validate_only=True,
        unsafe=False,
        timeout_s=5,
        clock=FakeClock(),
    )
    return {result.feature: result.error for result in results}, nodes.request


def test_all_updates_go_in_one_request_with_their_own_upgrade_types() -> None:
    response = UpdateFeaturesResponse(version=2, error_code=0, error_message=None)
    results, request = _update(response, {"metadata.version": 30, "group.version": -1, "share.version": 1})
    assert results == dict.fromkeys(("metadata.version", "group.version", "share.version"), "NONE")
    assert request.validate_only
    assert [(u.feature, u.max_version_level, u.upgrade_type) for u in request.feature_updates] == [
        ("metadata.version", 30, 1),
        ("group.version", 0, 2),
        ("share.version", 1, 1),
    ]


def test_the_one_answer_of_newer_controllers_is_every_features() -> None:
    response = UpdateFeaturesResponse(version=2, error_code=95, error_message="no")
    assert _update(response, {"a": 1, "b": 2})[0] == {"a": "INVALID_UPDATE_VERSION", "b": "INVALID_UPDATE_VERSION"}


def test_older_controllers_answer_for_each_feature() -> None:
    result = UpdateFeaturesResponse.UpdatableFeatureResult
    each = [result(feature="a", error_code=0, error_message=None), result(feature="b", error_code=95, error_message="")]
    response = UpdateFeaturesResponse(version=1, error_code=0, error_message=None, results=each)
    assert _update(response, {"a": 1, "b": 2})[0] == {"a": "NONE", "b": "INVALID_UPDATE_VERSION"}


@pytest.mark.parametrize(("code", "kind"), [(41, TransientError), (7, TransientError), (31, RefusedError)])
def test_an_update_that_was_not_decided_is_no_result(code: int, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        _update(UpdateFeaturesResponse(version=2, error_code=code, error_message=None), {"a": 1})
