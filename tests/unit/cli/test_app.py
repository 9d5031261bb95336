"""Bad input gets one sentence and the exit code of its kind, never a trace."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import FatalError, RefusedError, StoppedError, TransientError, UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli import app as cli
from kafka_rollout.cli import run as cli_run
from kafka_rollout.cli import show
from kafka_rollout.cli.answers import TerminalAnswers, shell_responder
from kafka_rollout.cli.commands import runs as runs_commands
from kafka_rollout.cli.options import new_run_id
from kafka_rollout.cli.run import (
    ShellServices,
    accept_logs,
    roll_back_run,
    run_procedure,
    start_node_again,
    stop_signal,
)
from kafka_rollout.cli.show import plain
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.feature_updates.update import plan_features
from kafka_rollout.features.requests import FeatureAction, FeatureOrder
from kafka_rollout.model.pace import Pace
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.state import GroupState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.frozen_plan import SCAN_BEFORE_ROLL
from kafka_rollout.procedure.kinds import UPGRADE, build_report_of_run
from kafka_rollout.rehearsal.job import RehearsalStoppedError
from kafka_rollout.releases.facts import REBALANCE_PROTOCOLS
from kafka_rollout.run.events import Approval, Asked, AskingEnded, events_of, has
from kafka_rollout.run.view import RunView
from kafka_rollout.wiring import stored_state
from kafka_rollout.wiring.runs import read_status
from tests.fakes.cluster import R340, R391, R431, FakeCluster, lose_a_group_at_the_start_of, make_spec
from tests.fakes.ports import fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.plans import plan_upgrade
from tests.records import change_lock


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one cluster, `fake`, that nobody runs."""
    clusters = tmp_path / "clusters"
    clusters.mkdir()
    spec = make_spec()
    nodes = tuple(replace(node, directory=str(tmp_path / node.name)) for node in spec.nodes)
    (clusters / "fake.yaml").write_text(dump_cluster(replace(spec, nodes=nodes)))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(clusters))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ("verify --cluster nope", 2, "The inventory contains no cluster nope"),
        ("verify", 2, "--cluster"),
        ("rol", 2, "has no command 'rol'. For all commands, see `kafka-rollout --help`."),
        ("upgrad", 2, "has no command 'upgrad'. Did you mean 'upgrade'?"),
        ("dwngrade", 2, "has no command 'dwngrade'. Did you mean 'downgrade'?"),
        ("pgrade", 2, "has no command 'pgrade'. For all commands, see `kafka-rollout --help`."),
        ("features upgrade", 2, "kafka-rollout features has no command 'upgrade'. For all commands"),
        ("upgrade -c fake --to 4.3.1", 2, "An upgrade needs a named approval"),
        ("rollback -c fake --run never", 2, "has no run never"),
        ("upgrade -c fake --to 4.3 --dry-run", 2, "'4.3' is not a Kafka release"),
        ("upgrade -c fake --to 4.3.1 --run never", 2, "has no run never"),
        ("retry -c fake --run never", 2, "has no run never"),
        ("runs report -c fake", 2, "has no run yet"),
        ("runs report -c fake --events --write", 2, "--events excludes"),
        ("status -c fake --watch --wait", 2, "exclude each other"),
        ("status -c fake --timeout 5s", 2, "belong to --watch and --wait"),
        ("features set -c fake --upgrade group.version", 2, "is not in the form feature=level"),
        ("features set -c fake --upgrade group.version:1", 2, "needs a named approval"),
        ("features set -c fake --upgrade group.version:1 --downgrade group.version:0", 2, "There are two requests for"),
        ("features set -c fake", 2, "either features or a release"),
        ("features describe -c fake", 1, "No node of cluster fake responds"),
        ("features set --action downgrade-all -c fake --release-version 3 --dry-run", 2, "is not a Kafka release"),
        ("verify -c fake --command-config /nowhere", 2, "/nowhere"),
        ("verify -c fake", 1, "127.0.0.1"),
    ],
)
def test_bad_input_is_answered_in_a_sentence(
    home: Path, capsys: pytest.CaptureFixture[str], words: str, code: int, sentence: str
) -> None:
    assert cli.run_main(words.split()) == code
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err + said.out


def test_what_we_did_not_foresee_is_a_sentence_too(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(stored_state, "read_fleet", broken)
    assert cli.run_main(["fleet"]) == 1
    assert "KAFKA_ROLLOUT_DEBUG=1" in capsys.readouterr().err
    monkeypatch.setenv("KAFKA_ROLLOUT_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.run_main(["fleet"])


@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_ctrl_c_ends_a_command_with_a_sentence(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, json_option: list[str]
) -> None:
    monkeypatch.setattr(stored_state, "read_fleet", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    assert cli.run_main(["fleet", *json_option]) == StoppedError.exit_code
    said = capsys.readouterr()
    assert said.err == "Stopped by Ctrl-C before the end. To do the rest, repeat it.\n"
    assert not json_option or json.loads(said.out)["error"]["kind"] == "interrupted"


def test_an_error_of_no_known_kind_is_a_result_too(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise RehearsalStoppedError("The rehearsal was stopped.")

    monkeypatch.setattr(stored_state, "read_fleet", stopped)
    assert cli.run_main(["fleet", "--json"]) == RehearsalStoppedError.exit_code
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["kind"], error["sentence"]) == ("unexpected", "The rehearsal was stopped.")


def test_a_lock_is_shown_and_broken_by_name(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_lock(home).acquire("fake", "run-7", "Stop node 2.", for_s=60)
    assert cli.run_main(["status", "-c", "fake"]) == 0
    assert re.search(r"^Lock: run run-7 until 20\S+Z \(in .+\) \(Stop node 2\)$", capsys.readouterr().out, re.MULTILINE)
    assert cli.run_main(["unlock", "-c", "fake"]) == 2
    assert cli.run_main(["unlock", "-c", "fake", "--as", "alice"]) == 0
    assert change_lock(home).holder("fake") is None
    assert cli.run_main(["status", "-c", "fake"]) == 0
    assert "Lock: no run holds it\n" in capsys.readouterr().out


def test_the_catalogue_and_the_exit_codes_are_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_main(["catalogue"]) == 0
    assert "4.3.1" in capsys.readouterr().out
    assert cli.run_main(["--help"]) == 0
    assert "Exit codes" in capsys.readouterr().out


def test_the_catalogue_is_json_with_the_day_of_each_build(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_main(["catalogue", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["4.3.1"]["built_at"] == "2026-06-17"
    assert (facts["3.9.0"]["java_maximum_with_sasl"], facts["3.9.1"]["java_maximum_with_sasl"]) == (22, None)


def test_the_catalogue_fits_into_80_columns(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show.out, "width", 80)
    assert cli.run_main(["catalogue"]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["eligible.leader.replicas.version", "0-1"] in shown
    assert ["4.3.1", "emitting", "17+", "metadata.version", "7-30", "(3.3-IV3", "to", "4.3-IV0)"] in shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_ctrl_c_or_sigterm_asks_and_the_second_ends(number: signal.Signals) -> None:
    handler_before = signal.getsignal(number)  # Spark's, if a session ran in this process before
    with stop_signal() as stop_asked:
        assert not stop_asked()
        signal.raise_signal(number)
        assert stop_asked()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is handler_before


def test_two_shells_in_one_second_are_two_holders_of_the_lock() -> None:
    assert new_run_id() != new_run_id()


ALICE: dict[str, Any] = {"name": "alice", "reason": "CHG-1", "confirms": False}


def answers_of(ports: ClusterPorts, **options: Any) -> TerminalAnswers:
    return TerminalAnswers(cluster=ports.cluster, **{**ALICE, **options})


def roll(ports: ClusterPorts, answers: TerminalAnswers | None = None, **options: Any) -> int:
    given: dict[str, Any] = {
        "target": R431,
        "plans_features": False,
        "scan": False,
        "pace": Pace.FAST,
    }
    services = ShellServices(ports, Settings.from_environment(), None)
    return run_procedure(UPGRADE, ports, Request(**{**given, **options}), answers or answers_of(ports), services)


def test_a_resumed_run_finalizes_only_when_it_is_asked_to(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    ports = fake_ports(cluster, home)
    planned: Plan = plan_upgrade(ports, R431, finalize=True)  # by `upgrade --dry-run`
    assert planned.feature_changes
    assert roll(ports) == 0
    assert {node.running for node in cluster.nodes.values()} == {R431}
    assert cluster.updates == []


def test_groups_of_a_preview_hold_the_roll_up_before_its_first_stop(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeCluster()
    cluster.groups = [GroupState(group_id="early", type="consumer", state="Stable", members=1)]
    ports = fake_ports(cluster, home)
    with pytest.raises(RefusedError, match="gate groups failed"):
        roll(replace(ports, cluster=replace(ports.cluster, gate_timeout_s=0.0)))
    assert "1 group to convert: early" in " ".join(capsys.readouterr().err.split())
    assert cluster.stops == []
    cluster.groups = []
    assert roll(ports) == 0
    assert {node.running for node in cluster.nodes.values()} == {R431}


def test_the_log_of_a_node_that_proves_nothing_is_accepted_by_a_named_approver(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeCluster()
    lose_a_group_at_the_start_of(cluster, 12)
    ports = fake_ports(cluster, home)
    plan_upgrade(ports, R431, finalize=False)
    with pytest.raises(RefusedError, match="There is nothing to accept"):
        accept_logs(ports, answers_of(ports))
    with pytest.raises(RefusedError, match=r"after node 12 failed .*the log does not show the load of __consumer_off"):
        roll(replace(ports, cluster=replace(ports.cluster, gate_timeout_s=30.0)))
    assert "accept the log: kafka-rollout accept --cluster fake --run 1" in capsys.readouterr().err
    with pytest.raises(RefusedError, match="mallory is not an approver"):
        accept_logs(ports, answers_of(ports, name="mallory", reason="I can"))
    with pytest.raises(RefusedError, match="--yes accepts none unread"):
        accept_logs(ports, answers_of(ports))
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: True)
    accept_logs(ports, answers_of(ports, confirms=True))
    told = capsys.readouterr()
    assert "the log does not show the load of __consumer_offsets-1" in " ".join(told.out.replace("\\", "").split())
    assert "Continue with: kafka-rollout upgrade --to 4.3.1 --cluster fake --run 1" in told.err
    assert change_lock(home).holder("fake") is None
    assert roll(ports) == 0
    (given,) = [one for one in events_of(ports.run.events(), Approval) if one.what == "node-log"]
    assert (given.by, given.decision) == ("alice", "approved")


def test_a_node_that_was_mended_is_started_once_more_and_the_roll_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, request = FakeCluster(), Request(pace=Pace.FAST)
    ports = fake_ports(cluster, home)
    plan_upgrade(ports, R431, finalize=False)
    with pytest.raises(UserError, match="has not stopped a node"):
        start_node_again(ports, request, answers_of(ports))
    cluster.cannot_start.add((3, R431))
    with pytest.raises(RefusedError, match="after node 3 failed"):
        roll(ports)
    told = capsys.readouterr().err
    assert "restart the node: kafka-rollout retry --cluster fake --run 1" in told
    assert "roll back: kafka-rollout rollback --cluster fake --run 1" in told
    with pytest.raises(RefusedError, match="mallory is not an approver"):
        start_node_again(ports, request, answers_of(ports, name="mallory", reason="I can"))
    cluster.cannot_start.clear()
    start_node_again(ports, request, answers_of(ports))
    assert "Continue with: kafka-rollout upgrade --to 4.3.1 --cluster fake --run 1" in capsys.readouterr().err
    assert ("failed-gate", "alice", "Retry") in {
        (a.what, a.by, a.decision) for a in events_of(ports.run.events(), Approval)
    }
    assert change_lock(home).holder("fake") is None
    assert roll(ports) == 0
    assert cluster.stops == [2, 3, 1, 11, 12, 13]
    assert {node.running for node in cluster.nodes.values()} == {R431}


def test_the_approval_of_a_rollback_lists_what_it_cannot_compare(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeCluster()
    ports = fake_ports(cluster, home)
    plan_upgrade(ports, R431, finalize=False)
    cluster.cannot_start.add((3, R431))
    with pytest.raises(RefusedError, match="after node 3 failed"):
        roll(ports)
    capsys.readouterr()
    read = FakeRuntime.config

    def config(runtime: FakeRuntime, node: NodeSpec) -> Mapping[str, str]:
        if node.node_id == 13:
            raise TransientError("The host does not respond.")
        return read(runtime, node)

    monkeypatch.setattr(FakeRuntime, "config", config)
    services = ShellServices(ports, Settings.from_environment(), None)
    assert roll_back_run(UPGRADE, ports, Request(pace=Pace.FAST), answers_of(ports), services) == 0
    said = "The file of node 13 is unknown: The host does not respond."
    assert said in " ".join(capsys.readouterr().out.split())
    (given,) = [one for one in events_of(ports.run.events(), Approval) if one.what == "roll-back"]
    assert said in given.text


def test_a_run_that_rolls_back_is_continued_with_the_rollback(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command of its kind would ask to approve the upgrade again."""
    cluster, request = FakeCluster(), Request(pace=Pace.FAST)
    ports = fake_ports(cluster, home)
    plan = plan_upgrade(ports, R431, finalize=False)
    cluster.cannot_start |= {(3, R431), (3, plan.source)}
    with pytest.raises(RefusedError, match="after node 3 failed"):
        roll(ports)
    capsys.readouterr()
    services = ShellServices(ports, Settings.from_environment(), None)
    with pytest.raises(RefusedError, match="after node 3 failed"):
        roll_back_run(UPGRADE, ports, request, answers_of(ports), services)
    rollback = "kafka-rollout rollback --cluster fake --run 1 --as NAME --reason TEXT"
    told = capsys.readouterr()
    assert f"wait on: {rollback}" in told.err
    assert "roll back: " not in told.err, "no second time"
    next_action = build_report_of_run(Run(ports, plan)).next_action
    assert next_action.count(f"`{rollback}`") == 1
    assert "kafka-rollout upgrade" not in told.err + next_action
    cluster.cannot_start.clear()
    start_node_again(ports, request, answers_of(ports))
    assert f"Continue with: {rollback}" in capsys.readouterr().err
    monkeypatch.setattr("kafka_rollout.cli.run.find_doubts", lambda events: ("node 3: the log shows it",))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: True)
    accept_logs(ports, answers_of(ports, confirms=True))
    assert f"Continue with: {rollback}" in capsys.readouterr().err


def test_ctrl_c_at_once_says_which_node_is_stopped_and_how_to_continue(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: FakeCluster, node_id: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(FakeCluster, "stop", interrupt)
    ports = fake_ports(FakeCluster(), home)
    with pytest.raises(StoppedError) as stopped:
        roll(ports)
    assert stopped.value.sentence == "Stopped by Ctrl-C. Node 2 was asked to stop and was not started again."
    assert "kafka-rollout upgrade --to 4.3.1 --cluster fake --run 1" in stopped.value.remedy


@pytest.mark.parametrize("answer", ["y", "n", "ctrl-c"])
def test_the_history_says_that_a_terminal_waits_and_when_it_ended(
    home: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    ports, seen = fake_ports(FakeCluster(), home), list[tuple[str, bool]]()

    def confirm(*_: object, **__: object) -> bool:
        found = read_status("fake", Settings.from_environment())
        assert found is not None
        seen.append((found.phase.value, found.lock is not None))
        if answer == "ctrl-c":
            raise KeyboardInterrupt
        return answer == "y"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", confirm)
    with suppress(RefusedError, StoppedError):
        roll(ports, answers_of(ports, confirms=True))
    assert seen[0] == ("waiting-for-approval", True)
    asked = [event for event in ports.run.events() if isinstance(event, Asked)]
    assert asked[0].text.startswith("Approve the plan of cluster fake?\n\n")
    assert (asked[0].users, asked[0].terminal) == (("alice",), shell_responder())
    assert RunView.of(ports.run.events()).question() is None
    assert has(ports.run.events(), AskingEnded) is (answer == "ctrl-c")


def test_the_first_node_is_rolled_alone_and_the_others_when_a_person_has_approved_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeCluster()
    ports = fake_ports(cluster, home)
    assert roll(ports, pause_after="first-node") == StoppedError.exit_code
    assert cluster.stops == [2]
    assert "Continue with: kafka-rollout upgrade --to 4.3.1 --cluster fake --run 1" in capsys.readouterr().err
    nobody = answers_of(ports, name=None, reason=None, confirms=True)
    assert roll(ports, nobody) == StoppedError.exit_code
    assert "The run waits for the answer of an approver" in capsys.readouterr().err
    assert cluster.stops == [2]
    assert roll(ports) == 0
    assert cluster.stops == [2, 3, 1, 11, 12, 13]
    assert [a.by for a in events_of(ports.run.events(), Approval) if a.what == "pause"] == ["alice"]


def test_the_scan_of_a_run_is_for_the_group_coordinator_of_the_next_start(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool | None] = []

    def scan_command(*_: object, new_group_coordinator: bool | None, **__: object) -> tuple[int, ScanResult]:
        asked.append(new_group_coordinator)
        return 0, ScanResult(cluster="fake", scanned_at=0.0, logs=(), classes=(), verdicts=())

    monkeypatch.setattr("kafka_rollout.coordinator_logs.spark.submit.scan_command", scan_command)
    ports, settings = fake_ports(FakeCluster(R340), home), Settings.from_environment()
    for protocols in ("classic", "classic,consumer"):
        lines = {str(R391): {REBALANCE_PROTOCOLS: protocols}}
        of_run = replace(ports, cluster=replace(ports.cluster, release_overrides=lines))
        for release in (R391, R431):
            cli_run.scan_logs(of_run, settings, None, SCAN_BEFORE_ROLL, [release], show.ProgressLines())
    assert asked == [False, None, True, None]


def test_a_plan_that_was_made_without_a_scan_is_scanned_before_it_is_rolled(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scan(*_: object) -> object:
        raise FatalError("Spark had no memory.")

    monkeypatch.setattr(cli_run, "scan_logs", scan)
    cluster = FakeCluster()
    ports = fake_ports(cluster, home)
    plan_upgrade(ports, R431, finalize=True)  # by `upgrade --dry-run`
    with pytest.raises(RefusedError, match="LOGS-NOT-SCANNED"):
        roll(ports, scan=True)
    assert cluster.stops == []


def test_a_report_that_is_written_anew_says_what_kind_of_run_it_was(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, settings = FakeCluster(), Settings.from_environment()

    def again(run: str) -> str:
        @contextmanager
        def open_fake(*_: object) -> Iterator[object]:
            yield fake_ports(cluster, settings.home, run_id=run), settings, None

        monkeypatch.setattr(runs_commands, "open_ports", open_fake)
        capsys.readouterr()
        assert cli.run_main(["runs", "report", "-c", "fake", "--run", run, "--write", "--json"]) == 0
        return str(json.loads(capsys.readouterr().out)["outcome"])

    roll(fake_ports(cluster, settings.home, run_id="dry"), dry_run=True)
    assert again("dry") == "dry_run"
    ports = fake_ports(cluster, settings.home, run_id="features")
    plan_features(ports, FeatureOrder(action=FeatureAction.UPGRADE_ALL), unsafe=False)
    assert again("features") == "finished"  # there was nothing to raise; of a roll nobody approved it would be refused


def test_only_the_inventory_s_approvers_approve(home: Path) -> None:
    cluster = FakeCluster()
    ports = fake_ports(cluster, home)
    with pytest.raises(RefusedError, match="mallory is not an approver of cluster fake"):
        roll(ports, answers_of(ports, name="mallory", reason="I can"))
    assert cluster.stops == []


def test_a_plan_as_json_keeps_the_keys_that_scripts_read(home: Path) -> None:
    made = plan_upgrade(fake_ports(FakeCluster(), home), R431, finalize=True)
    assert {"source", "target", "release_steps", "feature_changes", "findings"} <= plain(made).keys()
    assert plain(made)["release_steps"][0]["order"][0]["node_id"] == 2


def test_the_help_of_a_command_shows_each_option_in_full_by_subject(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run_main(["upgrade", "--help"]) == 0
    shown = capsys.readouterr().out
    needed, seldom = shown.index("--pace"), shown.index("\nSeldom needed:\n")
    assert needed < seldom < shown.index("--max-batch-size")
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_the_list_of_commands_has_their_whole_first_paragraph_by_subject(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run_main(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    places = [shown.index(text) for text in ("Look at clusters (read-only): check", "Change a cluster:", "Set up:")]
    assert places == sorted(places)
    assert places[0] < shown.index(" verify Check that all ") < places[1]
    assert "rollback Roll back the nodes of a run to their previous release. Begins with the node" in shown
