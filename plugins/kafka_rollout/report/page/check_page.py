"""The result of a check as one HTML page: self-contained, printable, light and dark."""

from __future__ import annotations

from kafka_rollout.base.system.html import page_environment
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.report.check_report import FORMAT, CheckReport, Result

TEMPLATE = "check.html.j2"
_TONES = {
    Result.BLOCKER: "bad",
    Result.WARNING: "fair",
    Result.UNKNOWN: "open",
    Result.INFO: "none",
    Result.OK: "good",
    Result.NOT_APPLICABLE: "none",
}


def render_check(report: CheckReport, *, settings: Settings | None = None) -> str:
    """Return the page: first what needs attention, the most severe first, then all checks. All values are escaped."""
    open_entries = [entry for entry in report.entries if entry.result not in (Result.OK, Result.NOT_APPLICABLE)]
    return (
        page_environment(settings or Settings.from_environment())
        .get_template(TEMPLATE)
        .render(
            report=report,
            open=sorted(open_entries, key=lambda entry: list(Result).index(entry.result)),
            tones=_TONES,
            format=FORMAT,
        )
    )
