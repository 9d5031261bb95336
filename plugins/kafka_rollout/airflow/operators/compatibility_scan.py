"""The tasks of the scheduled scan: scan, check the change to a release, and send an alert if something got worse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from kafka_rollout.airflow.common.assets import scan_asset
from kafka_rollout.airflow.common.base import errors_for_airflow, task_states
from kafka_rollout.airflow.common.cluster_access import ClusterAccess
from kafka_rollout.airflow.common.links import CheckLink, ScanLink, check_page, scan_page
from kafka_rollout.airflow.common.metrics import send_verdicts
from kafka_rollout.airflow.operators.notifications import ScanAlertNotifier
from kafka_rollout.airflow.operators.spark_scan import SparkScanOperator
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import count
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.coordinator_logs.comparison import VerdictChange, compare, find_failing
from kafka_rollout.coordinator_logs.scan import ScanRequest, ScanResult
from kafka_rollout.model.topology import NEVER, NEWEST
from kafka_rollout.notifications.due import Notification, NotificationKind, alert_of_scan
from kafka_rollout.planning.release_path import relevant_releases
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.check_report import find_worse

PROBLEM = "problem"  # XCom of a failed scan: the reason
PARQUET = "parquet"  # folder of the task
TREND = 30  # number of scans in the trend of a report
CLASSES = "classes"
DEPTHS = ("deep", "live", CLASSES)


class CompatibilityScanOperator(SparkScanOperator):
    """Scan as requested in the form, store the result in the history and update the asset."""

    operator_extra_links = (ScanLink(),)

    def __init__(self, *, cluster: str, **kwargs: Any) -> None:
        super().__init__(cluster=cluster, outlets=[scan_asset(cluster)], **kwargs)

    def execute(self, context: Context) -> Any:
        with _problem_kept(context):
            return super().execute(context)

    def wanted(self, context: Context, request: ScanRequest, scratch: Path) -> ScanRequest:
        params, settings = context["params"], Settings.from_environment()
        chosen = tuple(Release.parse(text) for text in params["releases"] or ())
        target = target_of_check(context, self.cluster, settings)
        return replace(
            request,
            parquet=scratch / PARQUET,
            releases=chosen or self._relevant_releases(settings, target),
            live=params["depth"] == "live",
            classes_only=params["depth"] == CLASSES,
        )

    def _relevant_releases(self, settings: Settings, target: Release | None) -> tuple[Release, ...]:
        from kafka_rollout.nodes.metrics import read_running_releases

        cluster, catalogue = get_cluster(self.cluster, settings), get_catalogue(settings)
        running = read_running_releases(cluster, catalogue)
        listed = [*map(Release.parse, cluster.scan_releases), *([] if target is None else [target])]
        return relevant_releases(catalogue, running, listed)

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


class ReleaseCheckOperator(BaseOperator):
    """Check whether the cluster can move to a release, as `kafka-rollout check` does, and store the result.

    The coordinator logs are those of the scan of this run; without one, or if it did not read the contents of the
    records, a small log is read here. Nothing is changed.
    """

    operator_extra_links = (CheckLink(),)

    def __init__(self, *, cluster: str, scan_task: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster
        self.scan_task = scan_task

    def execute(self, context: Context) -> Any:
        with _problem_kept(context), errors_for_airflow():
            return self._check(context)

    def _check(self, context: Context) -> dict[str, Any]:
        from kafka_rollout.report.check_registry import CHECKED_KINDS, check_release, checks_of
        from kafka_rollout.report.page.pages import render_check
        from kafka_rollout.run.store.opening import open_check_history
        from kafka_rollout.wiring.runs import read_run_in_progress
        from kafka_rollout.wiring.stored_state import keep_last_seen

        settings = Settings.from_environment()
        target = target_of_check(context, self.cluster, settings)
        if target is None:
            raise AirflowSkipException("check_release of the inventory is never.")
        with ClusterAccess(self.cluster).open_to_read() as ports:
            report = check_release(
                ports,
                target,
                checks_of(CHECKED_KINDS),
                complete_with="A dry run of the change reads more, for example the metadata logs.",
                on_progress=self.log.info,
                scan=self._scan(context),
                run_in_progress=partial(read_run_in_progress, self.cluster, settings),
            )
        if report.observed is not None:
            keep_last_seen(ports.cluster, [report.observed], settings)
        document = report.document()
        open_check_history(self.cluster).keep(str(context["run_id"]), document, render_check(report))
        self.log.info("%s. %s", report.totals_text, report.sentence)
        return {"target": str(target), "totals": document["totals"], "sentence": report.sentence}

    def _scan(self, context: Context) -> ScanResult | None:
        from kafka_rollout.run.store.opening import open_scan_history

        scanned = found_by(context, self.scan_task)
        if scanned is None or context["params"]["depth"] == CLASSES:
            return None
        return open_scan_history(self.cluster).get(scanned["scan"]).load()


class AlertOperator(BaseOperator):
    """Send one alert about the scan and the check of this run, if one of them failed or found something worse.

    Worse is a worse verdict (of a first scan: a failing one) of a release to which somebody goes, and a new blocker,
    warning or unknown result (of a first check for this release: a blocker). The task runs whatever the result of the
    others. After a failed scan the compatibility is unknown. So this task sends an alert and fails too.
    """

    def __init__(self, *, cluster: str, scan_task: str, check_task: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster
        self.scan_task = scan_task
        self.check_task = check_task

    def execute(self, context: Context) -> Any:
        with errors_for_airflow():
            parts = [part for part in (self._of_scan(context), self._of_check(context)) if part is not None]
        if not parts:
            raise AirflowSkipException("Neither a verdict nor a result of the check got worse.")
        alert = _joined(parts)
        ScanAlertNotifier(self.cluster, alert)(context)
        if alert.failed:
            raise AirflowFailException(" ".join((alert.headline, *alert.sentences)))
        return {"headline": alert.headline, "worse": list(alert.sentences)}

    def _of_scan(self, context: Context) -> Notification | None:
        from kafka_rollout.run.store.opening import open_scan_history

        ti = context["ti"]
        page = scan_page(ti.dag_id, str(context["run_id"]), self.scan_task)
        scanned = found_by(context, self.scan_task)
        if scanned is None:  # also when the scan was marked as successful by hand
            return scan_failed_alert(_problem(context, self.scan_task), page)
        after = open_scan_history(self.cluster).get(scanned["scan"]).load()
        before = self._earlier(scanned["scan"], after)
        worse = find_failing(after) if before is None else compare(before, after).worse
        needed = self._needed_releases(before)
        worse = tuple(one for one in worse if needed is None or one.release in needed)
        return bad_verdict_alert(worse, page, first=before is None) if worse else None

    def _of_check(self, context: Context) -> Notification | None:
        from kafka_rollout.run.store.opening import open_check_history

        ti, run_id = context["ti"], str(context["run_id"])
        if task_states(context).get(self.check_task) == "skipped":
            return None
        page = check_page(ti.dag_id, run_id)
        checked = found_by(context, self.check_task)
        kept = open_check_history(self.cluster).newest()
        at = next((number for number, one in enumerate(kept) if one.run_id == run_id), None)
        if checked is None or at is None:
            return check_failed_alert(_problem(context, self.check_task))
        documents = [one.document for one in kept]
        worse = find_worse(documents, at)
        return worse_check_alert(documents[at], worse, page) if worse else None

    def _needed_releases(self, before: ScanResult | None) -> frozenset[Release] | None:
        """Return the releases to which somebody goes; None if the running ones are unknown, so that all count."""
        from kafka_rollout.console.downgrade_options import needed_releases
        from kafka_rollout.nodes.metrics import read_running_releases

        settings = Settings.from_environment()
        cluster, catalogue = get_cluster(self.cluster, settings), get_catalogue(settings)
        if not (running := read_running_releases(cluster, catalogue)):
            return None
        listed = [Release.parse(one) for one in cluster.scan_releases]
        return needed_releases(catalogue, running, None if before is None else before.standing, listed)

    def _earlier(self, scan: str, after: ScanResult) -> ScanResult | None:
        """Return the newest earlier scheduled scan of the same releases: a command can have scanned less, and a verdict
        that it found would be no news.
        """
        from kafka_rollout.run.store.opening import open_scan_history

        history = open_scan_history(self.cluster)
        earlier = {one.scan for one in history.scheduled() if one.scan < scan}
        for kept in history.scans():
            if kept.name in earlier and (before := kept.load()).standing.keys() >= after.standing.keys():
                return before
        return None


@contextmanager
def _problem_kept(context: Context) -> Iterator[None]:
    """Store why a task failed, for its alert."""
    try:
        yield
    except AirflowSkipException:
        raise
    except AirflowException as error:
        context["ti"].xcom_push(key=PROBLEM, value=str(error))
        raise


def target_of_check(context: Context, cluster: str, settings: Settings) -> Release | None:
    """Return the release that the scheduled check is for; None if the inventory wants no check."""
    wanted = context["params"]["check_release"] or get_cluster(cluster, settings).check_release
    if wanted == NEVER:
        return None
    catalogue = get_catalogue(settings)
    return max(catalogue) if wanted == NEWEST else catalogue.get(Release.parse(wanted)).release


def found_by(context: Context, task: str) -> Any:
    """Return the XCom of a task of this run; None if the task did not succeed."""
    return context["ti"].xcom_pull(task_ids=task) if task_states(context).get(task) == "success" else None


def _problem(context: Context, task: str) -> str:
    return str(context["ti"].xcom_pull(task_ids=task, key=PROBLEM) or f"See the log of the task {task}.")


def _joined(parts: Sequence[Notification]) -> Notification:
    """Return one alert, because a run has one. A failure comes first."""
    first, *others = sorted(parts, key=lambda part: not part.failed)
    more = [sentence for part in others for sentence in (part.headline, *part.sentences)]
    remedies = dict.fromkeys(part.remedy for part in (first, *others) if part.remedy)
    joined = tuple(part.kind for part in others)
    return replace(first, sentences=(*first.sentences, *more), remedy=" ".join(remedies), joined=joined)


def check_failed_alert(problem: str) -> Notification:
    return alert_of_scan(
        NotificationKind.CHECK_FAILED,
        headline="The cluster could not be checked.",
        sentences=(problem,),
        remedy="Remove the cause, then trigger the DAG. `check_release: never` in the inventory ends the checks.",
    )


def worse_check_alert(check: Mapping[str, Any], worse: Sequence[str], page: str) -> Notification:
    return alert_of_scan(
        NotificationKind.CHECK_WORSE,
        headline=f"The check for Kafka {check['target']} found {count(len(worse), 'new problem')}.",
        sentences=tuple(worse),
        report=page,
        remedy="Open the report of the check. It has a remedy for each finding.",
    )


def scan_failed_alert(problem: str, report: str = "") -> Notification:
    return alert_of_scan(
        NotificationKind.SCAN_FAILED,
        headline="The coordinator logs could not be scanned.",
        sentences=(problem,),
        report=report,
        remedy="Run the scan again. Until then it is unknown which releases can load the logs.",
    )


def bad_verdict_alert(worse: Sequence[VerdictChange], report: str, *, first: bool) -> Notification:
    """Return the alert of verdicts that got worse, or of the failing verdicts of a `first` scan."""
    by_release: dict[str, list[VerdictChange]] = {}
    for change in worse:
        by_release.setdefault(str(change.release), []).append(change)
    return alert_of_scan(
        NotificationKind.OPTION_CLOSED,
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
