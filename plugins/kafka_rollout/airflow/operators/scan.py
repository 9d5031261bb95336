"""The scans of a run: before its plan, and before the point of no return."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from kafka_rollout.airflow.common.base import RolloutOperator, cluster_ports, frozen_plan, run_folder
from kafka_rollout.airflow.common.links import ScanLink
from kafka_rollout.airflow.operators.spark_scan import SparkScanOperator

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import Context

    from kafka_rollout.domain.coordinator_logs.scan import ScanResult
    from kafka_rollout.steps.common.cluster_ports import ClusterPorts


def scan_file(ports: ClusterPorts, name: str) -> Path:
    """File of a run for a scan result; its page is next to it."""
    return run_folder(ports) / name


class ScanForRunOperator(SparkScanOperator):
    """Scan, and store result and page in the run as `file` (and .html)."""

    operator_extra_links = (ScanLink(),)

    def __init__(self, *, file: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.file = file

    def execute(self, context: Context) -> Any:
        from kafka_rollout.steps.common.lock import LEASE_S, renew_lock, shorten_lease

        purpose = "Scan the coordinator logs."
        longest = LEASE_S if self.execution_timeout is None else self.execution_timeout.total_seconds()
        with cluster_ports(self.cluster, context) as ports:
            scan_file(ports, self.file).unlink(missing_ok=True)  # the result of an earlier attempt must not be used
            held = renew_lock(ports, purpose, for_s=longest)  # keep the lock during a long scan
        try:
            return super().execute(context)
        finally:
            if held:
                with cluster_ports(self.cluster, context) as ports:
                    shorten_lease(ports, purpose)

    def keep(self, context: Context, result: ScanResult, scratch: Path) -> dict[str, Any]:
        from kafka_rollout.composition.pages import render_scan_page, write_file

        with cluster_ports(self.cluster, context) as ports:
            path = scan_file(ports, self.file)
            write_file(path.with_suffix(".html"), render_scan_page(result, ports.catalogue).encode())
            write_file(path, json.dumps(result.to_dict()).encode())
        self.log.info("%s records in %s partitions: %s", result.records, len(result.logs), path)
        return {"records": result.records, "partitions": len(result.logs), "file": str(path)}


class ScanBeforeRollOperator(ScanForRunOperator):
    """Scan the logs that the releases of the path must load. Skipped if every node already runs the target."""

    def __init__(self, *, observe_task: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.observe_task = observe_task

    def execute(self, context: Context) -> Any:
        observed = context["ti"].xcom_pull(task_ids=self.observe_task) or {}
        target = context["params"]["target_release"]
        if set(observed.get("releases", {}).values()) == {target}:
            raise AirflowSkipException(f"Every node already runs {target}, so no node is replaced.")
        return super().execute(context)


class ScanVerdictOperator(RolloutOperator):
    """Check whether the source release can still load the current coordinator logs."""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.domain.coordinator_logs.findings import way_back_verdict
        from kafka_rollout.domain.coordinator_logs.scan import ScanResult
        from kafka_rollout.domain.model.findings import Verdict
        from kafka_rollout.steps.common.node_steps import previous_release
        from kafka_rollout.steps.report.run import SCAN_VERDICT

        previous = previous_release(ports, frozen_plan(ports, context))
        path = scan_file(ports, SCAN_VERDICT)
        if not path.exists():
            raise AirflowSkipException("This run has no scan.")
        result = ScanResult.from_dict(json.loads(path.read_text(encoding="utf-8")))
        verdict = way_back_verdict(result, previous)
        if not result.logs:  # there was never a group or a transaction, so there is nothing to load
            verdict = Verdict(question=verdict.question)
        for finding in verdict.findings:
            self.log.info("%s", finding)
        sentence = " ".join(finding.sentence for finding in verdict.findings) or (
            f"{previous} can still load all {result.records} records of the coordinator logs."
        )
        ports.run.record(
            "scan",
            {
                "release": str(previous),
                "records": result.records,
                "partitions": len(result.logs),
                "ok": verdict.ok,
                "sentence": sentence,
                "findings": [str(finding) for finding in verdict.findings],
            },
        )
        if not verdict.ok:
            raise AirflowFailException(" ".join(str(finding) for finding in verdict.blockers))
        return {"sentence": sentence, "records": result.records, "file": str(path)}
