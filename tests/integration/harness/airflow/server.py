"""A private Airflow server for tests that change a real cluster through a DAG, and the checks they share."""

from __future__ import annotations

import fcntl
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.files import write_whole
from kafka_rollout.base.system.sessions import wait_for_exit
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import NEVER, NodeSpec
from kafka_rollout.nodes.metrics import NodeMetricsReader
from kafka_rollout.run.store.history import SqlRunStore
from tests.records import change_lock, run_history
from tests.waiting import wait_until
from tools.demo.airflow_server import AirflowClient, AirflowServer, AirflowUser, task_and_index
from tools.demo.folder import session_members
from tools.demo.local_cluster import LocalCluster

ADMIN, APPROVER, OTHER = "admin", "anna", "otto"
PATIENCE_S = 900.0  # limit of each wait: for a busy machine
DONE = {"success", "failed"}
MOST_ANSWERS = 3  # to one question
_LOOK_S = 2.0  # between two looks at a run: each is two or three requests to the API server

# Snapshots within seconds instead of an hour; set from the start, so no node is restarted for it.
QUICK_SNAPSHOTS = {"metadata.log.max.snapshot.interval.ms": "5000"}

QUICKLY: Mapping[str, Any] = {"pace": "fast", "traffic": True}

# Never started: with this cluster, Airflow knows the DAG file before a test adds its own, and can be made to parse it
# again at once.
_NOBODY = """\
name: nobody
approvers: [anna]
scan_schedule: never
nodes:
  - {id: 1, name: node-1, roles: [broker, controller], broker_address: 127.0.0.1:19, controller_address: 127.0.0.1:20,
     directory: nobody/node-1}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateAirflow:
    """A running Airflow with its own inventory folder and home."""

    server: AirflowServer
    clusters: Path
    home: Path
    restarted: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    @contextmanager
    def open(cls, folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[PrivateAirflow]:
        """`environment`: more variables of Airflow, such as its database."""
        clusters, home = folder / "clusters", folder / "home"
        clusters.mkdir(parents=True)
        (clusters / "nobody.yaml").write_text(_NOBODY)
        users = (
            AirflowUser(name=ADMIN, role="admin"),
            AirflowUser(name=APPROVER, role="user"),
            AirflowUser(name=OTHER, role="user"),
        )
        environment = {
            **(environment or {}),
            "KAFKA_ROLLOUT_CLUSTERS": str(clusters),
            "KAFKA_ROLLOUT_HOME": str(home),
            # The DAG file is read when a test asks for it, however long that takes on a busy machine.
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
            "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "300",
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "240",
            # How soon a task whose supervisor died with the scheduler is taken up again; five minutes by default.
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
            # At 0.2 s (the demo's) an idle scheduler takes a sixth of a core from the other tests.
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
        }
        server = AirflowServer.start(folder / "airflow", users=users, environment=environment, timeout_s=600)
        airflow = cls(server=server, clusters=clusters, home=home)
        try:
            yield airflow
        finally:
            airflow.stop_restarted()
            server.stop(deadline_s=5.0)  # its database is thrown away

    def client(self, user: str = ADMIN) -> AirflowClient:
        return self.server.client(user)

    def component_pid(self, component: str) -> int:
        """Process id of `scheduler`, `triggerer`, `dag-processor` or `api-server`.

        Airflow does not wait for a component that was killed, so it stays as a process without arguments.
        """
        for child in psutil.Process(self.server.process.pid).children():
            with suppress(psutil.ZombieProcess):
                arguments = child.cmdline()
                if arguments[-1:] == [component] or component in arguments[1:4]:
                    return child.pid
        raise AssertionError(f"Airflow has no running {component}.")

    def start_component(self, component: str) -> None:
        """Start a component again that was killed (standalone does not)."""
        self.restarted.append(self.server.launch(component))

    def stop_restarted(self) -> None:
        own = session_members({component.pid for component in self.restarted})
        for component in self.restarted:
            component.terminate()
        for process in wait_for_exit(own, 5.0):
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def add(self, cluster: LocalCluster, dag: str = "kafka_upgrade") -> str:
        """Put a cluster into the inventory; the answer is its DAG's id, once Airflow knows it.

        Its logs are scanned only when a test asks for it, also at midnight.
        """
        described = replace(cluster.spec, approvers=(APPROVER,), scan_schedule=NEVER)
        write_whole(self.clusters / f"{described.name}.yaml", dump_cluster(described).encode(), mode=0o644)
        client, dag_id = self.client(), f"{dag}_{described.name}"
        client.wait_for_dag(f"{dag}_nobody", timeout_s=600)
        token = client.get(f"/dags/{dag}_nobody/details")["file_token"]
        client.call("PUT", f"/api/v2/parseDagFile/{token}")  # now, not when its interval is over
        client.wait_for_dag(dag_id, timeout_s=600)
        return dag_id

    def trigger(self, cluster: LocalCluster, target: str, *, dag: str = "kafka_upgrade", **conf: Any) -> Run:
        client, dag_id = self.client(), f"{dag}_{cluster.spec.name}"
        run_id = client.trigger(dag_id, {"target_release": target, **QUICKLY, **conf})
        return Run(airflow=self, cluster=cluster, dag_id=dag_id, run_id=run_id, client=client)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """An answer that a test gave; `at` is monotonic."""

    option: str
    reason: str
    by: str
    at: float
    times: int


@dataclass(slots=True, kw_only=True)
class Run:
    """One run of a cluster's DAG."""

    airflow: PrivateAirflow
    cluster: LocalCluster
    dag_id: str
    run_id: str
    client: AirflowClient
    _given: dict[str, _Given] = field(default_factory=dict, init=False)

    @property
    def store(self) -> SqlRunStore:
        return run_history(self.airflow.home, self.cluster.spec.name, self.run_id)

    def report(self) -> dict[str, Any]:
        return dict(self.store.attachment("report.json") or {})

    def states(self) -> dict[str, str | None]:
        return self.client.task_states(self.dag_id, self.run_id)

    def log(self, task_id: str) -> str:
        return self.client.log(self.dag_id, self.run_id, task_id)

    def wait_for_log(self, task_id: str, text: str) -> None:
        """A task's supervisor tells its end before it has written down the last that the task said."""

        def is_written() -> bool:
            try:
                return text in self.log(task_id)
            except UserError:  # the task has not begun
                return False

        wait_for(is_written, timeout_s=PATIENCE_S, every_s=0.5, said=f"{text} in {task_id}'s log")

    def seen(self) -> tuple[dict[str, dict[str, Any]], str]:
        """What is asked now, and the run's state."""
        questions = self.client.questions(self.dag_id, self.run_id)
        state = self.client.run_state(self.dag_id, self.run_id)
        return self._unanswered(questions), state

    def _unanswered(self, questions: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Without those that this test has answered.

        Airflow commits an answer after it has said that it took it, so a question is seen a little longer. And when
        an answer comes before the process that asked has ended, which takes its time on a busy machine, Airflow takes
        the task for failed and its next try asks again: it gets the same answer.
        """
        for task_id, given in list(self._given.items()):
            if task_id in questions and given.at < time.monotonic() - 10.0:
                assert given.times < MOST_ANSWERS, f"{task_id} asks again and again"
                self.answer(task_id, given.option, given.reason, by=given.by)
        return {task_id: question for task_id, question in questions.items() if task_id not in self._given}

    def wait_for_question(self, task_id: str, *, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """Until a task asks; fails at once when the run ends or something else is asked instead."""
        deadline = time.monotonic() + timeout_s
        while True:
            questions, state = self.seen()
            if task_id in questions:
                return questions[task_id]
            assert not questions, f"{task_id} was to ask, but {self.described(questions)}"
            assert state not in DONE, f"{task_id} was to ask, but the run ended {state}: {self.failures()}"
            assert time.monotonic() < deadline, f"{task_id} did not ask in {timeout_s:.0f} s: {self.states()}"
            time.sleep(_LOOK_S)

    def answer(self, task_id: str, option: str, reason: str, *, by: str = APPROVER) -> None:
        self.airflow.client(by).answer(self.dag_id, self.run_id, task_id, option, reason=reason)
        self.note_answer(task_id, option, reason, by=by)

    def note_answer(self, task_id: str, option: str, reason: str, *, by: str = APPROVER) -> None:
        """Also one that was given in the page: who asks again gets it again."""
        times = self._given[task_id].times + 1 if task_id in self._given else 1
        self._given[task_id] = _Given(option=option, reason=reason, by=by, at=time.monotonic(), times=times)

    def approve(self, task_id: str, *, timeout_s: float = PATIENCE_S) -> None:
        self.wait_for_question(task_id, timeout_s=timeout_s)
        self.answer(task_id, "Approve", f"{task_id} looks right to me")

    def clear(self, task_id: str) -> None:
        """Clear a task with everything after it, as a user does in the page; what it asks is asked again."""
        task, index = task_and_index(task_id)
        body = {
            "dry_run": False,
            "dag_run_id": self.run_id,
            "task_ids": [task_id if index < 0 else [task, index]],
            "include_downstream": True,
            "only_failed": False,
            "reset_dag_runs": True,
        }
        answer = self.client.call("POST", f"/api/v2/dags/{self.dag_id}/clearTaskInstances", json=body)
        for cleared in answer["task_instances"]:
            for name in list(self._given):
                if task_and_index(name)[0] == cleared["task_id"]:
                    del self._given[name]

    def mark_success(self, task_id: str) -> None:
        """Mark a task instance as successful, as a user can in the page."""
        task, index = task_and_index(task_id)
        path = f"/api/v2/dags/{self.dag_id}/dagRuns/{self.run_id}/taskInstances/{task}"
        self.client.call("PATCH", f"{path}/{index}" if index >= 0 else path, json={"new_state": "success"})

    def wait_for_task(self, task_id: str, *, timeout_s: float = PATIENCE_S) -> None:
        """Until a task has succeeded."""
        deadline = time.monotonic() + timeout_s
        while True:
            _, state = self.seen()  # before the task's: a run that is over changes no task
            if self.states().get(task_id) == "success":
                return
            assert state not in DONE, f"{task_id} was to succeed, but the run ended {state}: {self.failures()}"
            assert time.monotonic() < deadline, f"{task_id} did not succeed in {timeout_s:.0f} s: {self.states()}"
            time.sleep(_LOOK_S)

    def wait_done(self, *, timeout_s: float = PATIENCE_S) -> str:
        """Until the run is over; a question that nobody expects is a failure."""
        deadline = time.monotonic() + timeout_s
        while True:
            questions, state = self.seen()
            if state in DONE:
                return state
            assert not questions, f"nobody expected that {self.described(questions)}"
            assert time.monotonic() < deadline, f"the run was not over in {timeout_s:.0f} s: {self.states()}"
            time.sleep(_LOOK_S)

    def wait_success(self, *, timeout_s: float = PATIENCE_S) -> None:
        state = self.wait_done(timeout_s=timeout_s)
        assert state == "success", self.failures()

    def described(self, questions: Mapping[str, Mapping[str, Any]]) -> str:
        return "; ".join(f"{task_id} asks '{q['subject']}': {q['body']}" for task_id, q in questions.items())

    def failures(self) -> str:
        failed = [task_id for task_id, state in self.states().items() if state in {"failed", "up_for_retry"}]
        return "\n".join(f"{task_id}: {self.log(task_id)[-1500:]}" for task_id in failed) or "no task failed"

    def seconds_by_task(self) -> dict[str, float]:
        tasks = self.client.tasks(self.dag_id, self.run_id)
        return {task_id: round(float(t["duration"]), 1) for task_id, t in tasks.items() if t["duration"]}


def starts(cluster: LocalCluster) -> dict[str, dict[str, int]]:
    """How often each node was started on each release, since it was made."""
    return {
        node.name: dict(Counter(str(start.release) for start in cluster.runtime.starts(node)))
        for node in cluster.spec.nodes
    }


def start_order(cluster: LocalCluster, release: str) -> list[int]:
    """Ids of the nodes in the order of their (last) starts on a release."""
    at = {
        node.node_id: start.started_at
        for node in cluster.spec.nodes
        for start in cluster.runtime.starts(node)
        if str(start.release) == release
    }
    return sorted(at, key=lambda node_id: at[node_id])


def each_started_once(cluster: LocalCluster, *releases: str) -> None:
    expected = dict.fromkeys(releases, 1)
    assert starts(cluster) == {node.name: expected for node in cluster.spec.nodes}


def all_run(cluster: LocalCluster, release: str) -> None:
    """By what the nodes' processes say of themselves (app-info), not by what was installed."""
    read = NodeMetricsReader().read
    assert {node.name: str(read(node).release) for node in cluster.spec.nodes} == {
        node.name: release for node in cluster.spec.nodes
    }


def finalized(cluster: LocalCluster, node: NodeSpec) -> dict[str, int]:
    """The levels that one node names, asked itself."""
    admin = KafkaAdmin(cluster.spec)
    try:
        return {name: level for name, level in admin.features(node).finalized.items() if level}
    finally:
        admin.close()


def leadership(cluster: LocalCluster) -> tuple[int, int]:
    """The active controller, and the epoch in which it leads."""
    with KafkaAdmin(cluster.spec) as admin:
        quorum = admin.quorum()
        return quorum.leader_id, quorum.leader_epoch


def planned_last(plan: Plan, cluster: LocalCluster, before: tuple[int, int]) -> int:
    """The plan's last controller. It is the active one, by `before` the plan and by a check now; on a busy machine
    there may be an election between the two, and then it is unknown which of them the plan saw."""
    (active,) = (node_step.node_id for node_step in plan.release_steps[0].order if node_step.active_controller)
    assert active == before[0] or leadership(cluster) != before
    return active


def nothing_lost(traffic: Mapping[str, Any] | None, consumers: Sequence[str] = ("classic", "consumer")) -> None:
    """The test traffic ran with transactions and with each protocol, and everything acknowledged was consumed."""
    assert traffic is not None
    assert traffic["ok"], traffic["discrepancies"]
    assert traffic["acknowledged"] > 0
    assert traffic["transactions"]["committed"] > 0
    assert set(traffic["consumed"]) == set(consumers)
    assert all(count > 0 for count in traffic["consumed"].values())


def every_gate_has_evidence(report: Mapping[str, Any]) -> None:
    assert report["gates"]
    for gate in report["gates"]:
        conditions = [condition for check in gate["checks"] for condition in check["conditions"]]
        assert conditions, f"{gate['gate']} was passed without a check"
        assert all(condition["evidence"] for condition in conditions), gate["gate"]


def no_lock_left(airflow: PrivateAirflow, cluster: LocalCluster) -> None:
    assert change_lock(airflow.home).holder(cluster.spec.name) is None


@contextmanager
def held_while_it_stops(home: Path, *, timeout_s: float) -> Iterator[None]:
    """After a run has claimed a node of this machine, keep the lock of its home, for which its stop waits."""
    claims = home / "claims"
    wait_for(
        lambda: claims.is_dir() and any(claims.iterdir()),
        timeout_s=timeout_s,
        every_s=0.05,
        said="the claim, which needs the lock of the node",
    )
    with (home / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def wait_for(what: Callable[[], Any], *, timeout_s: float, every_s: float = 0.1, said: str = "it") -> Any:
    """The first true value of `what`."""
    return wait_until(what, timeout_s, every_s=every_s, said=said)
