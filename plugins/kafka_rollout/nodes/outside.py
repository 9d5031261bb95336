"""Values of conditions from outside: queries of a Prometheus server, and commands of the operator on this machine."""

from __future__ import annotations

import os
import selectors
import signal
import ssl
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock

import httpx

from kafka_rollout.base.clock import Clock
from kafka_rollout.base.system.http import http_client, text_of
from kafka_rollout.base.system.sessions import child_environment
from kafka_rollout.client.security.client_security import PrometheusAccess
from kafka_rollout.gates.control import Reading, cut, read_command_answer, read_query_answer
from kafka_rollout.model.topology import ClusterSpec, OutsideCondition

_MOST_OUTPUT = 64 << 10  # bytes of each stream of a command
_KILLED_LATER_S = 5.0  # after this time `timeout` kills a command whose caller was killed
_TRIES = 3  # of a query that has no response
_PAUSE_S = 1.0


class OutsideReader:
    """The port of values from outside. A value is used again until the interval of its condition is over.

    `access`: the Prometheus server; None without its Connection.
    """

    def __init__(self, cluster: ClusterSpec, access: PrometheusAccess | None, clock: Clock) -> None:
        self._cluster = cluster
        self._access = access
        self._clock = clock
        self._known: dict[str, tuple[float, float, Reading]] = {}  # when it began (epoch), ended (monotonic), reading
        self._locks = {one.name: Lock() for one in cluster.conditions}

    def read(self, outside: OutsideCondition, *, not_before: float = 0.0) -> Reading:
        """Return the value; what is unknown has its reason. Gates that are checked together share one reading."""
        with self._locks[outside.name]:
            began, ended, reading = self._known.get(outside.name, (0.0, 0.0, None))
            if reading is None or began <= not_before or self._clock.monotonic() - ended >= outside.interval_s:
                began = self._clock.now()
                reading = run_command(outside) if outside.command else self._query(outside)
                self._known[outside.name] = began, self._clock.monotonic(), reading
            return reading

    def _query(self, outside: OutsideCondition) -> Reading:
        connection = self._cluster.prometheus_connection_id
        if self._access is None:
            return Reading(
                problem=f"Connection {connection} cannot be read, or has no usable URL of Prometheus.",
                remedy="Correct it in Airflow: type HTTP, the URL without credentials as its host. With a password, "
                "the host must begin with https:// or http://. Remove auth_type, cert and proxies from its extra. "
                "On the command line, add an object `prometheus` with `url` to the JSON file of --command-config.",
            )
        try:
            verify = self._access.tls()
        except OSError as error:
            return Reading(
                problem=f"The CA file {self._access.ca_location} of Connection {connection} cannot be used: "
                f"{error.strerror or error}.",
                remedy="Correct its path and its contents.",
            )
        left = _TRIES
        while True:
            left -= 1
            try:
                return query_prometheus(self._access, verify, outside)
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                if left and isinstance(error, httpx.HTTPError):
                    self._clock.sleep(_PAUSE_S)
                    continue
                # The text of other errors can contain a header.
                is_plain = type(error) in (ValueError, httpx.ConnectError, httpx.HTTPStatusError)
                return Reading(
                    problem=f"Prometheus (Connection {connection}) did not respond: "
                    f"{cut(f'{error}' if is_plain else type(error).__name__)}.",
                    remedy="Check the server, the URL and the CA file in the Connection, and the network of this "
                    "machine.",
                )


def query_prometheus(access: PrometheusAccess, verify: ssl.SSLContext | bool, outside: OutsideCondition) -> Reading:
    """Send an instant query once. Raises httpx.HTTPError without a response, ValueError for one that is too long."""
    with http_client(
        access.url, timeout_s=outside.timeout_s, verify=verify, headers=access.sent_headers, auth=access.basic
    ) as client:
        request = client.build_request(
            "GET",
            f"{access.url.rstrip('/')}/api/v1/query",
            params={"query": outside.query, "timeout": f"{outside.timeout_s:g}s"},
        )
        answer, body = text_of(client, request, most_mib=1, within_s=outside.timeout_s)
    if answer.status_code in (401, 403):
        return Reading(
            problem=f"Prometheus refuses the credentials (status {answer.status_code}).",
            remedy="Correct login and password of its Connection. A password without a login is a bearer token.",
        )
    if answer.is_redirect:
        return Reading(
            problem=f"Prometheus redirects the query (status {answer.status_code}), and redirects are not followed.",
            remedy="Write the final URL into its Connection.",
        )
    if answer.status_code >= 500 and not body.lstrip().startswith("{"):
        raise httpx.HTTPStatusError(f"status {answer.status_code}", request=request, response=answer)
    return read_query_answer(body)


def run_command(outside: OutsideCondition) -> Reading:
    """Run the command once, in a session of its own, without the variables of this process.

    Its process group is killed when it ends, takes too long or prints too much. If this process is killed itself,
    `timeout` kills the command a few seconds after its time limit.
    """
    program = outside.command[0]
    if not os.access(program, os.X_OK) or os.path.isdir(program):
        return Reading(
            problem=f"This machine has no program {program} that the user of this process can run.",
            remedy="Install it on every machine that runs tasks or triggers, or correct its path in the inventory.",
        )
    limit = f"{outside.timeout_s + _KILLED_LATER_S:g}"
    try:
        code, output, errors = _run(("timeout", "-s", "KILL", limit, *outside.command), outside.timeout_s)
    except TimeoutError:
        return Reading(
            problem=f"The command did not end in {outside.timeout_s:g} s, and was killed.",
            remedy="Correct the command, or raise timeout_s of the condition.",
        )
    except OSError as error:
        return Reading(
            problem=f"The command cannot be started: {error.strerror or error}.",
            remedy="Install the program `timeout` of coreutils on this machine.",
        )
    except ValueError:
        return Reading(
            problem=f"The command printed more than {_MOST_OUTPUT >> 10} KiB, and was killed.",
            remedy="Let it print one number.",
        )
    return read_command_answer(outside, code, output, errors)


def _run(command: Sequence[str], timeout_s: float) -> tuple[int, str, str]:
    """Return exit code, output and errors. Raises TimeoutError, and ValueError for too much output."""
    until = time.monotonic() + timeout_s
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(),
        cwd="/",
        start_new_session=True,
    )
    kept = {stream: bytearray() for stream in (process.stdout, process.stderr) if stream is not None}
    with process, selectors.DefaultSelector() as ready:
        try:
            for stream in kept:
                ready.register(stream, selectors.EVENT_READ)
            while ready.get_map():
                events = ready.select(until - time.monotonic())
                if not events or time.monotonic() >= until:
                    raise TimeoutError
                for key, _ in events:
                    part = os.read(key.fd, _MOST_OUTPUT)
                    if not part:
                        ready.unregister(key.fileobj)
                    kept[key.fileobj] += part  # type: ignore[index]
                    if len(kept[key.fileobj]) > _MOST_OUTPUT:  # type: ignore[index]
                        raise ValueError
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        finally:  # also what an ended command left
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    output, errors = (bytes(data).decode(errors="replace") for data in kept.values())
    return process.returncode, output, errors
