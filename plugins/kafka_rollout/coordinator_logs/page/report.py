"""A scan as one HTML page: self-contained, without scripts, printable, light and dark.

Clients choose the names of groups, topics and ids. So all text is escaped, invisible characters are shown as code
points, and each name is isolated (<bdi>), so that its writing direction does not affect other text.

The template draws the plots as SVG in the page's own colours; docs/decisions/dependencies.md explains why no library
does.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_rollout.base.system.html import page_environment
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.comparison import ScanComparison, TrendPoint, compare, trend
from kafka_rollout.coordinator_logs.incompatible_records import Family, facts_of_type, family_of
from kafka_rollout.coordinator_logs.remedies import find_remedies, in_words
from kafka_rollout.coordinator_logs.scan import LoadVerdict, ReleaseVerdict, ScanResult, worst_of
from kafka_rollout.coordinator_logs.tagged_fields import ignored_tags
from kafka_rollout.releases.facts import Catalogue, Release

TEMPLATE = "scan.html.j2"
LISTED = 200  # groups, ids and the like that the page names; the JSON has more


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The verdict of a release on one log: the worst one of its partitions, and the number of partitions with it."""

    verdict: LoadVerdict
    partitions: int
    of: int
    ignored: int

    @property
    def note(self) -> str:
        """Partitions with the verdict, and ignored records: `3 of 50, 12 ignored`."""
        parts = []
        if self.verdict.badness:
            parts.append(f"{self.partitions} of {self.of}")
        if self.ignored:
            parts.append(f"{self.ignored:,} ignored")
        return ", ".join(parts)

    @property
    def tone(self) -> str:
        tones = {
            LoadVerdict.FAILS: "bad",
            LoadVerdict.LOSES: "bad",
            LoadVerdict.UNKNOWN: "bad",
            LoadVerdict.LOADS_IGNORING: "fair",
            LoadVerdict.LOADS: "good",
        }
        return tones.get(self.verdict, "none")


def render_scan(
    scan: ScanResult,
    catalogue: Catalogue,
    *,
    earlier: Sequence[ScanResult] = (),
) -> str:
    """Return the page of a scan. `earlier`: scans of the same cluster, for the trend and the latest changes."""
    earlier = sorted((other for other in earlier if other.scanned_at < scan.scanned_at), key=lambda one: one.scanned_at)
    points = trend([*earlier, scan])
    remedies = find_remedies(scan, catalogue)
    environment = page_environment(Settings.from_environment())
    environment.filters |= {"span": in_words}
    return environment.get_template(TEMPLATE).render(
        scan=scan,
        matrix=matrix(scan),
        failures=_first_failures(scan),
        topics=sorted({log.topic for log in scan.logs}),
        remedies=remedies,
        # The newest release that fails: a downgrade path reaches it first.
        first_open=max((remedy.release for remedy in remedies if remedy.fails), default=None),
        tags=ignored_tags(scan, catalogue),
        comparison=_without_noise(compare(earlier[-1], scan)) if earlier else None,
        plots=stack_plots(scan, catalogue),
        growth=growth_plot(points),
        points=points,
        inventory=scan.inventory,
        ranges={(log.topic, log.partition): log for log in scan.logs},
        live_known=bool(scan.classes) and all(found.live is not None for found in scan.classes),
        listed=LISTED,
    )


def matrix(scan: ScanResult) -> dict[Release, dict[str, Cell]]:
    """Return release → log → verdict of the worst partition."""
    return {
        release: {topic: _cell(verdicts) for topic, verdicts in scan.by_topic(release).items()}
        for release in scan.releases
    }


def _cell(verdicts: Sequence[ReleaseVerdict]) -> Cell:
    worst = worst_of(verdict.verdict for verdict in verdicts)
    return Cell(
        verdict=worst,
        partitions=sum(verdict.verdict is worst for verdict in verdicts),
        of=len(verdicts),
        ignored=sum(verdict.ignored for verdict in verdicts),
    )


def _first_failures(scan: ScanResult) -> list[tuple[ReleaseVerdict, int]]:
    """Return for each release and log the first partition that fails, and the number of other partitions that fail."""
    of_logs = (verdicts for release in scan.releases for verdicts in scan.by_topic(release).values())
    failing = ([verdict for verdict in verdicts if verdict.verdict.blocks] for verdicts in of_logs)
    return [(verdicts[0], len(verdicts) - 1) for verdicts in failing if verdicts]


def _without_noise(comparison: ScanComparison) -> ScanComparison | None:
    """Return None if the logs only grew."""
    changes = (comparison.worse, comparison.better, comparison.appeared, comparison.gone, comparison.not_compared)
    return comparison if any(changes) else None


WIDTH = 960
_ROW, _BAR = 20, 14
_LABEL = 40
_NUMBERS = 90  # room for the total behind a bar
_CHART_HEIGHT, _CHART_LEFT, _CHART_BOTTOM = 200, 74, 24
_NARROWEST = 0.6  # a bar of few records stays visible
TOMBSTONES = "tombstones"

# Kinds of records in the order in which they are stacked. The index is the number of the colour in the template.
KINDS = (
    *(Family.OFFSETS, Family.CLASSIC_GROUPS, Family.CONSUMER_GROUPS, Family.STREAMS_GROUPS, Family.SHARE_GROUPS),
    *(Family.TRANSACTIONAL_IDS, TOMBSTONES, Family.UNKNOWN),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    x: float
    width: float
    colour: int
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One partition's records, stacked by kind."""

    label: str
    y: int
    bars: tuple[Bar, ...]
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPlot:
    topic: str
    rows: tuple[PartitionRow, ...]
    kinds: tuple[tuple[int, str], ...]
    empty_partitions: int
    height: int
    width: int = WIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    name: str
    colour: int
    points: tuple[tuple[float, float, str], ...]

    @property
    def path(self) -> str:
        return " ".join(f"{x},{y}" for x, y, _ in self.points)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePlot:
    lines: tuple[Line, ...]
    y_ticks: tuple[tuple[float, float], ...]  # place, value
    x_ticks: tuple[tuple[float, str], ...]
    height: int = _CHART_HEIGHT
    width: int = WIDTH


def stack_plots(scan: ScanResult, catalogue: Catalogue) -> tuple[StackPlot, ...]:
    """Return one plot per log, with a row for each partition that has records, on one scale per log."""
    names: dict[tuple[str, int | None], str | None] = {}
    counts: defaultdict[str, defaultdict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for found in scan.classes:
        key = (found.topic, found.key_version)
        if key not in names:
            known = [] if found.key_version is None else facts_of_type(catalogue, found.topic, found.key_version)
            names[key] = known[-1][1].name if known else None
        kind = TOMBSTONES if found.value_version is None else family_of(names[key])
        counts[found.topic][found.partition][kind] += found.count
    partitions = Counter(log.topic for log in scan.logs)
    return tuple(_stack(topic, counts[topic], partitions[topic]) for topic in sorted(counts))


def _stack(topic: str, partitions: Mapping[int, Counter[str]], of_all: int) -> StackPlot:
    scale = (WIDTH - _LABEL - _NUMBERS) / max(counts.total() for counts in partitions.values())
    rows = []
    for number, (partition, counts) in enumerate(sorted(partitions.items())):
        x, bars = float(_LABEL), []
        for colour, kind in enumerate(KINDS):
            if counts[kind]:
                width = max(_NARROWEST, counts[kind] * scale)
                title = f"{topic}-{partition}: {counts[kind]:,} {_records(kind)}"
                bars.append(Bar(x=round(x, 1), width=round(width, 1), colour=colour, title=title))
                x += width
        rows.append(PartitionRow(label=str(partition), y=number * _ROW, bars=tuple(bars), records=counts.total()))
    seen = {kind for counts in partitions.values() for kind in counts}
    return StackPlot(
        topic=topic,
        rows=tuple(rows),
        kinds=tuple((colour, _records(kind)) for colour, kind in enumerate(KINDS) if kind in seen),
        empty_partitions=max(0, of_all - len(rows)),
        height=len(rows) * _ROW,
    )


def _records(kind: str) -> str:
    return kind if kind in (TOMBSTONES, Family.OFFSETS, Family.UNKNOWN) else f"records of {kind}"


def growth_plot(points: Sequence[TrendPoint]) -> LinePlot | None:
    """Return the bytes of each log over the scans; None for fewer than two scans, or if no bytes were counted."""
    highest = max((size for point in points for size in point.log_bytes.values()), default=0)
    if len(points) < 2 or not highest:
        return None
    first, last = points[0].scanned_at, points[-1].scanned_at
    across = (WIDTH - _CHART_LEFT - 12) / max(last - first, 1.0)
    bottom = _CHART_HEIGHT - _CHART_BOTTOM
    ticks = _round_ticks(highest)

    def x(at: float) -> float:
        return round(_CHART_LEFT + (at - first) * across, 1)

    def y(value: float) -> float:
        return round(bottom - value / ticks[-1] * (bottom - 10), 1)

    topics = sorted({topic for point in points for topic in point.log_bytes})
    lines = tuple(
        Line(
            name=topic,
            colour=number,
            points=tuple(
                (x(point.scanned_at), y(point.log_bytes[topic]), f"{topic}, {_moment(point.scanned_at)}")
                for point in points
                if topic in point.log_bytes
            ),
        )
        for number, topic in enumerate(topics)
    )
    moments = [first + (last - first) * part / 4 for part in range(5)]
    return LinePlot(
        lines=lines,
        y_ticks=tuple((y(value), value) for value in ticks),
        x_ticks=tuple((x(at), _moment(at)) for at in moments),
    )


def _round_ticks(highest: float) -> list[float]:
    """Return 0 and up to five steps of 1, 2 or 5 times a power of ten. The last one is at least `highest`."""
    power = 10.0 ** math.floor(math.log10(highest / 5))
    step = next(times * power for times in (1, 2, 5, 10) if 5 * times * power >= highest)
    count = math.ceil(highest / step)
    return [step * number for number in range(count + 1)]


def _moment(at: float) -> str:
    return time.strftime("%m-%d %H:%MZ", time.gmtime(at))
