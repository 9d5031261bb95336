"""The downgrade from a shell, over a fake cluster: the same order and the same refusals as the DAG's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import INCOMPLETE, RefusedError, StoppedError, UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli import run as cli_run
from kafka_rollout.cli.answers import TerminalAnswers
from kafka_rollout.cli.run import ShellServices, run_procedure
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.coordinator_logs.verdicts import evaluate_records
from kafka_rollout.formats.log_types import LogRange, RecordKind
from kafka_rollout.gates.gate import GateKind
from kafka_rollout.groups.group_records import GroupRecords
from kafka_rollout.metadata_log.losses import Loss
from kafka_rollout.model.pace import Pace
from kafka_rollout.model.plan import Lowering
from kafka_rollout.model.state import CheckpointFile, GroupState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.planning.request import DowngradeType, Request
from kafka_rollout.preparation.frozen_plan import SCAN_BEFORE_ROLL
from kafka_rollout.procedure.kinds import DOWNGRADE
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import Planned, events_of
from kafka_rollout.run.ports import Answer, Question
from kafka_rollout.run.step_events import GateChecked
from tests.fakes.cluster import R340, R341, R431, FakeCluster
from tests.fakes.dying_files import KilledError
from tests.fakes.logs import FakeLogs
from tests.fakes.ports import fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.integration.harness.faults.without_live import stage_no_live

COMMITS = RecordKind(topic="__consumer_offsets", partition=0, key_version=1, value_version=4, count=4, first_offset=0)
NOTHING = {"cluster": "fake", "scanned_at": 0.0, "logs": (), "classes": (), "verdicts": ()}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    monkeypatch.setattr(cli_run, "scan_logs", lambda ports, *_: ports.run.attach(SCAN_BEFORE_ROLL, NOTHING))
    world = FakeCluster(R431, finalized={"metadata.version": 29, "share.version": 1})
    world.java = 17
    for node in world.nodes.values():
        node.checkpoints.append(CheckpointFile(node_id=0, path="x", end_offset=500, epoch=3, size=1, modified_at=4e9))
    return world


def request(target: str, *, dry_run: bool = False, level: int | None = None) -> Request:
    return Request(
        target=Release.parse(target),
        level=level,
        dry_run=dry_run,
        pace=Pace.FAST,
        rehearse=not dry_run,  # a requested rehearsal that cannot take place has an exit code of its own
    )


def go_down(ports: ClusterPorts, wanted: Request) -> int:
    answers = TerminalAnswers(cluster=ports.cluster, name="alice", reason="CHG-1", confirms=False)
    services = ShellServices(ports, Settings.from_environment(), None)
    return run_procedure(DOWNGRADE, ports, wanted, answers, services)


def run(world: FakeCluster, home: Path, wanted: Request) -> tuple[int, ClusterPorts]:
    ports = fake_ports(world, home)
    return go_down(ports, wanted), ports


def outcome(ports: ClusterPorts) -> str:
    return str((ports.run.attachment("report.json") or {})["outcome"])


def test_levels_fall_then_the_binary_and_the_report_says_finished(world: FakeCluster, tmp_path: Path) -> None:
    code, ports = run(world, tmp_path, request("4.0.1", level=23))
    assert (code, outcome(ports)) == (0, "finished")
    assert [targets for targets, only in world.updates if not only] == [{"share.version": 0}, {"metadata.version": 23}]
    assert world.stops == [11, 12, 13, 2, 3, 1]
    gates = [gate for gate in ports.run.attachment("report.json")["gates"] if gate["node_id"] is None]
    names = ["groups", "finalized", "snapshot", "metadata-version", "metadata-log", "levels", "final-metadata-version"]
    assert [gate["gate"] for gate in gates] == names
    assert {(gate["state"], len(gate["checks"])) for gate in gates} == {("passed", 1)}
    first, last = (gate for gate in gates if gate["gate"].endswith("metadata-version"))
    assert last["began_at"] > first["ended_at"], "before the roll and after it: two gates"
    assert ports.lock.holder("fake") is None


def test_what_falls_online_is_told_apart_from_what_takes_an_outage(
    world: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_no_live(monkeypatch)
    world.finalized = {"metadata.version": 30, "share.version": 1}
    code, ports = run(world, tmp_path, replace(request("4.0.1"), lowering=Lowering.OFFLINE))
    assert (code, outcome(ports)) == (0, "finished")
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1].endswith("report.json")
    last = printed.err.splitlines()[-1]
    assert last.startswith("Measured outage: ")
    assert last.endswith(f"The approval showed {ports.run.attachment('report.json')['outage']['expected']}.")
    told = " ".join(printed.out.split())
    levels, _, roll = told.partition("All nodes will be stopped")
    assert "share.version 1 → 0" in levels
    assert "metadata.version 30 → 25: with all nodes stopped, after an approval of its own." in levels
    assert "--as NAME --reason TEXT" in roll, "the command of the undo is complete"


def test_killed_with_a_node_down_the_next_call_goes_on_there_and_waits_for_nothing_that_was_passed(
    world: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = FakeRuntime.install

    def install_or_die(self: FakeRuntime, node: NodeSpec, *more: Any, **options: Any) -> None:
        if len(world.stops) == 2:
            raise KilledError
        install(self, node, *more, **options)

    monkeypatch.setattr(FakeRuntime, "install", install_or_die)
    with pytest.raises(KilledError):
        run(world, tmp_path, request("4.0.1", level=23))
    assert world.nodes[12].running is None
    monkeypatch.setattr(FakeRuntime, "install", install)
    code, ports = run(world, tmp_path, request("4.0.1", level=23))
    assert (code, outcome(ports), world.stops) == (0, "finished", [11, 12, 13, 2, 3, 1])
    assert {len(node.starts) for node in world.nodes.values()} == {1}
    assert [targets for targets, only in world.updates if not only] == [{"share.version": 0}, {"metadata.version": 23}]
    finalized = [one for one in events_of(ports.run.events(), GateChecked) if one.ref.kind is GateKind.FINALIZED]
    assert len(finalized) == 1, "with a node down it would not hold"


def test_a_real_loss_refuses_before_the_controller_is_asked(world: FakeCluster, tmp_path: Path) -> None:
    world.losses = [Loss(kind="cordoned log directories", subject="broker 11", sentence="Broker 11 loses /data/2.")]
    ports = fake_ports(world, tmp_path)
    with pytest.raises(RefusedError, match="Broker 11 loses /data/2"):
        go_down(ports, request("4.0.1"))
    assert (world.updates, world.stops, outcome(ports)) == ([], [], "refused")


def test_an_accepted_loss_is_read_before_the_levels_fall(
    world: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = "SjsugtA7F6YxfWx3HdBG8w"
    world.losses = [
        Loss(kind="cordoned log directories", subject="broker 11", sentence=f"Broker 11 loses {directory}.")
    ]
    world.log_directories = {directory: "/data/2"}
    code, ports = run(world, tmp_path, replace(request("4.0.1", level=23), downgrade_type=DowngradeType.UNSAFE))
    assert (code, outcome(ports)) == (0, "finished")
    told = " ".join(capsys.readouterr().out.split())
    assert f"Metadata lost: 1 • Broker 11 loses /data/2 ({directory}). The metadata identifies directories by" in told


def test_settings_of_a_kind_that_the_older_release_does_not_know_refuse_it(
    world: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_no_live(monkeypatch)
    world.finalized, world.group_configs = (
        {"metadata.version": 21},
        {"planned": {"consumer.session.timeout.ms": "50000"}},
    )
    code, ports = run(world, tmp_path, request("3.9.1", dry_run=True))
    assert code == RefusedError.exit_code
    (blocker,) = ports.run.load_plan().blockers
    assert (blocker.code, blocker.subject) == ("SETTINGS-NOT-KEPT", "3.9.1, group configurations")
    assert "planned" in blocker.sentence
    unsafe = replace(request("3.9.1", dry_run=True), downgrade_type=DowngradeType.UNSAFE)
    assert run(world, tmp_path / "accepted", unsafe)[0] == 0
    assert run(world, tmp_path / "known", request("4.0.1", dry_run=True))[0] == 0
    world.finalized = {"metadata.version": 30}
    code, ports = run(world, tmp_path / "offline", replace(unsafe, lowering=Lowering.OFFLINE))
    assert {blocker.code for blocker in ports.run.load_plan().blockers} == {"SETTINGS-NOT-KEPT"}, (
        "they have to go first"
    )


def test_a_dry_run_shows_plan_and_blockers_by_its_exit_code(
    world: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, ports = run(world, tmp_path, request("4.0.1", dry_run=True))
    assert (code, outcome(ports), world.updates, world.stops) == (0, "dry_run", [], [])
    told = " ".join(capsys.readouterr().out.split())
    for part in (
        "metadata.version 29 → 25",
        "share.version 1 → 0",
        "Metadata lost: none",
        "4.3.1 → 4.0.1, one node at",
    ):
        assert part in told
    assert "can read the metadata log of every node" not in told, "it is unknown before the levels are low"
    not_rehearsed = replace(request("4.0.1", dry_run=True), rehearse=True)
    assert run(world, tmp_path / "rehearsed", not_rehearsed)[0] == INCOMPLETE
    capsys.readouterr()
    world.unseen = {1}
    code, _ = run(world, tmp_path / "second", request("4.0.1", dry_run=True))
    assert code == RefusedError.exit_code
    assert "METADATA-LOG-UNSEEN" in capsys.readouterr().out


def test_without_a_level_named_the_targets_highest_is_meant(world: FakeCluster, tmp_path: Path) -> None:
    _, ports = run(world, tmp_path, request("4.0.1", dry_run=True))
    assert ports.run.load_plan().levels == {"share.version": 0, "metadata.version": 25}


def test_records_that_the_target_cannot_load_refuse_it_and_not_the_release_before(
    world: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned = ScanResult(
        cluster="fake",
        scanned_at=0.0,
        logs=(LogRange(topic=COMMITS.topic, partition=0, start=0, end=4),),
        classes=(COMMITS,),
        verdicts=evaluate_records(world.catalogue, (COMMITS,), list(world.catalogue)),
    )
    monkeypatch.setattr(cli_run, "scan_logs", lambda ports, *_: ports.run.attach(SCAN_BEFORE_ROLL, scanned))
    world.finalized = {"metadata.version": 8}
    code, ports = run(world, tmp_path, request("3.4.0", dry_run=True))
    plan = ports.run.load_plan()
    assert code == RefusedError.exit_code
    assert [release_step.key for release_step in plan.release_steps] == ["4.3.1-to-3.4.1", "3.4.1-to-3.4.0"]
    assert {f.subject for f in plan.blockers} == {"3.4.0, topic __consumer_offsets"}
    assert run(world, tmp_path / "second", request("3.4.1", dry_run=True))[0] == 0


def test_an_intolerant_target_is_reached_by_way_of_a_tolerant_release(world: FakeCluster, tmp_path: Path) -> None:
    world.finalized = {"metadata.version": 8}
    code, ports = run(world, tmp_path, request("3.4.0"))
    assert (code, outcome(ports)) == (0, "finished")
    assert {node.running for node in world.nodes.values()} == {R340}
    assert [start.release for start in world.nodes[1].starts] == [R341, R340]


@pytest.mark.parametrize(
    ("levels", "target", "code"),
    [
        ({"metadata.version": 30}, "4.2.1", "FEATURE-DOWNGRADE-REFUSED"),
        ({"metadata.version": 15}, "3.4.1", "METADATA-VERSION-FLOOR"),
    ],
)
def test_what_stands_in_the_way_is_a_blocker(
    world: FakeCluster, tmp_path: Path, levels: dict[str, int], target: str, code: str
) -> None:
    world.finalized = levels
    exit_code, ports = run(world, tmp_path, request(target, dry_run=True))
    assert exit_code == RefusedError.exit_code
    assert code in {finding.code for finding in ports.run.load_plan().blockers}


def test_groups_that_lose_their_type_are_waited_for_before_anything_falls(
    world: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    billing = GroupState(group_id="billing", type="streams", state="Stable", members=1)
    world.groups, world.finalized = [billing], {"metadata.version": 29, "streams.version": 1}
    sent_at_look: list[int] = []

    def stopped_meanwhile(_: FakeLogs, *, planned: bool | None, by_spark: bool, incremental: bool) -> GroupRecords:
        sent_at_look.append(len([targets for targets, only in world.updates if not only]))
        world.groups = []
        return GroupRecords(read_at=0.0, offsets=0)

    monkeypatch.setattr(FakeLogs, "group_records", stopped_meanwhile)
    code, ports = run(world, tmp_path, request("4.0.1", level=23))
    assert (code, outcome(ports), sent_at_look) == (0, "finished", [0, 0])
    told = {finding.code: finding for finding in ports.run.load_plan().findings}["GROUPS-LOSE-THEIR-PROTOCOL"]
    assert "billing (1 member)" in told.sentence


def test_a_log_is_trimmed_in_its_nodes_turn(world: FakeCluster, tmp_path: Path) -> None:
    world.finalized = {"metadata.version": 8}
    world.unreadable = {(11, R341)}
    code, ports = run(world, tmp_path, request("3.4.1"))
    assert (code, world.trims, outcome(ports)) == (0, [11], "finished")


def test_a_plan_that_was_ended_before_its_scans_is_scanned_when_the_run_goes_on(
    world: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(cli_run, "scan_logs", ended)
        with pytest.raises(StoppedError):
            run(world, tmp_path, request("4.0.1"))
    world.losses = [Loss(kind="cordoned log directories", subject="broker 11", sentence="Broker 11 loses /data/2.")]
    with pytest.raises(RefusedError, match="Broker 11 loses /data/2"):
        run(world, tmp_path, request("4.0.1"))
    assert (world.updates, world.stops) == ([], [])


def test_a_refused_run_plans_again_when_it_is_resumed_and_a_finished_plan_stays(
    world: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.add_partition("single", 0, [11])
    for _ in range(2):
        with pytest.raises(RefusedError, match="RF-ONE-TOPIC"):
            run(world, tmp_path, request("4.0.1"))
    shown = capsys.readouterr().err
    assert "Then plan again with: kafka-rollout downgrade --to 4.0.1 --cluster fake --run " in shown
    del world.topics["single-0"]
    with pytest.raises(UserError, match=r"is a downgrade run to 4\.0\.1"):
        run(world, tmp_path, request("3.9.1"))
    code, ports = run(world, tmp_path, request("4.0.1"))
    assert (code, outcome(ports)) == (0, "finished")
    planned = len(events_of(ports.run.events(), Planned))
    assert planned == 3
    run(world, tmp_path, request("4.0.1"))
    assert len(events_of(ports.run.events(), Planned)) == planned


def test_a_plan_whose_approval_became_invalid_before_anything_was_changed_is_made_again(
    world: FakeCluster, tmp_path: Path
) -> None:
    class Degrading(TerminalAnswers):
        """Another topic is created while the approver reads the plan."""

        def ask(self, question: Question) -> Answer | None:
            world.add_partition("single", 0, [11])
            return super().ask(question)

    ports = fake_ports(world, tmp_path)
    answers = Degrading(cluster=ports.cluster, name="alice", reason="CHG-1", confirms=False)
    with pytest.raises(RefusedError, match="The approval is no longer valid"):
        run_procedure(
            DOWNGRADE, ports, request("4.0.1"), answers, ShellServices(ports, Settings.from_environment(), None)
        )
    assert (world.stops, len(events_of(ports.run.events(), Planned))) == ([], 1)
    del world.topics["single-0"]
    assert run(world, tmp_path, request("4.0.1"))[0] == 0
    assert len(events_of(ports.run.events(), Planned)) == 2
