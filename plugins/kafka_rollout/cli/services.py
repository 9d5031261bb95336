"""What a run of the command line needs beside the cluster: the Spark scan, background processes, the report."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_rollout.cli.background import monitor_groups, run_traffic
from kafka_rollout.cli.show import ProgressLines, err, say
from kafka_rollout.composition.pages import write_run_report
from kafka_rollout.composition.scans import scan_cluster
from kafka_rollout.domain.coordinator_logs.scan import ScanResult
from kafka_rollout.settings import Settings
from kafka_rollout.steps.common import lock
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.offline.facts import expected_outage_s
from kafka_rollout.steps.offline.outage import outage_sentence

if TYPE_CHECKING:
    from kafka_rollout.composition.credentials import ClientSecurity


@dataclass(slots=True, kw_only=True)
class ShellServices:
    """Background processes end with this process, or at `stop`."""

    ports: ClusterPorts
    settings: Settings
    progress: ProgressLines
    security: ClientSecurity | None = None
    _groups: ExitStack = field(default_factory=ExitStack)
    _traffic: ExitStack = field(default_factory=ExitStack)
    _monitors: bool = False

    def scan(self, file: str) -> None:
        scan_logs(self.ports, self.settings, self.security, file, self.progress)

    def monitor_groups(self) -> None:
        if not self._monitors:
            self._groups.enter_context(monitor_groups(self.ports, self.settings, self.security))
            self._monitors = True

    def start_traffic(self) -> None:
        self._traffic.enter_context(run_traffic(self.ports, self.settings, self.security, self.progress.say))

    def stop(self) -> None:
        self._groups.close()
        self._monitors = False
        self._traffic.close()

    def report(self, *, dry_run: bool) -> None:
        plan = self.ports.run.load_plan()
        page, data = write_run_report(self.ports, plan, dry_run=dry_run, settings=self.settings)
        say(f"report: {page}")
        say(data)
        if plan.offline and (took := outage_sentence(self.ports.run.events(), expected_outage_s(self.ports))):
            say(took, err)


def shell_services(ports: ClusterPorts, settings: Settings, security: ClientSecurity | None) -> ShellServices:
    """The services of one command, with its progress on the standard error."""
    return ShellServices(ports=ports, settings=settings, progress=ProgressLines(), security=security)


class NoServices:
    """Of a run that scans nothing, runs no test traffic and writes no report."""

    def scan(self, file: str) -> None: ...

    def monitor_groups(self) -> None: ...

    def start_traffic(self) -> None: ...

    def stop(self) -> None: ...

    def report(self, *, dry_run: bool) -> None: ...


def scan_logs(
    ports: ClusterPorts, settings: Settings, security: ClientSecurity | None, file: str, progress: ProgressLines
) -> ScanResult:
    """Scan with Spark in a process of its own."""

    def on_progress(line: str) -> None:
        progress.say(f"scan: {line}")

    progress.say("scan: starting Spark")
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-scan-") as scratch, lock.keep_lock(ports):
        result = scan_cluster(
            ports.cluster,
            settings,
            security=security,
            json_file=Path(scratch) / "scan.json",
            on_progress=on_progress,
        )
    ports.run.attach(file, result)
    return result
