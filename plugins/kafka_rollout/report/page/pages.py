"""HTML pages of reports: of a run, of a check, of a comparison of two runs.

A page is self-contained, printable, light and dark. All values are escaped.

The plot of a run shows its node steps and the test traffic on one time axis, as SVG. matplotlib draws it
(docs/decisions/dependencies.md). It is in the extra `plots`: `can_plot` says whether it is installed. The colours are
CSS variables of include/templates/page.css, so the plot follows the page; text stays text.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from kafka_rollout.base.durations import duration
from kafka_rollout.base.findings import group_by_kind
from kafka_rollout.base.json_forms import from_json
from kafka_rollout.base.outside_text import escape_invisible
from kafka_rollout.base.system.html import page_environment
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import count
from kafka_rollout.report.check_report import FORMAT, ClusterCheckReport, Result
from kafka_rollout.report.run_report import (
    Document,
    DowngradeReport,
    FeatureReport,
    Outcome,
    RunReport,
    feature_results,
)
from kafka_rollout.report.spans import NodeSpan, spans_of_report
from kafka_rollout.run.traffic import TrafficSample, TrafficSeries

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INSTALL = 'Plots need the extra plots: pip install "kafka-rollout[plots]".'
# matplotlib knows no variables: each is drawn in a colour of its own, which is replaced afterwards.
_COLOURS = {
    "ink": "#010101",
    "soft": "#010102",
    "line": "#010103",
    "down": "#010104",
    "gate": "#010105",
    "good": "#010106",
    "bad": "#010107",
    "fair": "#010108",
}
_WIDTH_IN, _ROW_IN, _PANEL_IN, _DPI = 10.4, 0.24, 0.85, 72
_NAMED_ROWS = 40
_LABEL_LIMIT = 28
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "svg.hashsalt": "kafka-rollout",
    "font.size": 9,
    "text.color": _COLOURS["ink"],
    "axes.edgecolor": _COLOURS["line"],
    "axes.labelcolor": _COLOURS["ink"],
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "grid.color": _COLOURS["line"],
    "xtick.color": _COLOURS["soft"],
    "ytick.color": _COLOURS["soft"],
    "xtick.labelcolor": _COLOURS["soft"],
    "ytick.labelcolor": _COLOURS["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "path.simplify": True,
}
OUTCOMES = {
    Outcome.FINISHED: ("good", "Finished"),
    Outcome.ROLLED_NOT_FINALIZED: ("fair", "Rolled, not finalized"),
    Outcome.ROLLED_BACK: ("fair", "Rolled back"),
    Outcome.STOPPED: ("bad", "Stopped"),
    Outcome.REFUSED: ("fair", "Refused"),
    Outcome.DRY_RUN: ("fair", "Dry run"),
}
_TONES = {
    Result.BLOCKER: "bad",
    Result.WARNING: "fair",
    Result.UNKNOWN: "open",
    Result.INFO: "none",
    Result.OK: "good",
    Result.NOT_APPLICABLE: "none",
}


def render_run(report: RunReport) -> str:
    """Return the page of a report."""
    tone, title = OUTCOMES[report.outcome]
    samples = from_json(TrafficSeries, report.traffic or {}).series
    plot = traffic_plot(samples, spans_of_report(report), now=report.ended_at)
    return _page(
        "report.html.j2",
        report=report,
        downgrade=report if isinstance(report, DowngradeReport) else None,
        results=feature_results(report.results) if isinstance(report, FeatureReport) and report.results else {},
        tone=tone,
        outcome_title=title,
        direction="feature change" if isinstance(report, FeatureReport) else report.direction,
        plot=Markup(plot),  # noqa: S704 - its names are escaped
        plot_missing="" if can_plot() else INSTALL,
        groups=group_by_kind(report.findings),
        scan=_scan(report.scan),
    )


def render_check(report: ClusterCheckReport) -> str:
    """Return the page: first what needs attention, the most severe first, then all checks."""
    open_entries = [entry for entry in report.entries if entry.result not in (Result.OK, Result.NOT_APPLICABLE)]
    in_order = sorted(open_entries, key=lambda entry: list(Result).index(entry.result))
    return _page("check.html.j2", report=report, open=in_order, tones=_TONES, format=FORMAT)


def _page(template: str, **values: Any) -> str:
    return page_environment(Settings.from_environment()).get_template(template).render(**values)


def _scan(scan: Document | None) -> dict[str, Any] | None:
    """Sum up the coordinator-log scan: records by type, and verdicts by release."""
    if not scan:
        return None
    records: Counter[tuple[str, str, str]] = Counter()
    for found in scan.get("classes", ()):
        value = "tombstone" if found["value_version"] is None else str(found["value_version"])
        records[(found["topic"], str(found["key_version"]), value)] += found["count"]
    releases: dict[str, Counter[str]] = {}
    failures = []
    for verdict in scan.get("verdicts", ()):
        releases.setdefault(verdict["release"], Counter())[verdict["verdict"]] += 1
        if verdict["first_failure"]:
            failures.append(verdict)
    return {
        "records": [(*key, count) for key, count in sorted(records.items())],
        "releases": {release: dict(verdicts) for release, verdicts in releases.items()},
        "failures": failures[:20],
    }


def can_plot() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def traffic_plot(
    samples: Sequence[TrafficSample], spans: Sequence[NodeSpan], *, now: float | None = None, alone: bool = False
) -> str:
    """Return the plot as an SVG element; empty if there is nothing to draw or matplotlib is not installed.

    `now`: the end of open node steps, by default the last known time. `alone`: with the colours of a page, for an SVG
    that no page contains. The result depends only on the arguments. Not for several threads at once: matplotlib's
    settings are global.
    """
    if not (samples or spans) or not can_plot():
        return ""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    times = [at for one in spans for at in (one.began_at, one.started_at, one.ended_at) if at is not None]
    times += [at for one in samples for at in (one.at, one.at + one.seconds)]
    first, last = min(times), max([*times, *([] if now is None else [now])])
    if first == last:  # the first stop was requested just now
        return ""
    names = list(dict.fromkeys(one.name for one in spans))
    rows = len(names) if len(names) <= _NAMED_ROWS else 1
    panels = _panels(samples)
    heights = [*([max(0.5, rows * _ROW_IN)] if spans else []), *([_PANEL_IN] * len(panels))]
    with rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH_IN, sum(heights) + 0.22 * len(heights) + 0.4), dpi=_DPI, layout="constrained")
        axes = list(figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0])
        if spans:
            _draw_spans(axes[0], spans, names, last)
        for axis, (label, series) in zip(axes[len(axes) - len(panels) :], panels, strict=True):
            _draw_panel(axis, label, series, samples)
            for one in spans:
                axis.axvspan(_x(one.began_at), _x(one.started_at or last), color=_COLOURS["down"], alpha=0.13, lw=0)
        _draw_time(axes, first, last)
        figure.align_ylabels(axes)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None})
    return _as_element(file.getvalue(), describe(samples, spans), alone=alone)


def describe(samples: Sequence[TrafficSample], spans: Sequence[NodeSpan]) -> str:
    """Return what the plot shows in words, for readers who do not see it."""
    told = [f"{count(len(spans), 'node step')}."] if spans else []
    if samples:
        acknowledged = sum(one.acknowledged for one in samples)
        silent = max(samples, key=lambda one: one.silent_s)
        told.append(
            f"{acknowledged:,} records were acknowledged; failed requests and lost connections: "
            f"{sum(one.failed for one in samples):,}."
        )
        told.append(f"The longest time without an acknowledgement was {silent.silent_s:.1f} s.")
        for what, values in (
            ("Most under-replicated partitions", [one.under_replicated for one in samples]),
            ("Highest consumer lag in records", [one.lag for one in samples]),
        ):
            known = [value for value in values if value is not None]
            told.append(f"{what}: {max(known):,}." if known else f"{what}: unknown.")
    return " ".join(told)


Series = tuple[str, str, list[float | None]]  # name, colour, values


def _panels(samples: Sequence[TrafficSample]) -> list[tuple[str, list[Series]]]:
    if not samples:
        return []
    return [
        ("Acknowledged\nrecords/s", [("records", "good", [one.acknowledged / (one.seconds or 1) for one in samples])]),
        (
            "Latency (ms)",
            [
                ("worst", "fair", [one.worst_latency_ms for one in samples]),
                ("mean", "gate", [one.latency_ms for one in samples]),
            ],
        ),
        ("Without acknow-\nledgement (s)", [("seconds", "bad", [one.silent_s for one in samples])]),
        ("Failed requests,\nlost connections", [("requests", "bad", [one.failed for one in samples])]),
        ("Under-replicated\npartitions", [("partitions", "fair", [one.under_replicated for one in samples])]),
        ("Consumer lag\n(records)", [("records", "gate", [one.lag for one in samples])]),
    ]


def _draw_panel(axis: Axes, label: str, series: Sequence[Series], samples: Sequence[TrafficSample]) -> None:
    moments, gap = [_x(one.at + one.seconds / 2) for one in samples], float("nan")
    for name, colour, values in series:
        points = list[tuple[Any, float]]()
        for number, (at, value) in enumerate(zip(moments, values, strict=True)):
            before = samples[number - 1] if number else None
            if before is not None and samples[number].at - before.at > 5 * max(before.seconds, 1.0):  # no traffic ran
                points.append((at, gap))
            points.append((at, gap if value is None else value))
        drawn = axis.plot(*zip(*points, strict=True), color=_COLOURS[colour], lw=1.1, label=name)[0]
        drawn.set_drawstyle("steps-mid")
    known = [value for _, _, values in series for value in values if value is not None]
    axis.set_ylim(0, max(1.0, max(known, default=0.0) * 1.12))
    axis.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9)
    axis.grid(visible=True, axis="y", lw=0.6)
    axis.locator_params(axis="y", nbins=4, integer=max(known, default=0.0) >= 4)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 4 or value == 0 else f"{value:g}")
    if not known:
        axis.text(0.5, 0.5, "not observed", transform=axis.transAxes, ha="center", va="center")
    if len(series) > 1:
        axis.legend(loc="lower right", bbox_to_anchor=(1, 0.97), ncols=2, frameon=False, fontsize=8, borderaxespad=0)


def _draw_spans(axis: Axes, spans: Sequence[NodeSpan], names: Sequence[str], last: float) -> None:
    is_named = len(names) <= _NAMED_ROWS
    for one in spans:
        row = names.index(one.name) if is_named else 0
        started = one.started_at if one.started_at is not None else last
        for colour, begin, end in (
            ("down", one.began_at, started),
            ("gate", started, one.ended_at if one.ended_at is not None else last),
        ):
            if end > begin:
                axis.barh(row, _x(end) - _x(begin), left=_x(begin), height=0.62, color=_COLOURS[colour], lw=0)
    axis.set_ylim((len(names) if is_named else 1) - 0.4, -0.6)
    labels = [_shortened(name) for name in names] if is_named else [count(len(names), "node")]
    axis.set_yticks(range(len(labels)), labels)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)


def _draw_time(axes: Sequence[Axes], first: float, last: float) -> None:
    from matplotlib.dates import AutoDateLocator, DateFormatter

    locator = AutoDateLocator(tz=UTC, minticks=4, maxticks=14)
    pattern = "%H:%M:%S" if last - first < 600 else "%H:%M" if last - first < 86_400 else "%m-%d %H:%M"
    axes[-1].xaxis.set_major_locator(locator)
    axes[-1].xaxis.set_major_formatter(DateFormatter(pattern, tz=UTC))
    axes[-1].set_xlim(_x(first), _x(max(last, first + 1)))
    axes[-1].set_xlabel(f"{datetime.fromtimestamp(first, UTC):%Y-%m-%d}, UTC. Shown: {duration(last - first)}")
    for axis in axes:
        axis.grid(visible=True, axis="x", lw=0.6)
        axis.set_axisbelow(True)


def _x(at: float) -> float:
    """Return matplotlib's form of a time: days since 1970."""
    return at / 86_400


def _shortened(name: str) -> str:
    shown = escape_invisible(name)
    return shown if len(shown) <= _LABEL_LIMIT else f"{shown[: _LABEL_LIMIT - 1]}…"


def _as_element(document: str, text: str, *, alone: bool) -> str:
    svg = document[document.index("<svg ") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font: ([\d.]+px)[^;\"]*", lambda found: f"font: {found[1]} {_FONT}", svg)
    for name, colour in _COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    names = dict[str, str]()  # matplotlib makes some ids from addresses in memory
    svg = re.sub(r"\b[pm][0-9a-f]{10}\b", lambda found: names.setdefault(found[0], f"plot-{len(names)}"), svg)
    head = f"<title>Node steps and test traffic over time</title><desc>{escape(text)}</desc>"
    style = f"<style>{_VARIABLES}</style>" if alone else ""
    svg = re.sub(r'<style type="text/css">.*?</style>', "", svg, flags=re.DOTALL)  # it would apply to the whole page
    return svg.replace("<svg ", '<svg class="plot" role="img" ', 1).replace(">", f">{head}{style}", 1).rstrip()


# As in page.css.
_VARIABLES = (
    ":root{--ink:#1c2430;--soft:#5b6675;--line:#d9dfe7;--good:#137a4b;--fair:#9a6700;--bad:#b42318;--down:#c2410c;"
    "--gate:#2563a8}@media screen and (prefers-color-scheme:dark){:root{--ink:#e4e9f0;--soft:#9aa7b8;--line:#313b48;"
    "--good:#5fd39b;--fair:#f0c04c;--bad:#ff8f85;--down:#f0853f;--gate:#6aa9ee}}"
)
