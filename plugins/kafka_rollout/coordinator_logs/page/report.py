"""A scan as one HTML page: self-contained, without scripts, printable, light and dark.

Clients choose the names of groups, topics and ids. So all text is escaped, invisible characters are shown as code
points, and each name is isolated (<bdi>), so that its writing direction does not affect other text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_rollout.base.system.html import page_environment
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.comparison import ScanComparison, compare, trend
from kafka_rollout.coordinator_logs.page.plots import growth_plot, stack_plots
from kafka_rollout.coordinator_logs.remedies import Remedy, find_remedies, in_words
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
    before = max((other for other in earlier if other.scanned_at < scan.scanned_at), key=_time, default=None)
    points = trend([*(other for other in earlier if other.scanned_at < scan.scanned_at), scan])
    remedies = find_remedies(scan, catalogue)
    environment = page_environment(Settings.from_environment())
    environment.filters |= {"span": in_words}
    return environment.get_template(TEMPLATE).render(
        scan=scan,
        matrix=matrix(scan),
        failures=_first_failures(scan),
        topics=sorted({log.topic for log in scan.logs}),
        remedies=remedies,
        first_open=_first_open(remedies),
        tags=ignored_tags(scan, catalogue),
        comparison=None if before is None else _without_noise(compare(before, scan)),
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
    by_release: defaultdict[Release, defaultdict[str, list[ReleaseVerdict]]] = defaultdict(lambda: defaultdict(list))
    for verdict in scan.verdicts:
        by_release[verdict.release][verdict.topic].append(verdict)
    return {
        release: {topic: _cell(verdicts) for topic, verdicts in sorted(by_topic.items())}
        for release, by_topic in sorted(by_release.items())
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
    failing: defaultdict[tuple[Release, str], list[ReleaseVerdict]] = defaultdict(list)
    for verdict in scan.verdicts:
        if verdict.verdict.blocks:
            failing[verdict.release, verdict.topic].append(verdict)
    return [(verdicts[0], len(verdicts) - 1) for _, verdicts in sorted(failing.items())]


def _first_open(remedies: Sequence[Remedy]) -> Release | None:
    """Return the newest release that fails: a downgrade path reaches it first."""
    return max((remedy.release for remedy in remedies if remedy.fails), default=None)


def _without_noise(comparison: ScanComparison) -> ScanComparison | None:
    """Return None if the logs only grew."""
    changes = (comparison.worse, comparison.better, comparison.appeared, comparison.gone, comparison.not_compared)
    return comparison if any(changes) else None


def _time(scan: ScanResult) -> float:
    return scan.scanned_at
