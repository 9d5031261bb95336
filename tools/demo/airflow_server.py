"""A private Airflow on free ports of loopback, and a client of its REST API: for the demo and for tests.

`airflow standalone` runs scheduler, triggerer, DAG processor and API server under one parent. It is stopped by
SIGINT (SIGTERM leaves its children behind). Processes of its session that do not stop in time are killed by process
id. Brokers that a task started run in other sessions and keep running.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
import psutil
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from kafka_rollout.base.clock import Clock
from kafka_rollout.base.errors import FatalError, TransientError, UserError
from kafka_rollout.base.system.clock import SystemClock
from kafka_rollout.base.system.free_ports import free_ports
from kafka_rollout.base.system.http import http_client
from kafka_rollout.base.system.sessions import start_session, wait_for_exit
from tools.demo.folder import PROJECT_ROOT, session_members

# Airflow's scheduler loses a task that is answered before the scheduler has seen the exit of the asking process: after
# 0.5 s on an idle machine, after several seconds on a busy one.
SECONDS_BEFORE_ANSWER = 6.0
_MAX_TASKS = 5000  # of one run; Airflow returns them as one page
_TIMEOUT_S = 60.0  # of one request, on a busy machine
_ATTEMPTS, _BETWEEN_ATTEMPTS_S = 3, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AirflowUser:
    """`role` is one of SimpleAuthManager's: viewer, user, op, admin. The password is never shown by repr."""

    name: str
    role: str = "user"
    password: str = field(default_factory=lambda: secrets.token_urlsafe(12), repr=False)


@dataclass(slots=True, kw_only=True)
class AirflowServer:
    """One running `airflow standalone`; a context manager that stops it.

    `home` is its AIRFLOW_HOME (database, logs, users); `environment` is added to this process's own.
    """

    home: Path
    port: int
    users: tuple[AirflowUser, ...]
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    @property
    def console_log(self) -> Path:
        """The output of all components."""
        return self.home / "standalone.log"

    @classmethod
    def start(
        cls,
        home: Path,
        *,
        users: Sequence[AirflowUser] = (AirflowUser(name="admin", role="admin"),),
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
    ) -> Self:
        """Start and wait until all components are healthy; raises FatalError with the end of the console log."""
        home.mkdir(parents=True, exist_ok=True)
        passwords = home / "users.json"
        passwords.touch(mode=0o600)
        passwords.chmod(0o600)
        passwords.write_text(json.dumps({user.name: user.password for user in users}))
        api, task_logs, trigger_logs = free_ports(3)
        server = cls(
            home=home,
            port=api,
            users=tuple(users),
            environment={
                **_own_environment(home, api, task_logs, trigger_logs),
                "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT_ROOT / "dags"),
                "AIRFLOW__CORE__PLUGINS_FOLDER": str(PROJECT_ROOT / "plugins"),
                "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{user.name}:{user.role}" for user in users),
                "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
                **(environment or {}),
            },
            process=None,  # type: ignore[arg-type]  # set on the next line
        )
        server.process = server.launch()
        try:
            server._wait_healthy(timeout_s)
        except BaseException:
            server.stop()
            raise
        return server

    def launch(self, command: str = "standalone") -> subprocess.Popen[bytes]:
        """Start one of Airflow's commands with this server's environment, in a new session."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # it calls `airflow` by name
        return start_session(
            [sys.executable, "-m", "airflow", command],
            self.console_log,
            environment={**os.environ, "PATH": path, **self.environment},
            cwd=self.home,
        )

    def _wait_healthy(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise FatalError(f"Airflow exited with code {self.process.returncode}.", remedy=self._log_end())
            if self.healthy():
                return
            time.sleep(0.3)
        raise FatalError(f"Airflow was not healthy after {timeout_s:.0f} s.", remedy=self._log_end())

    def _log_end(self, lines: int = 15) -> str:
        text = self.console_log.read_text(errors="replace").splitlines() if self.console_log.exists() else []
        return f"The end of {self.console_log}:\n" + "\n".join(text[-lines:])

    def healthy(self) -> bool:
        """Return whether scheduler, triggerer, DAG processor and database report it."""
        try:
            with http_client(self.url, timeout_s=5.0) as http:
                answer = http.get(f"{self.url}/api/v2/monitor/health").json()
        except (httpx.HTTPError, ValueError):
            return False
        return all(
            (answer.get(part) or {}).get("status") == "healthy"
            for part in ("metadatabase", "scheduler", "triggerer", "dag_processor")
        )

    def client(self, user: str | None = None) -> AirflowClient:
        """Return a client for one of the users (default: the first)."""
        for known in self.users:
            if user in (None, known.name):
                return AirflowClient(url=self.url, user=known.name, password=known.password)
        raise UserError(f"This Airflow has no user {user}.", remedy=f"It has {', '.join(u.name for u in self.users)}.")

    def stop(self, *, deadline_s: float = 30.0) -> None:
        """Stop Airflow by SIGINT; kill the processes of its session that run after the deadline."""
        own = session_members({self.process.pid})
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(deadline_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        left = wait_for_exit(own, 5.0)
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        wait_for_exit(left, 5.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _own_environment(home: Path, api: int, task_logs: int, trigger_logs: int) -> dict[str, str]:
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(api),
        "AIRFLOW__API__BASE_URL": f"http://localhost:{api}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__MAXIMUM_PAGE_LIMIT": str(_MAX_TASKS),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://localhost:{api}/execution/",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(task_logs),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_logs),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        # The API server builds its application at the first request of a task. After the default of 5 s, which a busy
        # machine needs for that, the supervisor asks again, is told that the task runs already, and the task fails.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2]"}',
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        # Requests to loopback must not go through a proxy of the machine.
        "NO_PROXY": "localhost,127.0.0.1",
        "no_proxy": "localhost,127.0.0.1",
    }


def task_and_index(name: str) -> tuple[str, int]:
    """Return task id and map index of a name such as `roll.replace[2]`; -1 for a task that is not mapped."""
    task_id, _, index = name.partition("[")
    return task_id, int(index.removesuffix("]")) if index else -1


def _name_of(task: Mapping[str, Any]) -> str:
    index = int(task["map_index"])
    return str(task["task_id"]) if index < 0 else f"{task['task_id']}[{index}]"


def _log_line(line: Any) -> str:
    """Return one line of a task's log as text, with its exception."""
    if isinstance(line, str):
        return line
    errors = [f"{error['exc_type']}: {error['exc_value']}" for error in line.get("error_detail") or ()]
    return " ".join([str(line.get("event", line)), *errors])


def _send(http: httpx.Client, method: str, path: str, **kwargs: Any) -> Any:
    try:
        answer = http.request(method, path, **kwargs)
    except httpx.HTTPError as error:
        raise TransientError(f"Airflow at {http.base_url} did not answer {method} {path}: {error}.") from error
    if answer.status_code >= 500:
        raise TransientError(f"Airflow answered {method} {path} with {answer.status_code}: {answer.text[:300]}.")
    if answer.is_error:
        raise UserError(f"Airflow answered {method} {path} with {answer.status_code}: {answer.text[:500]}.")
    return answer.json() if answer.content else None


@dataclass(slots=True, kw_only=True)
class AirflowClient:
    """The calls of Airflow's REST API (v2) that are used here, signed in as one user."""

    url: str
    user: str
    password: str = field(repr=False)
    clock: Clock = field(default_factory=SystemClock, repr=False)
    _http: httpx.Client | None = field(default=None, init=False, repr=False)

    def call(self, method: str, path: str, **kwargs: Any) -> Any:
        """Return the JSON answer to a request; signs in first. Raises TransientError (no answer, 5xx) or UserError."""
        return _send(self.http(), method, path, **kwargs)

    def http(self) -> httpx.Client:
        """The connection to the server, signed in at the first call. Raises as `call` does."""
        if self._http is None:
            # trust_env=False: no proxy between this machine and itself.
            http = httpx.Client(base_url=self.url, timeout=_TIMEOUT_S, trust_env=False)
            credentials = {"username": self.user, "password": self.password}
            token = self._patiently(http, "POST", "/auth/token", json=credentials)["access_token"]
            http.headers["Authorization"] = f"Bearer {token}"
            self._http = http
        return self._http

    def get(self, path: str, **params: Any) -> Any:
        """GET of a path below /api/v2."""
        return self._patiently(self.http(), "GET", f"/api/v2{path}", params=params)

    def _patiently(self, http: httpx.Client, method: str, path: str, **kwargs: Any) -> Any:
        """Try a request three times that changes nothing: Airflow's database is locked from time to time."""
        attempts = Retrying(
            retry=retry_if_exception_type(TransientError),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_fixed(_BETWEEN_ATTEMPTS_S),
            sleep=self.clock.sleep,
            reraise=True,
        )
        return attempts(_send, http, method, path, **kwargs)

    def wait_for_dag(self, dag_id: str, *, timeout_s: float = 90.0) -> None:
        """Wait until the DAG processor has read the DAG. Raises UserError with the import errors after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self.get(f"/dags/{dag_id}/details")
                return
            except UserError:
                if time.monotonic() > deadline:
                    errors = self.get("/importErrors")["import_errors"]
                    texts = "; ".join(f"{e['filename']}: {e['stack_trace'][-300:]}" for e in errors) or "none"
                    raise UserError(f"Airflow does not know the DAG {dag_id}. Import errors: {texts}.") from None
            time.sleep(0.5)

    def trigger(self, dag_id: str, conf: Mapping[str, Any], *, run_id: str | None = None) -> str:
        """Start a run and return its id. Raises UserError for bad values (400)."""
        body: dict[str, Any] = {"logical_date": None, "conf": dict(conf)}
        if run_id is not None:
            body["dag_run_id"] = run_id
        return str(self.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", json=body)["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        return str(self.get(f"/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def tasks(self, dag_id: str, run_id: str) -> dict[str, dict[str, Any]]:
        """Return the task instances of a run, by task id; those of a mapped task by its id with the map index:
        `roll.replace[2]`.
        """
        page = self.get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances", limit=_MAX_TASKS)
        return {_name_of(task): task for task in page["task_instances"]}

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        return {task_id: task["state"] for task_id, task in self.tasks(dag_id, run_id).items()}

    def log(self, dag_id: str, run_id: str, task_id: str) -> str:
        """The log of a task's newest try."""
        task_id, map_index = task_and_index(task_id)
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
        mapped = f"/{map_index}" if map_index >= 0 else ""
        attempt = max(1, int(self.get(f"{path}{mapped}")["try_number"]))
        content = self.get(f"{path}/logs/{attempt}", full_content=True, map_index=map_index)["content"]
        return "\n".join(_log_line(line) for line in content)

    def questions(self, dag_id: str, run_id: str) -> dict[str, dict[str, Any]]:
        """Return the decision requests that are open now, by task id."""
        details = self.get(f"/dags/{dag_id}/dagRuns/{run_id}/hitlDetails", response_received=False)["hitl_details"]
        return {
            _name_of(detail["task_instance"]): detail
            for detail in details
            if detail["task_instance"]["state"] == "awaiting_input"
        }

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str, **entered: Any) -> None:
        """Answer a decision request as this user; `entered`: the form's fields. Waits SECONDS_BEFORE_ANSWER first."""
        time.sleep(SECONDS_BEFORE_ANSWER)
        asked = self.questions(dag_id, run_id).get(task_id, {}).get("params") or {}
        form = {name: field["value"] for name, field in asked.items()}
        task_id, map_index = task_and_index(task_id)
        self.call(
            "PATCH",
            f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/{map_index}/hitlDetails",
            json={"chosen_options": [option], "params_input": {**form, **entered}},
        )
