"""The excerpt of a log: around the last error, and without credentials."""

from __future__ import annotations

import pytest

from kafka_rollout.model.node_log import cut_excerpt, hide_credentials

INFO = "[2026-11-26 03:04:05,000] INFO all is well (kafka.Server)"
ERROR = "[2026-11-26 03:04:06,000] ERROR Exiting Kafka (kafka.Kafka$)"
TRACE = ("java.io.IOException: disk", "\tat kafka.log.Log.load(Log.scala:1)", "Caused by: java.io.EOFException: end")


def test_the_excerpt_has_the_last_error_with_its_stack_trace_and_what_was_before() -> None:
    lines = [INFO] * 200 + [ERROR, *TRACE] + [INFO] * 60
    found = cut_excerpt(lines)
    assert found == (*[INFO] * 10, ERROR, *TRACE, *[INFO] * 26)
    assert cut_excerpt([INFO] * 200) == (INFO,) * 40
    assert cut_excerpt(["an unknown layout", *TRACE]) == ("an unknown layout", *TRACE)
    assert cut_excerpt([]) == ()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("ssl.keystore.password=abc, ssl.x=1", "ssl.keystore.password=[hidden], ssl.x=1"),
        ('{"token": "a b", "id": 1}', '{"token": [hidden], "id": 1}'),
        ("\tsasl.jaas.config = ScramLoginModule required username=u password=p;", "\tsasl.jaas.config = [hidden]"),
        ("connect to https://u:p@host/x", "connect to https://[hidden]@host/x"),
        ("Login failure: the password is not valid", "Login failure: the password is not valid"),
    ],
)
def test_possible_credentials_are_hidden(line: str, shown: str) -> None:
    assert hide_credentials(line) == shown
