"""Services of a run from a shell: the scan with Spark, background processes, the report."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from kafka_rollout.base.errors import FatalError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli.show import ProgressLines, err, say
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.run.events import newest
from kafka_rollout.run.step_events import LiveLowered
from kafka_rollout.steps.common import lock
from kafka_rollout.steps.common.approval import expected_outage_s
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.offline.outage import outage_sentence
from kafka_rollout.steps.report.run import GROUPS_WATCHED, TRAFFIC_VERDICT

if TYPE_CHECKING:
    from kafka_rollout.kafka.client.security.client_security import ClientSecurity


@dataclass(slots=True, kw_only=True)
class ShellServices:
    """The group monitor and the test traffic run until `stop`, the monitor no longer than this process."""

    ports: ClusterPorts
    settings: Settings
    progress: ProgressLines
    security: ClientSecurity | None = None
    _has_monitor: bool = False
    _has_traffic: bool = False

    def scan(self, file: str) -> None:
        scan_logs(self.ports, self.settings, self.security, file, self.progress)

    def monitor_groups(self) -> None:
        from kafka_rollout.traffic.processes.of_run import start_group_monitor

        if not self._has_monitor:
            cluster, run_id = self.ports.cluster.name, self.ports.run_id
            start_group_monitor(cluster, run_id, security=self.security, only_with=os.getpid())
            self._has_monitor = True

    def start_traffic(self) -> None:
        from kafka_rollout.traffic.processes.of_run import start_traffic

        start_traffic(
            self.ports.cluster,
            self.ports.run_id,
            security=self.security,
            lowered=self.ports.run.load_plan().lowered,
            settings=self.settings,
        )
        self._has_traffic = True

    def stop(self) -> None:
        """Stop the background processes and attach their results. Raises FatalError if the traffic check failed."""
        from kafka_rollout.traffic.processes.of_run import stop_group_monitor, stop_traffic, traffic_folder

        cluster, run_id = self.ports.cluster.name, self.ports.run_id
        if self._has_monitor:
            self._has_monitor = False
            if (watched := stop_group_monitor(cluster, run_id, settings=self.settings)) is not None:
                self.ports.run.attach(GROUPS_WATCHED, watched)
        if self._has_traffic:
            self._has_traffic = False
            with lock.keep_lock(self.ports):
                verdict = stop_traffic(
                    self.ports.cluster,
                    run_id,
                    security=self.security,
                    settings=self.settings,
                    on_progress=self.progress.say,
                )
            if verdict is None:
                return
            self.ports.run.attach(TRAFFIC_VERDICT, {"ok": verdict.ok, **asdict(verdict)})
            if not verdict.ok:
                lost = "; ".join(found.sentence for found in verdict.discrepancies)
                raise FatalError(
                    f"The traffic check failed: {lost or 'one kind of test traffic produced or consumed nothing'}",
                    remedy=f"Read its journals in {traffic_folder(cluster, run_id, self.settings)}.",
                )

    def report(self, *, dry_run: bool) -> None:
        from kafka_rollout.wiring.run_report import write_run_report

        plan = self.ports.run.load_plan()
        _, page, data = write_run_report(self.ports, plan, dry_run=dry_run)
        say(f"report: {page}")
        say(data)
        if plan.offline and (took := outage_sentence(self.ports.run.events(), expected_outage_s(self.ports))):
            say(took, err)
        if lowered := newest(self.ports.run.events(), LiveLowered):
            say(lowered.sentence, err)


def shell_services(ports: ClusterPorts, settings: Settings, security: ClientSecurity | None) -> ShellServices:
    """Return the services of one command, with its progress on standard error."""
    return ShellServices(ports=ports, settings=settings, progress=ProgressLines(), security=security)


class NoServices:
    """Services of a run without scans, test traffic and report."""

    def scan(self, file: str) -> None: ...

    def monitor_groups(self) -> None: ...

    def start_traffic(self) -> None: ...

    def stop(self) -> None: ...

    def report(self, *, dry_run: bool) -> None: ...


def scan_logs(
    ports: ClusterPorts, settings: Settings, security: ClientSecurity | None, file: str, progress: ProgressLines
) -> ScanResult:
    """Scan with Spark in a separate process and attach the result to the run."""
    from kafka_rollout.coordinator_logs.spark.submit import scan_command

    def on_progress(line: str) -> None:
        progress.say(f"scan: {line}")

    progress.say("scan: starting Spark")
    with lock.keep_lock(ports):
        _, result = scan_command(ports.cluster, settings, security=security, on_progress=on_progress)
    ports.run.attach(file, result)
    return result
