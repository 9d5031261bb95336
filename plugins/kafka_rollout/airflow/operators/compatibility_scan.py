"""The tasks of the scheduled scan: scan, store, and send an alert if a verdict got worse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from kafka_rollout.airflow.common.assets import scan_asset
from kafka_rollout.airflow.common.base import errors_for_airflow
from kafka_rollout.airflow.common.links import ScanLink, scan_page
from kafka_rollout.airflow.common.metrics import send_verdicts
from kafka_rollout.airflow.notifications import Alert, ScanAlertNotifier
from kafka_rollout.airflow.operators.spark_scan import SparkScanOperator
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.coordinator_logs.comparison import ScanComparison, VerdictChange, compare, find_failing
from kafka_rollout.coordinator_logs.scan import ScanRequest, ScanResult
from kafka_rollout.planning.release_path import relevant_releases
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import Release

PROBLEM = "problem"  # XCom of a failed scan: the reason
PARQUET = "parquet"  # folder of the task
TREND = 30  # number of scans in the trend of a report
DEPTHS = ("deep", "live", "classes")


class CompatibilityScanOperator(SparkScanOperator):
    """Scan as requested in the form, store the result in the history and update the asset."""

    operator_extra_links = (ScanLink(),)

    def __init__(self, *, cluster: str, **kwargs: Any) -> None:
        super().__init__(cluster=cluster, outlets=[scan_asset(cluster)], **kwargs)

    def execute(self, context: Context) -> Any:
        try:
            return super().execute(context)
        except AirflowException as error:
            context["ti"].xcom_push(key=PROBLEM, value=str(error))
            raise

    def wanted(self, context: Context, request: ScanRequest, scratch: Path) -> ScanRequest:
        params, settings = context["params"], Settings.from_environment()
        chosen = tuple(Release.parse(text) for text in params["releases"] or ())
        return replace(
            request,
            parquet=scratch / PARQUET,
            releases=chosen or self._relevant_releases(settings),
            live=params["depth"] == "live",
            classes_only=params["depth"] == "classes",
        )

    def _relevant_releases(self, settings: Settings) -> tuple[Release, ...]:
        from kafka_rollout.nodes.metrics import read_running_releases

        cluster, catalogue = get_cluster(self.cluster, settings), get_catalogue(settings)
        running = read_running_releases(cluster, catalogue)
        return relevant_releases(catalogue, running, map(Release.parse, cluster.scan_releases))

    def keep(self, context: Context, result: ScanResult, scratch: Path) -> dict[str, Any]:
        from kafka_rollout.coordinator_logs.page.report import render_scan
        from kafka_rollout.run.store.opening import open_scan_history

        tables = scratch / PARQUET
        history = open_scan_history(self.cluster)
        earlier = history.newest(TREND)
        page = render_scan(result, get_catalogue(), earlier=earlier)
        parquet = tables if tables.exists() else None
        kept = history.keep(result, page, parquet=parquet, run_id=str(context["run_id"]))
        found: dict[str, Any] = {
            "scan": kept.name,
            "records": result.records,
            "partitions": len(result.logs),
            "verdicts": {str(release): str(verdict) for release, verdict in result.standing.items()},
        }
        context["outlet_events"][scan_asset(self.cluster)].extra = found
        send_verdicts(self.cluster, result.standing)
        for release, verdict in result.standing.items():
            self.log.info("%s: %s", release, verdict)
        return found


class AlertOperator(BaseOperator):
    """Send an alert if a verdict got worse, if a first scan has a failing verdict, or if the scan failed.

    It runs whatever the result of the scan. After a failed scan the compatibility is unknown. So this task sends an
    alert and fails too.
    """

    def __init__(self, *, cluster: str, scan_task: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster
        self.scan_task = scan_task

    def execute(self, context: Context) -> Any:
        from kafka_rollout.run.store.opening import open_scan_history

        ti = context["ti"]
        report = scan_page(ti.dag_id, str(context["run_id"]), self.scan_task)
        states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id]).get(ti.run_id, {})
        scanned = ti.xcom_pull(task_ids=self.scan_task) if states.get(self.scan_task) == "success" else None
        if scanned is None:  # also when the scan was marked as successful by hand
            problem = ti.xcom_pull(task_ids=self.scan_task, key=PROBLEM) or "See the log of the scan task."
            alert = scan_failed_alert(self.cluster, problem, report)
            ScanAlertNotifier(alert)(context)
            raise AirflowFailException(f"{alert.headline} {problem}")

        with errors_for_airflow():
            after = open_scan_history(self.cluster).get(scanned["scan"]).load()
            comparison = self._comparison(scanned["scan"], after)
        worse = find_failing(after) if comparison is None else comparison.worse
        if not worse:
            raise AirflowSkipException(
                "No verdict got worse." if comparison else "This is the first scan of these releases; no verdict fails."
            )
        alert = bad_verdict_alert(self.cluster, worse, report, first=comparison is None)
        ScanAlertNotifier(alert)(context)
        return {"headline": alert.headline, "worse": [to_json(change) for change in worse]}

    def _comparison(self, scan: str, after: ScanResult) -> ScanComparison | None:
        """Compare with the newest earlier scan of the same releases."""
        from kafka_rollout.run.store.opening import open_scan_history

        history = open_scan_history(self.cluster)
        for kept in history.scans():
            if kept.name < scan and (before := kept.load()).standing.keys() >= after.standing.keys():
                return compare(before, after)
        return None


def scan_failed_alert(cluster: str, problem: str, report: str = "") -> Alert:
    return Alert(
        cluster=cluster,
        headline="The coordinator logs could not be scanned.",
        sentences=(problem,),
        report=report,
        failed=True,
        remedy="Run the scan again. Until then it is unknown which releases can load the logs.",
    )


def bad_verdict_alert(cluster: str, worse: Sequence[VerdictChange], report: str, *, first: bool) -> Alert:
    """Return the alert of verdicts that got worse, or of the failing verdicts of a `first` scan."""
    by_release: dict[str, list[VerdictChange]] = {}
    for change in worse:
        by_release.setdefault(str(change.release), []).append(change)
    return Alert(
        cluster=cluster,
        headline=(
            f"It is not proved that {_listed(by_release)} can load the coordinator logs (first scan)."
            if first
            else f"Verdicts of {_listed(by_release)} for the coordinator logs got worse."
        ),
        sentences=tuple(_of_release(changes) for changes in by_release.values()),
        report=report,
        remedy=(
            "Open the report. It lists the groups and transactional ids that wrote the incompatible records, "
            "and how to remove the records."
        ),
    )


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _of_release(changes: Sequence[VerdictChange]) -> str:
    more = len(changes) - 1
    return f"{changes[0]}{f' (and {more} more partitions)' if more else ''}"
