"""The scan's verdicts against real brokers, each started on the very logs that were scanned."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_rollout.base.json_forms import from_json
from kafka_rollout.coordinator_logs.scan import LoadVerdict, ReleaseVerdict, ScanResult
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.integration.harness.logs.load_oracle import Outcome, Place, load
from tests.integration.harness.logs.planted_logs import (
    PlantedLog,
    cut,
    endless_logs,
    planted_logs,
    with_own_groups,
    written_logs,
)
from tests.integration.harness.logs.planted_orders import planted_orders
from tests.releases import NEWEST

pytestmark = pytest.mark.integration

ALWAYS = ("3.4.0", "4.3.1")  # the others in the larger matrix alone
RELEASES = tuple(
    Release.parse(name) for name in ("3.4.0", "3.4.1", "3.8.1", "3.9.1", "4.0.1", "4.1.1", "4.3.1", NEWEST)
)
_SEGMENT = "00000000000000000000.log"
_QUOTED = re.compile(r': "(.+)"$')


@dataclass(frozen=True)
class Scanned:
    """The logs by place, and what the scan says of them."""

    logs: Mapping[Place, PlantedLog]
    verdicts: Mapping[tuple[Release, Place], ReleaseVerdict]

    def cuts(self, release: Release) -> dict[Place, tuple[Place, Place]]:
        """By the place of a log that fails: the places of it without the record, and with the record at its end."""
        used = {topic: max(p for t, p in self.logs if t == topic) for topic, _ in self.logs}
        places: dict[Place, tuple[Place, Place]] = {}
        for place in self.logs:
            if self.verdicts[release, place].verdict is LoadVerdict.FAILS:
                topic = place[0]
                places[place] = ((topic, used[topic] + 1), (topic, used[topic] + 2))
                used[topic] += 2
        return places

    def blocked(self, release: Release) -> set[Place]:
        return {place for place, log in self.logs.items() if str(release) in log.blocks}

    def to_load(self, release: Release) -> dict[Place, tuple[bytes, bool]]:
        """All logs, and those that fail cut; of what would block the broker nothing but what does not."""
        logs = {place: (log.data, log.recovered) for place, log in self.logs.items()}
        for place, (without, until) in self.cuts(release).items():
            failure = self.verdicts[release, place].first_failure
            assert failure is not None
            data = self.logs[place].data
            for cut_place, end in ((without, failure.offset), (until, failure.offset + 1)):
                logs[cut_place] = with_own_groups(cut(data, end), cut_place[1]), False
        for place in self.blocked(release):
            logs[place] = logs[self.cuts(release)[place][1]] = (b"", False)
        return logs


@dataclass(frozen=True)
class Judged:
    """One release's broker beside the scan's verdicts on that release."""

    release: Release
    scanned: Scanned
    outcomes: Mapping[Place, Outcome]

    def __iter__(self) -> Iterator[tuple[str, Place, ReleaseVerdict, Outcome]]:
        for place in self.scanned.logs.keys() - self.scanned.blocked(self.release):
            log = self.scanned.logs[place]
            name = f"{place[0]}: {log.name}"
            yield name, place, self.scanned.verdicts[self.release, place], self.outcomes[place]


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Scanned:
    return scan_planted(tmp_path_factory.mktemp("logs"), RELEASES)


def scan_planted(folder: Path, releases: Iterable[Release]) -> Scanned:
    """Scan all planted logs for these releases. `folder`: gets the logs."""
    logs: dict[Place, PlantedLog] = {}
    for log in (*written_logs(), *planted_logs(), *planted_orders(), *endless_logs()):
        place = (log.topic, sum(topic == log.topic for topic, _ in logs))
        logs[place] = log
        partition = folder / f"{log.topic}-{place[1]}"
        partition.mkdir()
        (partition / _SEGMENT).write_bytes(log.data)
    command = [str(Path(sys.executable).with_name("kafka-rollout")), "scan", "--log-dir", str(folder), "--json"]
    for release in releases:
        command += ["--release", str(release)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    result = from_json(ScanResult, json.loads(done.stdout))
    return Scanned(logs, {(v.release, (v.topic, v.partition)): v for v in result.verdicts})


@pytest.fixture(
    scope="module",
    params=[r if str(r) in ALWAYS else pytest.param(r, marks=pytest.mark.full) for r in RELEASES],
    ids=str,
)
def evaluated(
    request: pytest.FixtureRequest,
    scanned: Scanned,
    tmp_path_factory: pytest.TempPathFactory,
    release_cache: ReleaseCache,
) -> Judged:
    folder = tmp_path_factory.mktemp("oracle")
    return Judged(request.param, scanned, load(request.param, scanned.to_load(request.param), folder, release_cache))


def what_happened(outcome: Outcome) -> tuple[LoadVerdict, int]:
    if outcome.failed:
        return LoadVerdict.FAILS, 0
    if not outcome.ended:
        return LoadVerdict.NOT_LOADED, 0
    return (LoadVerdict.LOADS_IGNORING if outcome.ignored else LoadVerdict.LOADS), outcome.ignored


def test_the_broker_does_with_every_log_what_the_scan_says(evaluated: Judged) -> None:
    """Of a damaged log the scan says that it does not know (test_damage_oracle).

    A broker that loses a transactional id logs a warning, as for a record of an unknown type.
    """
    wrong = []
    for name, _, verdict, outcome in evaluated:
        if verdict.verdict is LoadVerdict.UNKNOWN:
            continue
        if verdict.verdict is LoadVerdict.LOSES:
            said = (LoadVerdict.LOADS_IGNORING, verdict.ignored)
        else:
            said = (verdict.verdict, 0 if verdict.first_failure else verdict.ignored)
        if said != what_happened(outcome):
            wrong.append(f"{name}: the scan says {said} {verdict.first_failure}, the broker {outcome}")
    assert wrong == []


def test_it_fails_at_the_record_that_the_scan_names(evaluated: Judged) -> None:
    """Where the broker names no offset: the log loads without the record and fails with it at its end."""
    cuts = evaluated.scanned.cuts(evaluated.release)
    for name, place, verdict, outcome in evaluated:
        if verdict.first_failure is None or verdict.verdict is LoadVerdict.LOSES:
            continue
        offset = verdict.first_failure.offset
        without, until = (evaluated.outcomes[cut_place] for cut_place in cuts[place])
        assert without.ended, f"{name}, without offset {offset}: {without}"
        assert not without.failed, f"{name}, without offset {offset}: {without}"
        assert until.failed, f"{name}, up to offset {offset}: {until}"
        assert outcome.offset in (None, offset), f"{name}: {outcome}"
    assert len(cuts) > 10


def test_it_loads_what_ends_before_the_records_that_would_block_it(evaluated: Judged) -> None:
    cuts = evaluated.scanned.cuts(evaluated.release)
    for place in evaluated.scanned.blocked(evaluated.release):
        without = evaluated.outcomes[cuts[place][0]]
        assert without.ended, place
        assert not without.failed, place


@pytest.mark.parametrize(
    ("name", "log"),
    [
        pytest.param(name, log, marks=pytest.mark.full if number else (), id=f"{name}-{log.name}")
        for number, log in enumerate(endless_logs())
        for name in log.blocks[-1:]
    ],
)
def test_it_never_ends_loading_a_log_that_the_scan_calls_endless(
    name: str, log: PlantedLog, scanned: Scanned, tmp_path: Path, release_cache: ReleaseCache
) -> None:
    release = Release.parse(name)
    (place,) = (place for place, one in scanned.logs.items() if one.name == log.name)
    verdict = scanned.verdicts[release, place]
    assert verdict.first_failure is not None
    assert "reads the last batches in an endless loop" in verdict.first_failure.reason
    (outcome,) = load(release, {(log.topic, 0): (log.data, False)}, tmp_path, release_cache).values()
    assert (outcome.ended, outcome.failed) == (False, False)
    assert outcome.ignored > 1000 * verdict.ignored


def test_the_reason_is_in_the_broker_s_own_words(evaluated: Judged) -> None:
    quoted = 0
    for name, _, verdict, outcome in evaluated:
        if verdict.first_failure and (words := _QUOTED.search(verdict.first_failure.reason)):
            assert words[1] in outcome.words, name
            quoted += 1
    assert quoted > 3


def test_the_logs_bring_out_every_verdict(scanned: Scanned) -> None:
    assert {v.verdict for v in scanned.verdicts.values()} == set(LoadVerdict)
