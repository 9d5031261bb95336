"""Downgrade options: open only if a fresh scan proves it, with methods and history, from what is stored."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli.app import run_main
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.console.downgrade_options import FRESH_S, OptionState, judge_options, needed_releases
from kafka_rollout.console.option_details import DowngradeOptions, Method, Option
from kafka_rollout.coordinator_logs.comparison import ScanSummary
from kafka_rollout.coordinator_logs.scan import LoadVerdict
from kafka_rollout.model.plan import Lowering
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.lowering import CHECKS_OF_ROLLS, OF_ROLLS
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.check_registry import CHECKS
from kafka_rollout.run.events import Observed
from kafka_rollout.run.projections.observations import Observation
from kafka_rollout.run.step_events import Started
from kafka_rollout.run.store.opening import open_check_history
from kafka_rollout.wiring.stored_state import read_fleet, read_options
from tests.fleet_scenes import R431, Fleet, dag, observed
from tests.option_scenes import CLASSIC, CONSUMER, check_of, make_options, scan_of
from tests.records import database_of, scan_history

NOW = 1_764_000_000.0
R440 = Release.parse("4.4.0")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    return tmp_path


def read(*, sees_scans: bool = True, may_read: bool = True) -> DowngradeOptions:
    settings = Settings.from_environment()
    found = read_options(
        get_cluster("orders", settings), settings, may_read=lambda dag_id: may_read, sees_scans=sees_scans
    )
    assert found is not None
    return found


def option(found: DowngradeOptions, release: str) -> Option:
    return next(one for one in found.options if str(one.release) == release)


def method(one: Option, name: Lowering) -> Method:
    return next(found for found in one.methods if found.name is name)


def judged(
    spec: ClusterSpec, release: str, scan: ScanSummary | None, seen: Observed, changed_at: float = 0.0
) -> tuple[OptionState, str]:
    observation = Observation(observed=seen, changed_at=changed_at)
    found = judge_options(spec, get_catalogue(Settings.from_environment()), observation, scan, NOW)
    one = next(one for one in found if str(one.release) == release)
    return one.state, " ".join(reason.sentence for reason in one.reasons)


@pytest.mark.usefixtures("root")
def test_no_option_is_open_without_a_fresh_complete_scan(tmp_path: Path) -> None:
    spec = make_options(tmp_path)
    newest = scan_history(tmp_path / "home", "orders").summaries()[-1]
    fresh = replace(newest, scanned_at=NOW - 60)
    seen = replace(observed(spec, R431, 30), at=NOW - 60)
    assert judged(spec, "4.2.2", fresh, seen) == (OptionState.OPEN, "")
    unknown = {
        "not scanned yet": None,
        "at most 2 d": replace(fresh, scanned_at=NOW - FRESH_S - 1),
        "left out": replace(fresh, run_id="", topics=("__consumer_offsets",)),
        "no partition of": replace(fresh, run_id="", topics=None),
        "does not prove": replace(fresh, verdicts={Release.parse("4.2.2"): LoadVerdict.UNKNOWN}),
    }
    for why, scan in unknown.items():
        state, sentence = judged(spec, "4.2.2", scan, seen)
        assert (state, why in sentence) == (OptionState.UNKNOWN, True), (why, sentence)
    assert judged(spec, "4.2.2", fresh, seen, changed_at=NOW - 30)[0] is OptionState.UNKNOWN
    assert judged(spec, "4.2.2", fresh, replace(seen, at=NOW - FRESH_S - 60))[0] is OptionState.UNKNOWN
    silent = replace(seen, releases={**seen.releases, 101: None})
    assert judged(spec, "4.2.2", fresh, silent) == (OptionState.UNKNOWN, "The release of node 101 is unknown.")


def states() -> tuple[OptionState, bool]:
    """The state of 4.2.2 on the page, and whether the table of clusters shows it as open."""
    (row,), _ = read_fleet(Settings.from_environment())
    return option(read(), "4.2.2").state, "4.2.2" in (row.downgrade_to or ())


def started(spec: ClusterSpec, release: Release) -> list[Started]:
    step = f"4.3.1-to-{release}"
    return [
        Started(node_id=node.node_id, release_step=step, release=release, pid=7, seconds=9.0) for node in spec.nodes
    ]


OPEN, UNKNOWN = (OptionState.OPEN, True), (OptionState.UNKNOWN, False)


def test_a_later_observation_does_not_make_an_old_scan_fresh(root: Path) -> None:
    spec, fleet = make_options(root), Fleet(root)
    seen = observed(spec, R431, 30)
    fleet.run("orders", "manual__restart", dag("orders", "restart"), seen, *started(spec, R431), age_s=3600)
    assert states() == OPEN  # a restart changes nothing
    fleet.run("orders", "manual__up2", dag("orders"), seen, *started(spec, R440), age_s=3000)
    assert states() == UNKNOWN
    upgraded = observed(spec, R440, 30)
    for number in range(3):
        fleet.run("orders", f"manual__dry{number}", dag("orders", "downgrade"), upgraded, age_s=60, outcome="dry_run")
        assert states() == UNKNOWN
    assert option(read(), "4.2.2").reasons[0].sentence == "Releases or levels have changed since the newest scan."
    scan_history(root / "home", "orders").keep(scan_of("orders", 10, CLASSIC), "", run_id="scheduled__3")
    assert states() == OPEN


def test_an_upgrade_by_hand_makes_an_old_scan_stale(root: Path) -> None:
    spec = make_options(root)
    Fleet(root).run("orders", "manual__dry2", dag("orders", "downgrade"), observed(spec, R440, 30), age_s=60)
    assert states() == UNKNOWN


def test_the_change_by_a_run_that_the_reader_cannot_see_counts(root: Path) -> None:
    spec, fleet = make_options(root), Fleet(root)
    settings = Settings.from_environment()

    def seen(*dags: str) -> tuple[OptionState, bool]:
        may_read = {f"kafka_{one}_orders" for one in dags}.__contains__
        found = read_options(spec, settings, may_read=may_read)
        (row,), _ = read_fleet(settings, may_read=may_read)
        assert found is not None
        assert "4.4.0" not in str(found)
        return option(found, "4.2.2").state, "4.2.2" in (row.downgrade_to or ())

    assert (seen("downgrade"), seen()) == (OPEN, OPEN)
    fleet.run("orders", "manual__up2", dag("orders"), observed(spec, R431, 30), *started(spec, R440), age_s=3000)
    assert (seen("downgrade"), seen()) == (UNKNOWN, UNKNOWN)
    scan_history(root / "home", "orders").keep(scan_of("orders", 10, CLASSIC), "", run_id="scheduled__3")
    assert (seen("downgrade"), seen()) == (UNKNOWN, UNKNOWN)  # what they see is older than the change


def test_a_damaged_history_of_a_newer_run_can_hide_a_change(root: Path) -> None:
    spec = make_options(root)
    Fleet(root).run("orders", "manual__dry2", dag("orders", "downgrade"), observed(spec, R431, 30), age_s=60)
    with database_of(root / "home").begin() as connection:
        connection.execute(text("UPDATE events SET body = '{' WHERE run = (SELECT max(id) FROM runs) AND number = 1"))
    assert states() == UNKNOWN


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE scans SET summary = '{}'",
        "UPDATE scans SET summary = '['",
        "UPDATE checks SET body = '{}'",
        "UPDATE checks SET body = '{'",
        "UPDATE checks SET body = '{\"checks\": 1}'",
    ],
)
def test_a_damaged_scan_or_check_is_a_sentence(root: Path, damage: str) -> None:
    make_options(root)
    with database_of(root / "home").begin() as connection:
        connection.execute(text(damage.replace(":", r"\:")))
    sentence = "A stored scan or check cannot be read. Restore the database from a backup."
    found = read()
    assert (found.problem, option(found, "4.2.2").state) == (sentence, OptionState.UNKNOWN)
    assert found.of_methods == ()
    (row,), _ = read_fleet(Settings.from_environment())
    assert (row.next_action, row.downgrade_to) == (sentence, None)


def test_levels_that_no_method_reaches_close_an_option(root: Path) -> None:
    make_options(root)
    found = read()
    closed = option(found, "3.6.2")
    assert (closed.state, [one.code for one in closed.reasons]) == (OptionState.CLOSED, ["METADATA-VERSION-FLOOR"])
    assert {one.is_possible for one in closed.methods} == {False}
    assert not any(one.command for one in closed.methods)


def test_a_dynamic_quorum_closes_releases_before_it(root: Path) -> None:
    spec = make_options(root)
    newest = replace(scan_history(root / "home", "orders").summaries()[-1], scanned_at=NOW - 60)
    seen = observed(spec, R431, 30, at=NOW - 60, finalized={"metadata.version": 30, "kraft.version": 1})
    assert judged(spec, "3.8.1", newest, seen) == (
        OptionState.CLOSED,
        "kraft.version is finalized at 1, and release 3.8.1 does not support this feature.",
    )
    assert judged(spec, "3.9.2", newest, seen)[0] is OptionState.OPEN


def test_both_logs_show_the_records_that_prevent_it_and_when_they_came(root: Path) -> None:
    make_options(root, level=8)
    found = read()
    closed = option(found, "3.4.0")
    assert (closed.state, closed.path) == (OptionState.CLOSED, (Release(3, 4, 1), Release(3, 4, 0)))
    offsets, transactions = closed.logs
    assert (offsets.log, offsets.verdict, offsets.kinds) == ("__consumer_offsets", LoadVerdict.FAILS, 1)
    assert (offsets.records[0].count, offsets.records[0].current) == (5, 1)
    assert offsets.records[0].first == ("__consumer_offsets-7, offset 61 (5)",)
    assert "TransactionLog" in transactions.records[0].title
    (change,) = closed.history
    assert (change.state, change.run_id) == (OptionState.CLOSED, "scheduled__2")
    assert "open → closed" in change.sentence
    assert "5 × ConsumerGroupMetadata (key version 3), value version 0 in __consumer_offsets" in change.sentence
    assert option(found, "3.4.1").state is OptionState.OPEN
    assert option(found, "3.4.1").logs[0].verdict is LoadVerdict.LOADS_IGNORING


def test_an_option_opens_again_when_the_records_are_gone(root: Path) -> None:
    make_options(root, level=8)
    scan_history(root / "home", "orders").keep(scan_of("orders", 10, CLASSIC), "", run_id="scheduled__3")
    again = option(read(), "3.4.0")
    assert [change.state for change in again.history] == [OptionState.OPEN, OptionState.CLOSED]
    assert "Gone: ConsumerGroupMetadata" in again.history[0].sentence


def test_each_method_shows_what_it_costs_and_the_plan_s_own_choice(root: Path) -> None:
    make_options(root)
    found = read()
    refused = option(found, "4.2.2")
    rolling, live, offline = refused.methods
    assert (rolling.is_possible, live.is_possible, offline.is_possible) == (False, True, False)
    assert "Kafka does not lower metadata.version online" in rolling.why
    assert (live.restarts, live.parameters["lowering"]) == (6 + 3, "live")
    assert "without an active controller" in live.outage
    assert "does not come back" in live.undo
    assert live.command == "kafka-rollout downgrade --cluster orders --to 4.2.2 --lowering live --dry-run"
    assert "a live downgrade is possible" in offline.why
    assert refused.lowered[0].startswith("metadata.version 30 → 29. Kafka does not lower it online")
    same = option(found, "4.3.0")
    assert [one.is_possible for one in same.methods] == [True, False, False]
    assert method(same, Lowering.ONLINE).restarts == 6
    assert "unless records that it cannot load or settings that it rejects" in method(same, Lowering.ONLINE).undo


def test_a_verdict_is_needed_of_what_runs_what_is_listed_and_of_a_path_that_was_open() -> None:
    catalogue = get_catalogue()
    running = {Release(4, 3, 1)}
    assert needed_releases(catalogue, running, None, [Release(3, 3, 2)]) == {Release(4, 3, 1), Release(3, 3, 2)}
    open_before = dict.fromkeys(catalogue, LoadVerdict.LOADS)
    assert needed_releases(catalogue, running, open_before) >= {Release(3, 9, 1), Release(3, 3, 2)}
    closed = {release: LoadVerdict.FAILS if release < Release(3, 7, 0) else LoadVerdict.LOADS for release in catalogue}
    found = needed_releases(catalogue, running, closed)
    assert Release(3, 9, 1) in found
    assert min(found) >= Release(3, 7, 0)


def test_a_topic_with_one_replica_leaves_only_the_offline_downgrade(root: Path) -> None:
    make_options(root, blocked=("topic pay",))
    refused = option(read(), "4.2.2")
    assert [one.is_possible for one in refused.methods] == [False, False, True]
    offline = method(refused, Lowering.OFFLINE)
    assert "RF-ONE-TOPIC of topic pay" in method(refused, Lowering.LIVE).why
    assert "can be undone from the backups until" in offline.undo
    assert "up to" in offline.outage
    assert method(option(read(), "4.3.0"), Lowering.ONLINE).is_possible is False
    assert read().of_methods[0].sentence == "New in the check: RF-ONE-TOPIC (topic pay)."


@pytest.mark.parametrize(
    ("age_s", "blocked", "lacks"), [(FRESH_S + 60, ["topic pay"], []), (60, [], ["Node 101 did not respond."])]
)
def test_without_a_complete_check_of_48_h_nobody_knows_what_rolls(
    root: Path, age_s: float, blocked: list[str], lacks: list[str]
) -> None:
    spec = make_options(root)
    seen = replace(observed(spec, R431, 30), at=time.time() - 60)
    checks = open_check_history("orders", Settings.from_environment())
    checks.keep("scheduled__3", check_of(age_s, *blocked, observed=seen, lacks=lacks), "")
    with database_of(root / "home").begin() as connection:
        connection.execute(text("UPDATE checks SET at = at - :age"), {"age": age_s})
    found = read()
    same, refused = option(found, "4.3.0"), option(found, "4.2.2")
    assert (same.state, refused.state) == (OptionState.OPEN, OptionState.OPEN)
    assert method(same, Lowering.ONLINE).is_possible is None
    live, offline = (method(refused, name) for name in (Lowering.LIVE, Lowering.OFFLINE))
    assert (live.is_possible, offline.is_possible) == (None, None)
    assert {one.why for one in (live, offline)} == {
        "No complete check of the last 48 h says whether each node can be stopped alone: trigger the scan DAG."
    }
    assert "--lowering offline" in offline.command


def test_blockers_that_a_check_did_not_look_for_are_not_gone(root: Path) -> None:
    make_options(root, blocked=("topic pay",))
    checks = open_check_history("orders", Settings.from_environment())
    checks.keep("scheduled__3", check_of(60, lacks=["Node 101 did not respond."]), "")
    assert [one.sentence for one in read().of_methods] == ["New in the check: RF-ONE-TOPIC (topic pay)."]


def test_controllers_that_cannot_start_together_leave_no_method_that_stops_them(root: Path) -> None:
    spec = make_options(root)
    checks = open_check_history("orders", Settings.from_environment())
    document = check_of(60, observed=replace(observed(spec, R431, 30), at=time.time() - 60))
    one = {"subject": "controllers", "sentence": "They log in with SCRAM.", "remedy": "Use PLAIN."}
    found = {"code": "QUORUM-CANNOT-START", "severity": "warning", "objects": [one]}
    entry = {"id": "quorum-start", "result": "warning", "reasons": [], "findings": [found]}
    checks.keep("scheduled__3", {**document, "checks": [*document["checks"], entry]}, "")
    refused = option(read(), "4.2.2")
    assert [one.is_possible for one in refused.methods] == [False, False, False]
    for name in (Lowering.LIVE, Lowering.OFFLINE):
        assert method(refused, name).why == "Blocked by QUORUM-CANNOT-START (controllers): They log in with SCRAM."
    assert method(option(read(), "4.3.0"), Lowering.ONLINE).is_possible is True


def test_the_checks_of_rolls_have_the_codes_of_rolls() -> None:
    codes = {code.code for check in CHECKS if check.id in CHECKS_OF_ROLLS for code in check.codes}
    assert codes >= OF_ROLLS.keys()


def test_without_a_method_a_refused_level_closes_an_option(root: Path) -> None:
    spec = replace(make_options(root), runtime="none")
    newest = replace(scan_history(root / "home", "orders").summaries()[-1], scanned_at=NOW - 60)
    seen = replace(observed(spec, R431, 30), at=NOW - 60)
    state, sentence = judged(spec, "4.2.2", newest, seen)
    assert (state, "metadata.version" in sentence) == (OptionState.CLOSED, True)
    assert judged(spec, "4.3.0", newest, seen) == (OptionState.OPEN, "")


def test_levels_and_plans_of_runs_are_part_of_the_history(root: Path) -> None:
    make_options(root)
    found = option(read(), "4.0.1")
    assert [change.run_id for change in found.history] == ["manual__up"]
    assert "finalized metadata.version at 30; 4.0.1 supports at most 25" in found.history[0].sentence
    assert found.last_plan is not None
    assert (found.last_plan.run, found.last_plan.blockers) == (2, ("METADATA-LOST: a topic",))


def test_without_the_right_to_scans_or_runs_their_values_are_not_there(root: Path) -> None:
    make_options(root)
    scans_only = read(may_read=False)
    assert scans_only.scan_run == "scheduled__2"
    assert not any(one.last_plan for one in scans_only.options)
    runs_only = read(sees_scans=False)
    assert (runs_only.scanned_at, runs_only.of_methods) == (None, ())
    one = option(runs_only, "4.2.2")
    assert (one.state, one.reasons[0].sentence) == (OptionState.UNKNOWN, "You cannot read the scans of this cluster.")
    assert {log.verdict for log in one.logs} == {None}
    assert method(one, Lowering.LIVE).why == one.reasons[0].sentence
    closed = option(runs_only, "3.6.2")
    assert (closed.state, closed.reasons[0].code) == (OptionState.CLOSED, "METADATA-VERSION-FLOOR")
    assert {one.why for one in closed.methods} == {closed.reasons[0].sentence}
    settings = Settings.from_environment()
    spec = get_cluster("orders", settings)
    assert read_options(spec, settings, may_read=lambda dag_id: False, sees_scans=False) is None


def test_the_fleet_has_the_same_open_options(root: Path) -> None:
    make_options(root, level=8)
    (row,), _ = read_fleet(Settings.from_environment())
    opened = {str(one.release) for one in read().options if one.state is OptionState.OPEN}
    assert set(row.downgrade_to or ()) == opened
    assert "3.4.1" in opened
    assert "3.4.0" not in opened


@pytest.mark.usefixtures("root")
def test_the_fleet_shows_unknown_with_an_old_scan(tmp_path: Path) -> None:
    make_options(tmp_path, level=8, scan_age_s=FRESH_S + 60)
    (row,), _ = read_fleet(Settings.from_environment())
    assert row.downgrade_to is None


def test_the_command_prints_the_same_and_names_what_to_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_options(root)
    assert run_main(["check", "--down", "--cluster", "orders", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["cluster"], document["releases"]) == ("orders", ["4.3.1"])
    assert document["options"][0]["release"] == "3.9.1"
    assert run_main(["check", "--down", "--cluster", "orders"]) == 0
    printed = capsys.readouterr().out
    assert "dry run: kafka-rollout downgrade --cluster orders --to 4.2.2 --lowering live --dry-run" in printed
    assert "older patches" in printed
    assert run_main(["check", "--down", "--cluster", "nobody"]) == 2


def test_a_scan_of_an_earlier_version_has_no_topics(root: Path) -> None:
    make_options(root)
    history = scan_history(root / "home", "orders")
    kept = history.keep(scan_of("orders", 5, CLASSIC, CONSUMER), "")
    assert history.summaries()[-1].scan == kept.name
    assert history.summaries()[-1].topics == ("__consumer_offsets", "__transaction_state")
    assert time.time() - history.summaries()[0].scanned_at > FRESH_S
