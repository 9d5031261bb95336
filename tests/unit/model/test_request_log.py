"""Addresses of clients in lines of request logs, written by hand in the form of RequestConvertToJson.

tests/integration/adapters/test_node_metrics.py reads the line that a broker of 3.9.1 writes.
"""

from __future__ import annotations

import pytest

from kafka_rollout.model.node_log import find_logged_requests
from kafka_rollout.model.state import LoggedRequest

LINE = (
    "[2026-11-23 09:31:02,871] INFO Completed request:"
    '{"isForwarded":false,"requestHeader":{"requestApiKey":1,"requestApiVersion":0,"correlationId":7,'
    '"clientId":"old-client","requestApiKeyName":"FETCH","requestApiVersionDeprecated":true},'
    '"request":{"replicaId":-1,"maxWaitMs":0,"minBytes":0,"topics":[]},'
    '"connection":"CONNECTION","totalTimeMs":1.2,"listener":"PLAINTEXT",'
    '"clientInformation":{"softwareName":"unknown","softwareVersion":"unknown"}} (kafka.request.logger)'
)


@pytest.mark.parametrize(
    ("connection", "address"),
    [
        ("127.0.0.1:9092-10.0.0.7:51234-0", "10.0.0.7"),
        ("127.0.0.1:9092-10.0.0.7:51234-0-3", "10.0.0.7"),
        ("0:0:0:0:0:0:0:1:9092-fd00:0:0:0:0:0:0:7:51234-12", "fd00:0:0:0:0:0:0:7"),
    ],
)
def test_a_logged_request_names_client_id_and_address(connection: str, address: str) -> None:
    line = LINE.replace("CONNECTION", connection)
    expected = LoggedRequest(
        api="FETCH", version=0, client_name="unknown", client_version="unknown", client_id="old-client", address=address
    )
    assert find_logged_requests([line, "[2026-11-23] INFO something else", line]) == (expected,)


@pytest.mark.parametrize("line", [LINE[:150], "Completed request:", "Completed request:[]", "Completed request:{}"])
def test_a_line_that_was_cut_off_is_left_out(line: str) -> None:
    assert find_logged_requests([line]) == ()


@pytest.mark.parametrize(
    "line",
    [
        LINE.replace("Completed request:", "Group Completed request:"),
        LINE.replace("kafka.request.logger", "kafka.coordinator.group.GroupCoordinator"),
    ],
)
def test_the_text_of_a_client_is_no_logged_request(line: str) -> None:
    assert find_logged_requests([line.replace("CONNECTION", "127.0.0.1:9092-10.0.0.7:51234-0")]) == ()
