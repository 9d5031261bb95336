"""`make demo`: starts the cluster and Airflow, follows the run of the DAG, prints the report and a summary."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from rich.console import Console
from rich.table import Table

from kafka_rollout.base.durations import duration
from kafka_rollout.base.errors import FatalError, RolloutError, TransientError, UserError
from kafka_rollout.base.outside_text import escape_invisible
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.system.signals import interrupt_on_sigterm
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.procedure.progress import Progress
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.run.store.opening import open_run
from tools.demo.airflow_server import AirflowClient, AirflowServer, AirflowUser
from tools.demo.approvals import Approve, Approver
from tools.demo.cluster import NAME, create_cluster, live_traffic, lowerable_from
from tools.demo.folder import DEMOS, DemoFolder, end_demo


def succeeded(report: Mapping[str, Any]) -> bool:
    """Return whether the run finished and the traffic check, which must exist, passed."""
    traffic = report.get("traffic") or {}
    return report.get("outcome") == "finished" and bool(traffic.get("ok"))


def show(console: Console, report: Mapping[str, Any]) -> None:
    console.rule(f"[bold]{report['cluster']}: {report['source']} → {report['target']}: {report['outcome']}")
    console.print(f"{report['sentence']} It took {duration(report['duration_s'])}.")
    console.print(_nodes(report))
    console.print(_features(report))
    for line in _traffic_lines(report.get("traffic")):
        console.print(line)
    gates = report["gates"]
    passed = sum(gate["state"] in {"passed", "passes"} for gate in gates)
    console.print(f"Gates: {passed} of {len(gates)} passed; the report shows the evidence of each.")
    for approval in report["approvals"]:
        line = f"{approval['by']} {approval['decision']} '{approval['what']}': {approval['reason']}"
        console.print(escape_invisible(line), markup=False)


def _nodes(report: Mapping[str, Any]) -> Table:
    table = Table(title="Nodes", title_justify="left")
    for column in ("Node", "Release", "Starts", "Node step took", "CurrentMetadataVersion"):
        table.add_column(column, no_wrap=column == "Node")
    levels = {one["node_id"]: one for one in report["current_metadata_version"]}
    for node in report["nodes"]:
        node_steps = [
            duration(node_step["total_s"]) if node_step["total_s"] is not None else "-"
            for node_step in node["node_steps"]
        ]
        starts = ", ".join(f"{release}: {count}" for release, count in node["starts_per_release"].items())
        table.add_row(
            node["name"],
            str(node["release"]),
            starts or "none",
            ", ".join(node_steps) or "-",
            _level(levels.get(node["node_id"], {})),
        )
    return table


def _level(levels: Mapping[str, Any]) -> str:
    agents = {levels.get("prometheus"), levels.get("jolokia")} - {None}
    if len(agents) == 1 and levels.get("prometheus") == levels.get("jolokia"):
        return f"{agents.pop()} by both agents"
    if agents:
        return f"Prometheus {levels.get('prometheus')}, Jolokia {levels.get('jolokia')}"
    return f"{levels.get('api_versions')} (ApiVersions)"


def _features(report: Mapping[str, Any]) -> Table:
    table = Table(title="Finalized features", title_justify="left")
    for column in ("Feature", "Before", "After"):
        table.add_column(column)
    before, after = report["features"]["before"], report["features"]["after"]
    for feature in sorted({*before, *after}):
        table.add_row(feature, str(before.get(feature, 0)), str(after.get(feature, 0)))
    return table


def _traffic_lines(traffic: Mapping[str, Any] | None) -> list[str]:
    if not traffic:
        return ["Test traffic: none."]
    consumed = ", ".join(f"{consumer} {count}" for consumer, count in traffic["consumed"].items())
    longest = max(traffic["unavailable_s"].values(), default=0.0)
    lines = [
        f"Test traffic: {traffic['acknowledged']} records acknowledged; consumed: {consumed}; "
        f"longest unavailability {longest:.1f} s; {'check passed' if traffic.get('ok') else 'CHECK FAILED'}."
    ]
    return lines + [str(one["sentence"]) for one in traffic.get("discrepancies", ())]


ADMIN, APPROVER = "admin", "approver"
_POLL_S = 1.0
_AIRFLOW_S = 600.0  # 20 s on an idle machine
_NO_RESPONSE_S = 180.0
_SILENCE_S = 20.0  # without news, the current tasks are printed after this time


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Answer invalid input in one sentence, as the other commands do."""
        raise UserError(f"{self.prog}: {message}.", remedy=f"For all options, see `{self.prog} --help`.")


def main(arguments: Sequence[str]) -> int:
    parser = _Parser(
        prog="python -m tools.demo",
        description="Start a real cluster, test traffic and Airflow on this machine. Upgrade or downgrade the cluster "
        "through the DAG.",
    )
    parser.add_argument(
        "--from", dest="source", default="3.9.1", metavar="RELEASE", help="first release; default: 3.9.1"
    )
    parser.add_argument(
        "--to", dest="target", default="4.3.1", metavar="RELEASE", help="target release; default: 4.3.1"
    )
    parser.add_argument(
        "--approve",
        nargs="?",
        choices=("ask", "auto"),
        const="ask",
        help="approve in this terminal (ask) or automatically (auto); default: in Airflow's UI",
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep cluster and Airflow running after the run; `make clean` stops them"
    )
    given = parser.parse_args(list(arguments))
    return run_demo(
        Release.parse(given.source),
        Release.parse(given.target),
        approve=given.approve or "ui",
        keep=given.keep,
    )


class CreateCluster(Protocol):
    """Starts the demo's cluster and writes its inventory to the demo's folder."""

    def __call__(self, folder: DemoFolder, release: Release, *, metadata_version: str | None = None) -> ClusterSpec: ...


def run_demo(
    source: Release,
    target: Release,
    *,
    approve: Approve = "ui",
    keep: bool = False,
    below: Path = DEMOS,
    create: CreateCluster = create_cluster,
    opened: Callable[[int], None] = lambda port: None,
    accepts: Sequence[str] = (),
) -> int:
    """Run the demo; return 0 if the run finished and the traffic check passed. An older `target` is a downgrade.

    Stops everything it started, unless `keep`. The last line on standard output is the path of the report (JSON).
    `opened` gets the port of Airflow. `accepts`: as in Approver.
    """
    _check(source, target, Settings.from_environment())
    folder = DemoFolder.create(below)
    console = Console(highlight=False)
    demo = _Demo(
        folder=folder,
        source=source,
        target=target,
        approve=approve,
        console=console,
        began=time.monotonic(),
        create=create,
        opened=opened,
        accepts=accepts,
    )
    with interrupt_on_sigterm():
        try:
            report_path, report = demo.run()
        except BaseException as error:
            if keep and isinstance(error, Exception):  # Ctrl-C always stops it
                console.print(kept(folder), soft_wrap=True)
            else:
                demo.say(f"stopping everything; logs and run history stay in {folder.path}")
                end_demo(folder.path)
            raise
        if keep:
            console.print(kept(folder), soft_wrap=True)
        else:
            demo.say("stopping everything")
            end_demo(folder.path)
    show(console, report)
    console.print(f"Report: {report_path.with_suffix('.html')}", soft_wrap=True)
    print(report_path, flush=True)
    return 0 if succeeded(report) else FatalError.exit_code


def kept(folder: DemoFolder) -> str:
    """Return the folder of a demo that keeps running, and the commands that reach its cluster from a shell."""
    settings = folder.settings
    return (
        f"Kept running: {folder.path}. `make clean` stops it. From a shell:\n"
        f"export KAFKA_ROLLOUT_CLUSTERS={settings.clusters} KAFKA_ROLLOUT_HOME={settings.home}\n"
        f".venv/bin/kafka-rollout verify --details --cluster {NAME}"
    )


def _check(source: Release, target: Release, settings: Settings) -> None:
    """Check the releases before anything is started. Raises UserError."""
    catalogue = load_catalogue(*settings.catalogue_folders)
    cache = ReleaseCache.from_settings(settings)
    for release in (source, target):
        catalogue.get(release)
        if release not in cache.known():
            raise UserError(
                f"There is no lock file for the jars of Kafka {release}.",
                remedy=f"Choose one of {', '.join(map(str, cache.known()))}.",
            )
    if target == source:
        raise UserError(
            f"The demo needs two different releases, but both are {target}.",
            remedy="Set TO to a later release for an upgrade, or to an earlier one for a downgrade.",
        )
    for release in (source, target):
        cache.libs(release)
    cache.agents()


@dataclass(slots=True, kw_only=True)
class _Demo:
    folder: DemoFolder
    source: Release
    target: Release
    approve: Approve
    console: Console
    began: float
    create: CreateCluster
    opened: Callable[[int], None]
    accepts: Sequence[str]

    @property
    def is_downgrade(self) -> bool:
        return self.target < self.source

    @property
    def dag_id(self) -> str:
        return f"kafka_{'downgrade' if self.is_downgrade else 'upgrade'}_{NAME}"

    def say(self, text: str) -> None:
        elapsed = int(time.monotonic() - self.began)
        self.console.print(f"[{elapsed // 60:2d}:{elapsed % 60:02d}] {text}", markup=False, soft_wrap=True)

    def run(self) -> tuple[Path, dict[str, Any]]:
        """Start cluster, traffic and Airflow, follow the run; return the path of the report and the report."""
        self.say(f"starting three controllers and three brokers on Kafka {self.source} in {self.folder.path}")
        spec = self.create(self.folder, self.source, metadata_version=self._level())
        self.say(f"the cluster is in service at {spec.bootstrap_servers}")
        with live_traffic(spec):
            self.say("a producer and a consumer group run; starting Airflow")
            server = AirflowServer.start(
                self.folder.airflow_home,
                users=(AirflowUser(name=ADMIN, role="admin"), AirflowUser(name=APPROVER, role="user")),
                environment=self.folder.environment(),
                timeout_s=_AIRFLOW_S,
            )
            self.opened(server.port)
            for user in server.users:
                self.say(f"Airflow: {server.url}   user {user.name}, password {user.password}")
            client = server.client(ADMIN)
            client.wait_for_dag(self.dag_id, timeout_s=_AIRFLOW_S)
            run_id = client.trigger(self.dag_id, self._parameters())
            page = f"{server.url}/dags/{self.dag_id}/runs/{run_id}"
            self.say(f"triggered {self.dag_id} to {self.target}: {page}")
            approver = Approver(
                how=self.approve,
                accepts=self.accepts,
                user=APPROVER,
                client=server.client(APPROVER),
                console=self.console,
                link=lambda task_id: f"{page}/tasks/{task_id}/required_actions",
            )
            state = self._follow(client, run_id, approver)
            self.say(f"the run ended: {state}")
        return self._report(run_id)

    def _parameters(self) -> dict[str, Any]:
        return {
            "target_release": str(self.target),
            # As in most deployments, only the files of brokers have min.insync.replicas here.
            **({} if self.is_downgrade else {"finalize": "after_approval", "pin_min_insync_replicas": True}),
            "traffic": True,
            "pace": "fast",
        }

    def _level(self) -> str | None:
        if not self.is_downgrade:
            return None
        catalogue = load_catalogue(*Settings.from_environment().catalogue_folders)
        return lowerable_from(catalogue.get(self.source), catalogue.get(self.target)).name

    def _follow(self, client: AirflowClient, run_id: str, approver: Approver) -> str:
        """Print the progress and answer the decision requests until the run has ended; return its state."""
        progress, store = Progress(), open_run(NAME, run_id, self.folder.settings)
        plan: Plan | None = None
        answered = last_news = time.monotonic()
        while True:
            try:
                state = client.run_state(self.dag_id, run_id)
                tasks = client.task_states(self.dag_id, run_id)
                questions = client.questions(self.dag_id, run_id)
                answered = time.monotonic()
            except TransientError:
                if time.monotonic() - answered > _NO_RESPONSE_S:
                    raise
                time.sleep(_POLL_S)
                continue
            if plan is None:
                with suppress(RolloutError):
                    plan = store.load_plan()
            for line in progress.lines(plan, store.events()):
                self.say(line)
                last_news = time.monotonic()
            if state in ("success", "failed"):
                self._print_failures(client, run_id, tasks)
                return state
            approver.handle(self.dag_id, run_id, questions, plan)
            if time.monotonic() - last_news > _SILENCE_S:
                last_news = time.monotonic()
                self.say(_still(tasks, questions, progress.estimate(plan)))
            time.sleep(_POLL_S)

    def _print_failures(self, client: AirflowClient, run_id: str, tasks: Mapping[str, str | None]) -> None:
        """Print the last error in the log of each failed task."""
        for task_id in (task_id for task_id, state in tasks.items() if state == "failed"):
            with suppress(RolloutError):
                log = client.log(self.dag_id, run_id, task_id)
                errors = [line for line in log.splitlines() if "Exception: " in line]
                if errors:
                    self.say(f"{task_id}: {errors[-1].split('Exception: ', 1)[1]}")

    def _report(self, run_id: str) -> tuple[Path, dict[str, Any]]:
        store = open_run(NAME, run_id, self.folder.settings)
        report: dict[str, Any] | None = store.attachment("report.json")
        if report is None:
            raise FatalError(
                "The run ended without a report.", remedy=f"Its tasks' logs are below {self.folder.airflow_home}/logs."
            )
        return Path(store.location("report.json")), report


def _still(tasks: dict[str, str | None], questions: dict[str, Any], estimate: str) -> str:
    if questions:
        return f"waiting for an approver: {', '.join(questions)}"
    running = [task for task, state in tasks.items() if state in ("running", "deferred", "up_for_retry", "queued")]
    return f"still running: {', '.join(running) or 'scheduling'}" + (f"; {estimate}" if estimate else "")
