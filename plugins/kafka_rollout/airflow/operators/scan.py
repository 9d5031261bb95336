"""The scans of a run: before its plan, and before the point of no return."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from kafka_rollout.airflow.common.base import RolloutOperator, cluster_ports, frozen_plan
from kafka_rollout.airflow.common.links import ScanLink
from kafka_rollout.airflow.operators.spark_scan import SparkScanOperator

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import Context

    from kafka_rollout.domain.coordinator_logs.scan import ScanResult
    from kafka_rollout.steps.common.cluster_ports import ClusterPorts


def page_of(name: str) -> str:
    """Return the name of the page of a scan result."""
    return str(PurePosixPath(name).with_suffix(".html"))


class ScanForRunOperator(SparkScanOperator):
    """Scan, and store result and page in the run as `file` (and .html)."""

    operator_extra_links = (ScanLink(),)

    def __init__(self, *, file: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.file = file

    def execute(self, context: Context) -> Any:
        from kafka_rollout.steps.common.lock import keep_lock

        with cluster_ports(self.cluster, context) as ports, keep_lock(ports):
            ports.run.detach(self.file)  # the result of an earlier attempt must not be used
            return super().execute(context)

    def keep(self, context: Context, result: ScanResult, scratch: Path) -> dict[str, Any]:
        from kafka_rollout.composition.pages import render_scan_page

        with cluster_ports(self.cluster, context) as ports:
            ports.run.attach_page(page_of(self.file), render_scan_page(result, ports.catalogue))
            ports.run.attach(self.file, result.to_dict())
            where = ports.run.location(self.file)
        self.log.info("%s records in %s partitions: %s", result.records, len(result.logs), where)
        return {"records": result.records, "partitions": len(result.logs), "file": where}


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
        from kafka_rollout.domain.run.log_events import ScanJudged
        from kafka_rollout.steps.common.node_steps import previous_release
        from kafka_rollout.steps.report.run import SCAN_VERDICT

        previous = previous_release(ports, frozen_plan(ports, context))
        kept = ports.run.attachment(SCAN_VERDICT)
        if kept is None:
            raise AirflowSkipException("This run has no scan.")
        result = ScanResult.from_dict(kept)
        verdict = way_back_verdict(result, previous)
        if not result.logs:  # there was never a group or a transaction, so there is nothing to load
            verdict = Verdict(question=verdict.question)
        for finding in verdict.findings:
            self.log.info("%s", finding)
        sentence = " ".join(finding.sentence for finding in verdict.findings) or (
            f"{previous} can still load all {result.records} records of the coordinator logs."
        )
        ports.run.record(
            ScanJudged(
                release=previous,
                records=result.records,
                partitions=len(result.logs),
                ok=verdict.ok,
                sentence=sentence,
                findings=tuple(str(finding) for finding in verdict.findings),
            )
        )
        if not verdict.ok:
            raise AirflowFailException(" ".join(str(finding) for finding in verdict.blockers))
        return {"sentence": sentence, "records": result.records, "file": ports.run.location(SCAN_VERDICT)}
