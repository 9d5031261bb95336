"""The rows of all clusters: what is stored, with its age; unknown stays unknown."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli.app import run_main
from kafka_rollout.console.fleet import COLUMNS, FleetRow, Show, as_csv, cells, choose_rows
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.check_report import Result
from kafka_rollout.run.events import Event, Observed
from kafka_rollout.run.projections.observations import newest_observation
from kafka_rollout.run.step_events import Finalized, Started, Stopping
from kafka_rollout.run.store.opening import open_check_history
from kafka_rollout.wiring import stored_state as wiring
from kafka_rollout.wiring.stored_state import read_fleet
from tests.fleet_scenes import (
    HOSTILE,
    R381,
    R391,
    R401,
    R431,
    SHELL,
    STEP,
    Fleet,
    dag,
    make_cluster,
    make_scenes,
    observed,
    planned,
)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    return Fleet(tmp_path)


@pytest.fixture
def rows(fleet: Fleet, tmp_path: Path) -> dict[str, FleetRow]:
    make_scenes(tmp_path)
    return read()


def read(may_read: Callable[[str], bool] = lambda dag_id: True, *, scans: bool = True) -> dict[str, FleetRow]:
    found, _ = read_fleet(Settings.from_environment(), may_read=may_read, sees_scans=lambda cluster: scans)
    return {row.cluster: row for row in found}


def shown(row: FleetRow, now: float | None = None) -> dict[str, str]:
    return dict(zip((column.id for column in COLUMNS), cells(row, now), strict=True))


def test_a_cluster_that_waits_names_the_request_and_what_to_do(rows: dict[str, FleetRow]) -> None:
    cell = shown(rows["orders"])
    assert (cell["state"], cell["release"], cell["level"]) == ("waiting for approval", "3.9.1", "3.9-IV0 (21)")
    assert (cell["nodes"], cell["health"], cell["runs"]) == ("40 brokers, 5 controllers", "healthy", "1")
    assert cell["waits"].startswith('=HYPERLINK("http://evil")\\u202e')
    assert "Open the page of the cluster in Airflow and answer: Approve, Reject." in cell["next"]
    assert cell["verdicts"].startswith("3.4.0, 3.3.2, 3.3.1, 3.3.0 fail; ")
    assert cell["downgrade"] == "3.9.0, 3.8.1, 3.7.2"
    assert cell["behind"] == "13 (newest 4.4.0, patch 3.9.2)"


def test_the_nodes_that_a_run_has_moved_since_are_counted(rows: dict[str, FleetRow]) -> None:
    row = rows["payments"]
    assert (dict(row.releases or {}), row.needs_human) == ({"4.3.1": 1, "3.9.1": 14}, False)
    assert shown(row)["release"] == "mixed: 1 × 4.3.1, 14 × 3.9.1"
    assert row.changed is not None
    assert row.releases_behind == 13


def test_a_plan_is_an_observation_with_its_age(rows: dict[str, FleetRow]) -> None:
    row = rows["search"]
    assert shown(row)["health"] == (
        "node 2 did not respond; 2 partitions without a leader; 17 partitions with a replica out of sync"
    )
    assert row.defects is not None
    assert {"CVE-2026-111115", "KAFKA-19862"} <= set(row.defects)
    assert "verify --cluster search" in row.next_action
    assert shown(row, time.time())["observed"].endswith("Z (25 h 00 min ago)")


def test_the_build_of_a_vendor_is_named(rows: dict[str, FleetRow]) -> None:
    assert rows["ledger"].builds == {"7.9.1-ccs (Confluent Platform)": 6}


def test_a_cluster_that_was_never_observed_is_unknown_and_not_healthy(rows: dict[str, FleetRow]) -> None:
    cell = shown(rows["archive"])
    unknown = ("release", "level", "build", "health", "verdicts", "downgrade", "check", "behind", "defects")
    assert {cell[one] for one in unknown} == {"unknown"}
    assert "check --cluster archive" in cell["next"]


def test_an_event_of_an_earlier_version_has_no_health(fleet: Fleet) -> None:
    spec = fleet.add("old")
    found = observed(spec, R391, 21, offline_partitions=None, under_min_isr=None, under_replicated=None)
    fleet.run("old", "r", SHELL, found, planned(R391, R431))
    assert (read()["old"].problems, shown(read()["old"])["health"]) == (None, "unknown")


def test_nodes_that_the_run_has_stopped_are_no_good_health_and_bad_health_comes_before_good(fleet: Fleet) -> None:
    spec = fleet.add("billing")
    stops = [Stopping(node_id=node.node_id, release_step=STEP) for node in spec.nodes]
    fleet.run("billing", "manual__b", dag("billing"), observed(spec, R391, 21), planned(R391, R431), *stops)
    assert shown(read()["billing"])["health"] == "the run has stopped nodes 1, 2, 3, 9001, 9002, 9003"
    fleet.run("billing", "manual__b", Started(node_id=1, release_step=STEP, release=R431, pid=7, seconds=9.0))
    assert shown(read()["billing"])["health"] == "the run has stopped nodes 2, 3, 9001, 9002, 9003"
    for name, health in (("archive", {}), ("zoo", {"offline_partitions": 2})):
        fleet.run(name, "plan", SHELL, observed(fleet.add(name), R391, 21, **health), planned(R391, R431), age_s=90_000)
    assert [row.cluster for row in choose_rows(read().values())] == ["billing", "zoo", "archive"]


def test_filters_put_those_that_need_a_human_first(rows: dict[str, FleetRow]) -> None:
    def names(show: Show = Show.ALL, text: str = "") -> list[str]:
        return [row.cluster for row in choose_rows(rows.values(), show, text)]

    assert names() == ["orders", "payments", "search", "archive", "ledger"]
    assert names(Show.NEEDS_HUMAN) == ["orders"]
    assert names(Show.RUNNING) == ["orders", "payments"]
    assert names(text=" CONFLUENT ") == ["ledger"]
    assert names(text="team-search") == ["search"]
    assert names(Show.RUNNING, "search") == []


def test_no_cell_of_the_csv_is_a_formula(rows: dict[str, FleetRow]) -> None:
    evil = [replace(rows["archive"], waits_for=(f"{sign}cmd",)) for sign in "=+-@"]
    text = as_csv([*evil, replace(rows["archive"], waits_for=(" =1",)), *rows.values()])
    assert text.endswith("\r\n")
    lines = list(csv.reader(io.StringIO(text, newline="")))
    assert {len(line) for line in lines} == {len(COLUMNS)}
    assert [line[3] for line in lines[1:6]] == ["'=cmd", "'+cmd", "'-cmd", "'@cmd", "' =1"]
    assert not [cell for line in lines for cell in line if cell.lstrip()[:1] in set("=+-@")]
    assert "\u202e" not in text
    assert HOSTILE[:5] in text


def test_a_reader_sees_only_the_clusters_and_values_of_its_dags(rows: dict[str, FleetRow], fleet: Fleet) -> None:
    spec = make_cluster("orders", brokers=40, controllers=5)
    fleet.run("orders", "manual__d", dag("orders", "downgrade"), observed(spec, R401, 25), planned(R401, R391))
    assert set(read(lambda dag_id: "orders" in dag_id, scans=False)) == {"orders"}
    upgrades = read(lambda dag_id: dag_id == "kafka_upgrade_orders", scans=False)["orders"]
    assert (upgrades.in_progress, upgrades.releases) == ((1,), {"3.9.1": 45})
    assert (upgrades.scanned, upgrades.verdicts, upgrades.check) == (None, None, None)
    downgrades = read(lambda dag_id: dag_id == "kafka_downgrade_orders", scans=False)["orders"]
    assert (downgrades.in_progress, downgrades.waits_for, downgrades.releases) == ((2,), (), {"4.0.1": 45})
    only_scans = read(lambda dag_id: False)["orders"]
    assert (only_scans.run, only_scans.releases, only_scans.scanned is not None) == (None, None, True)
    assert read(lambda dag_id: False, scans=False) == {}


def test_a_scheduled_check_is_an_observation_too(fleet: Fleet) -> None:
    spec = fleet.add("daily")
    seen = observed(spec, R401, 25)
    fleet.run("daily", "plan", SHELL, observed(spec, R391, 21), planned(R391, R431), age_s=600)
    document = {
        "target": "4.4.0",
        "checked_at": time.time(),
        "totals": {result.value: 0 for result in Result} | {"blocker": 2, "warning": 1},
        "observed": to_json(replace(seen, at=time.time())),
    }
    open_check_history("daily", Settings.from_environment()).keep("scheduled__1", document, "")
    row = read()["daily"]
    assert (row.releases, shown(row)["check"]) == ({"4.0.1": 6}, "4.4.0: 2 blockers, 1 warning")
    assert "remove 2 blockers" in row.next_action
    assert read(scans=False)["daily"].releases == {"3.9.1": 6}


def test_what_a_run_set_after_an_observation_counts_and_what_it_set_before_does_not() -> None:
    spec = make_cluster("c")
    started = Started(at=20.0, node_id=1, release_step=STEP, release=R431, pid=7, seconds=1.0)
    finalized = Finalized(at=30.0, levels={"metadata.version": 25}, epoch_after=3)
    first = observed(spec, R391, 21, at=10.0, down=(1,), builds={1: "7.9.1-ccs"})
    found = newest_observation([finalized, started, first])
    assert found is not None
    assert (found.observed.releases[1], found.observed.releases[2], found.changed_at) == (R431, R391, 30.0)
    assert (found.observed.finalized, found.observed.down, found.observed.builds) == ({"metadata.version": 25}, (), {})
    assert newest_observation([started, finalized]) is None
    same = replace(found.observed, at=40.0)
    later = newest_observation([finalized, started, first, same])
    assert later is not None
    assert (later.observed, later.changed_at) == (same, 30.0)


def test_an_observation_with_other_releases_or_levels_is_a_change_by_hand() -> None:
    spec = make_cluster("c")
    first = observed(spec, R391, 21, at=10.0)
    down = replace(first, at=20.0, releases={**first.releases, 1: None}, finalized={})
    shared = {"metadata.version": 21, "share.version": 0}

    def changed_at(*events: Event) -> float:
        found = newest_observation(events)
        assert found is not None
        return found.changed_at

    def restarted(release: Release) -> Started:
        return Started(at=30.0, node_id=1, release_step=STEP, release=release, pid=7, seconds=1.0)

    assert changed_at(first, down, replace(first, at=30.0, finalized=shared)) == 0.0
    assert changed_at(first, down, observed(spec, R391, 25, at=30.0)) == 30.0
    assert changed_at(first, down, replace(first, at=30.0, releases={**first.releases, 1: R401})) == 30.0
    assert changed_at(first, replace(first, at=30.0, finalized={**first.finalized, "group.version": 1})) == 30.0
    assert changed_at(first, down, restarted(R391)) == 0.0
    assert changed_at(first, down, restarted(R401)) == 30.0


def test_a_live_query_replaces_what_is_stored_and_its_failure_does_not(
    rows: dict[str, FleetRow], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kafka_rollout.base.errors import TransientError

    def observe(spec: object, settings: object, security_of: object) -> object:
        if spec.name == "orders":  # type: ignore[attr-defined]
            raise TransientError("No broker responds.")
        return observed(spec, R431, 29, at=time.time())  # type: ignore[arg-type]

    monkeypatch.setattr(wiring, "observe_now", observe)
    assert run_main(["fleet", "--live", "--json"]) == 0
    found = {row["cluster"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["archive"]["releases"] == {"4.3.1": 6}
    assert found["archive"]["is_live"]
    assert found["orders"]["releases"] == {"3.9.1": 45}
    assert "The live query failed: No broker responds." in found["orders"]["next_action"]
    assert found["orders"]["needs_human"]


def test_a_live_query_keeps_the_time_of_the_newest_change(fleet: Fleet) -> None:
    spec = fleet.add("orders")
    step = {"node_id": 1, "release_step": STEP, "release": R391, "pid": 7, "seconds": 1.0}
    fleet.run("orders", "manual__up", dag("orders"), observed(spec, R381, 20), age_s=9000)
    fleet.scan("orders", age_s=7200)
    rolled = [Started(**{**step, "node_id": node.node_id}) for node in spec.nodes]  # type: ignore[arg-type]
    fleet.run("orders", "manual__up", *rolled, age_s=3600)

    def live(spec: ClusterSpec) -> Observed:
        return observed(spec, R391, 20, at=time.time())

    (row,), _ = read_fleet(Settings.from_environment(), live=live)
    assert row.is_live
    assert (row.changed, row.downgrade_to) == (read()["orders"].changed, None)
    fleet.scan("orders")
    (row,), _ = read_fleet(Settings.from_environment(), live=live)
    assert "3.8.1" in (row.downgrade_to or ())


def test_the_command_prints_the_same_columns(
    rows: dict[str, FleetRow], fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(["fleet", "--show", "needs-human"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "! orders"
    assert [line.split(":")[0].strip() for line in lines[1:]] == [column.title for column in COLUMNS[1:]]
    assert run_main(["fleet", "--csv", "--text", "archive"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("archive,idle,Check the cluster")
    (fleet.clusters / "bad.yaml").write_text("[")
    assert run_main(["fleet", "--csv"]) == 2
    said = capsys.readouterr()
    assert "bad.yaml" in said.err
    assert "orders," in said.out
    assert run_main(["fleet", "--csv", "--json"]) == 2
