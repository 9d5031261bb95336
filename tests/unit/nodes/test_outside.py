"""Values of conditions from outside: a server that speaks Prometheus's API, and real commands."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import SecretStr

from kafka_rollout.client.security.client_security import PrometheusAccess
from kafka_rollout.gates.control import Reading
from kafka_rollout.model.topology import ClusterSpec, OutsideCondition
from kafka_rollout.nodes.outside import OutsideReader, run_command
from tests.fakes.clock import FakeClock
from tests.fakes.prometheus import Answer, prometheus, vector
from tests.paths import ROOT
from tests.waiting import wait_until

LAG = OutsideCondition(name="lag", query='sum(lag{group="a b&c"})', requires="< 5", timeout_s=5)
SECRET = "s3cret-value"


def read(url: str | None, clock: Any = None, outside: OutsideCondition = LAG, **access: Any) -> Reading:
    spec = ClusterSpec(name="fake", nodes=(), prometheus_connection_id="prom", conditions=(outside,))
    known = PrometheusAccess(url=url, **access) if url else None
    return OutsideReader(spec, known, clock or FakeClock()).read(outside)


def test_the_query_arrives_as_it_is_written_and_its_number_is_the_value() -> None:
    asked: list[str] = []

    def answer(query: str, headers: Mapping[str, str]) -> bytes:
        asked.append(query)
        assert "Authorization" not in headers
        return vector("0.25")

    with prometheus(answer) as url:
        assert read(url).value == 0.25
        assert read(url + "/").value == 0.25
    assert asked == [LAG.query] * 2


@pytest.mark.parametrize(
    ("access", "header"),
    [
        ({"password": SecretStr(SECRET)}, f"Bearer {SECRET}"),
        ({"username": "ops", "password": SecretStr("p")}, "Basic b3BzOnA="),
    ],
)
def test_credentials_are_sent_as_a_token_or_as_basic(access: dict[str, Any], header: str) -> None:
    sent: list[str] = []

    def answer(_query: str, headers: Mapping[str, str]) -> Answer:
        sent.append(headers["Authorization"])
        return 401, {}, b"no"

    with prometheus(answer) as url:
        reading = read(url, **access)
    assert sent == [header]
    assert reading.problem == "Prometheus refuses the credentials (status 401)."
    assert "bearer token" in reading.remedy
    assert SECRET not in f"{reading} {PrometheusAccess(url='http://x', **access)!r}"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((307, {"Location": "http://127.0.0.1:1/"}, b""), "Prometheus redirects the query (status 307)"),
        ((200, {"Content-Encoding": "gzip"}, gzip.compress(b"{}")), "content encoding gzip"),
        ((200, {}, b" " * (2 << 20)), "it sends more than 1 MiB"),
        ((502, {}, b"bad gateway"), "did not respond: status 502"),
        ((404, {}, b"not found"), "not one of Prometheus's API"),
        ((503, {}, b'{"status":"error","error":"query timed out"}'), "query timed out"),
    ],
)
def test_what_is_no_answer_is_unknown(answer: Answer, problem: str) -> None:
    with prometheus(lambda _query, _headers: answer) as url:
        reading = read(url)
    assert reading.value is None
    assert problem in reading.problem
    assert reading.remedy


def test_a_server_that_is_away_for_a_moment_is_asked_again_and_one_that_stays_away_is_unknown() -> None:
    answers: list[bytes | Answer] = [(503, {}, b"starting"), vector("3")]
    with prometheus(lambda _query, _headers: answers.pop(0)) as url:
        assert read(url).value == 3
    reading = read(url, password=SecretStr(SECRET))
    assert reading.problem.startswith("Prometheus (Connection prom) did not respond: ")
    assert "Connection refused" in reading.problem
    for wrong in (SECRET + "\r\nX: y", "é"):
        with prometheus(lambda _query, _headers: vector("3")) as url:
            reading = read(url, password=SecretStr(wrong))
        assert reading.value is None
        assert SECRET not in reading.problem


def test_a_server_that_does_not_respond_is_asked_three_times() -> None:
    slept: list[float] = []
    clock, asked = FakeClock(slept.append), list[str]()
    spec = ClusterSpec(name="fake", nodes=(), prometheus_connection_id="prom", conditions=(LAG,))

    def away(query: str, _headers: Mapping[str, str]) -> Answer:
        asked.append(query)
        return 502, {}, b"bad gateway"

    with prometheus(away) as url:
        reading = OutsideReader(spec, PrometheusAccess(url=url), clock).read(LAG)
    assert "status 502" in reading.problem
    assert (len(asked), slept) == (3, [1.0, 1.0])


def test_a_missing_connection_and_a_missing_ca_file_are_named() -> None:
    assert read(None).problem == "Connection prom cannot be read, or has no usable URL of Prometheus."
    missing = read("https://127.0.0.1:1", ca_location="/nowhere/ca.pem")
    assert (
        missing.problem == "The CA file /nowhere/ca.pem of Connection prom cannot be used: No such file or directory."
    )


def test_a_value_is_read_once_in_its_interval() -> None:
    clock, asked = FakeClock(), iter("123")
    spec = ClusterSpec(name="fake", nodes=(), prometheus_connection_id="prom", conditions=(LAG,))
    with prometheus(lambda _query, _headers: vector(next(asked))) as url:
        reader = OutsideReader(spec, PrometheusAccess(url=url), clock)
        assert [reader.read(LAG).value for _ in range(3)] == [1, 1, 1]
        clock.sleep(LAG.interval_s)
        assert reader.read(LAG).value == 2


def test_a_reading_from_before_an_event_is_not_used_for_what_follows() -> None:
    clock, asked = FakeClock(), iter("123")
    outside = replace(LAG, interval_s=3600)
    spec = ClusterSpec(name="fake", nodes=(), prometheus_connection_id="prom", conditions=(outside,))
    with prometheus(lambda _query, _headers: vector(next(asked))) as url:
        reader = OutsideReader(spec, PrometheusAccess(url=url), clock)
        assert reader.read(outside).value == 1
        started = clock.now()
        clock.sleep(1)
        assert [reader.read(outside, not_before=started).value for _ in range(2)] == [2, 2]


def command(*words: str, **fields: Any) -> OutsideCondition:
    return OutsideCondition(name="own", command=words, timeout_s=fields.pop("timeout_s", 10.0), **fields)


def shell(script: str, **fields: Any) -> OutsideCondition:
    return command("/bin/sh", "-c", script, **fields)


def test_the_arguments_of_a_command_reach_no_shell() -> None:
    hostile = "$(touch /tmp/x); `id` \n é * '"
    seen = run_command(command("/usr/bin/printf", "%s", hostile))
    assert (seen.value, seen.text) == (0, "$(touch /tmp/x); `id`")
    assert run_command(command("/bin/echo", "0.5", requires="< 1")).value == 0.5


def test_a_command_has_no_variable_and_no_input_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", SECRET)
    seen = run_command(shell("env | grep -c AIRFLOW; cat; exit 1"))
    assert (seen.value, seen.text) == (1, "0")


@pytest.mark.parametrize(
    ("outside", "problem"),
    [
        (command("/nowhere/program"), "This machine has no program /nowhere/program"),
        (command("/etc"), "This machine has no program /etc"),
        (command("/dev/null"), "This machine has no program /dev/null"),
        (shell("exit 3"), "The command ended with exit code 3."),
        (shell("kill -SEGV $$"), "The command was killed by signal 11."),
        (shell("yes"), "The command printed more than 64 KiB, and was killed."),
        (shell("sleep 60", timeout_s=0.3), "The command did not end in 0.3 s, and was killed."),
        (shell("exec >&- 2>&-; sleep 60", timeout_s=0.3), "The command did not end in 0.3 s, and was killed."),
    ],
)
def test_a_command_that_fails_is_unknown(outside: OutsideCondition, problem: str) -> None:
    reading = run_command(outside)
    assert reading.value is None
    assert reading.problem.startswith(problem)
    assert reading.remedy


def test_a_command_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    run_command(shell(f"echo $$ >{pids}; sleep 60 & echo $! >>{pids}; wait", timeout_s=0.5))
    wait_until(lambda: not any(map(lives, map(int, pids.read_text().split()))), 10)


def test_a_process_that_a_command_left_is_killed_at_its_end(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    assert run_command(shell(f"sleep 60 >/dev/null 2>&1 & echo $! >{pid}")).value == 0
    wait_until(lambda: not lives(int(pid.read_text())), 10)


def test_a_command_whose_caller_was_killed_ends_at_its_time_limit(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"""
from kafka_rollout.model.topology import OutsideCondition
from kafka_rollout.nodes import outside
outside._KILLED_LATER_S = 0.5
outside.run_command(OutsideCondition(name="x", command=("/bin/sh", "-c", "echo $$ >{pids}; sleep 60"), timeout_s=1.5))
"""
    caller = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(ROOT / "plugins")})
    wait_until(lambda: pids.exists() and pids.read_text().strip() != "", 60)
    caller.send_signal(signal.SIGKILL)
    caller.wait(10)
    wait_until(lambda: not lives(int(pids.read_text())), 20)


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
