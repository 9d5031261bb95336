"""`kafka-rollout features`: the lines, the JSON and the exit codes that scripts use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli import app as cli
from kafka_rollout.cli.answers import ScriptAnswers, shell_responder
from kafka_rollout.cli.commands import features as cli_features
from kafka_rollout.cli.run import start_node_again
from kafka_rollout.model.state import GroupState, NodeFeatures
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.planning.request import Request
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import StartedAtShell, events_of
from tests.acls import read_acl
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.ports import FakeAdmin, fake_ports
from tests.records import change_lock, run_history, run_ids

LEVELS = {"metadata.version": 29, "group.version": 1, "transaction.version": 2}
APPROVED = "--as alice --reason test --yes"
Shell = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(R431, finalized=LEVELS)


@pytest.fixture
def shell(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Run a command on the fake cluster: (exit code, standard output, standard error)."""

    @contextmanager
    def open_fake(name: str, run: str | None, file: object) -> Iterator[Any]:
        ports = fake_ports(cluster, tmp_path, run_id=run or f"run-{len(run_ids(tmp_path, 'fake'))}")
        yield replace(ports, admin=TellsMinimum(cluster)), Settings.from_environment(), None

    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    monkeypatch.setattr(cli_features, "open_ports", open_fake)
    monkeypatch.setenv("COLUMNS", "200")

    def run(words: str) -> tuple[int, str, str]:
        code = cli.run_main(["features", *words.split(), "-c", "fake"])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


class TellsMinimum(FakeAdmin):
    """A broker that reports a finalized minimum (KIP-584's deprecation)."""

    def features(self, node: NodeSpec) -> NodeFeatures:
        return replace(super().features(node), finalized_min={"metadata.version": 7})


def sent(cluster: FakeCluster) -> list[dict[str, int]]:
    return [targets for targets, validate_only in cluster.updates if not validate_only]


def outcome_of(home: Path) -> str:
    """The outcome of the report of the only run; empty without a report."""
    (run,) = run_ids(home, "fake")
    report: dict[str, str] = run_history(home, "fake", run).attachment("report.json") or {}
    return report.get("outcome", "")


def test_one_line_a_feature_with_existing_and_new_level_and_result_as_in_the_kip(
    shell: Shell, cluster: FakeCluster
) -> None:
    words = "--upgrade share.version:1,metadata.version:30 --downgrade transaction.version:1,group.version:0"
    code, told, _ = shell(f"set {words} {APPROVED}")
    assert code == 0, told
    lines = [" ".join(line.split()) for line in told.splitlines() if "Feature:" in line]
    assert lines == [
        "[Add] Feature: share.version ExistingFinalizedMaxVersion: - NewFinalizedMaxVersion: 1 Result: OK",
        "[Upgrade] Feature: metadata.version ExistingFinalizedMaxVersion: 29 NewFinalizedMaxVersion: 30 Result: OK",
        "[Downgrade] Feature: transaction.version ExistingFinalizedMaxVersion: 2 NewFinalizedMaxVersion: 1 Result: OK",
        "[Delete] Feature: group.version ExistingFinalizedMaxVersion: 1 NewFinalizedMaxVersion: - Result: OK",
    ]
    assert sent(cluster) == [
        {"group.version": 0, "transaction.version": 1},
        {"metadata.version": 30},
        {"share.version": 1},
    ]


def test_a_dry_run_needs_no_name_holds_no_lock_and_changes_nothing(
    shell: Shell, cluster: FakeCluster, tmp_path: Path
) -> None:
    change_lock(tmp_path).acquire("fake", "another run", "roll", for_s=60)
    code, told, _ = shell("set --action upgrade-all --dry-run")
    assert code == 0
    assert told.count("Result: OK (dry run)") == 4
    assert sent(cluster) == []


def test_a_refusal_ends_with_3_and_says_why_on_the_feature_s_line(shell: Shell, cluster: FakeCluster) -> None:
    cluster.groups = [GroupState(group_id="billing", type="consumer", state="Stable", members=1)]
    code, told, _ = shell(f"set --downgrade group.version:0 {APPROVED}")
    assert (code, sent(cluster)) == (3, [])
    assert "Result: FAILED: Without group.version, brokers serve no consumer groups" in told
    code, told, _ = shell(f"set --downgrade group.version:0 --unsafe {APPROVED}")
    assert (code, sent(cluster)) == (0, [{"group.version": 0}])
    assert "billing" in told, "what is lost is still reported"


def test_bad_input_ends_with_2_in_one_sentence(shell: Shell, cluster: FakeCluster) -> None:
    for words, said in (
        ("--upgrade no.such.version:1", "Feature no.such.version does not exist"),
        ("--upgrade metadata.version:99", "metadata.version 99 does not exist"),
        ("--release-version 9.9.9", "9.9.9 is not in the catalogue"),
        ("--release-version 4.3.1 --downgrade group.version:0", "either features or a release"),
    ):
        code, told, error = shell(f"set {words} {APPROVED}")
        assert (code, told) == (2, ""), words
        assert said in error
        assert error.count("\n") == 1
    assert cluster.updates == []


def test_another_change_under_way_ends_with_4(shell: Shell, cluster: FakeCluster, tmp_path: Path) -> None:
    change_lock(tmp_path).acquire("fake", "another run", "roll", for_s=60)
    assert shell(f"set --action upgrade-all {APPROVED}")[0] == 4
    assert cluster.updates == []


def test_a_stranger_may_not_change_features(shell: Shell, cluster: FakeCluster) -> None:
    code, _, error = shell("set --action upgrade-all --as mallory --reason fun --yes")
    assert (code, "mallory is not an approver" in error) == (3, True)
    assert cluster.updates == []


def test_with_four_eyes_the_user_who_starts_a_run_at_a_shell_cannot_approve_it(
    shell: Shell, cluster: FakeCluster, tmp_path: Path
) -> None:
    starter = shell_responder()
    known = {starter.user: "alice", "ben-os": "ben"}
    cluster.spec = replace(cluster.spec, approvers=("alice", "ben"), four_eyes=True, shell_approvers=known)
    code, _, error = shell(f"set --downgrade transaction.version:1 {APPROVED}")
    assert (code, sent(cluster)) == (3, [])
    assert "alice started run 1 and cannot approve it" in error
    (started,) = events_of(run_history(tmp_path, "fake", "run-0").events(), StartedAtShell)
    assert started.starter == starter
    ben = "--as ben --reason test --yes"
    code, _, error = shell(f"set --downgrade transaction.version:1 {ben}")
    assert (code, f"ben is a name that the user {starter.user} claims" in error, sent(cluster)) == (3, True, [])


def test_a_release_s_levels_fall_only_with_safe_or_unsafe(shell: Shell, cluster: FakeCluster) -> None:
    cluster.finalized["metadata.version"] = 30
    code, told, _ = shell("set --release-version 4.2.1 --dry-run")
    assert (code, "An upgrade request cannot" in told) == (3, True)
    code, told, _ = shell("set --release-version 4.2.1 --dry-run --unsafe")
    assert (code, "cannot lower metadata.version from 30 to 29" in told) == (3, True)


def test_downgrade_all_deletes_what_the_release_does_not_know(shell: Shell, cluster: FakeCluster) -> None:
    cluster.finalized = {"metadata.version": 21, "group.version": 1}
    code, told, _ = shell(f"set --action downgrade-all --release-version 3.9.1 {APPROVED}")
    assert (code, sent(cluster)) == (0, [{"group.version": 0}])
    assert "[Delete] Feature: group.version" in told
    assert shell(f"set --action downgrade-all --release-version 3.9.1 {APPROVED}")[:2] == (
        0,
        "No change needed.\n",
    )


def test_a_run_that_was_ended_goes_on_and_finds_what_is_there(
    shell: Shell, cluster: FakeCluster, tmp_path: Path
) -> None:
    assert shell(f"set --downgrade transaction.version:1 {APPROVED}")[0] == 0
    (run,) = run_ids(tmp_path, "fake")
    code, told, _ = shell(f"set --run {run}")
    assert (code, "Result: OK (already there)" in told) == (0, True)
    assert len(sent(cluster)) == 1


@pytest.mark.parametrize("words", ["set --action upgrade-all", "set --action upgrade-all --json"])
def test_a_run_that_has_ended_has_a_report_that_is_not_in_the_output_for_scripts(
    shell: Shell, tmp_path: Path, words: str
) -> None:
    code, told, error = shell(f"{words} {APPROVED}")
    assert (code, outcome_of(tmp_path)) == (0, "finished")
    assert ("report: " in told, "report: " in error) == (False, True)


def test_a_difference_that_yes_does_not_accept_ends_with_1_and_says_why(
    shell: Shell, cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.acls = {read_acl("User:bob")}

    def lose_acls(targets: Mapping[str, int]) -> None:
        raise_levels(targets)
        cluster.acls = set()

    raise_levels = cluster.raise_levels
    monkeypatch.setattr(cluster, "raise_levels", lose_acls)
    code, told, error = shell(f"set --downgrade transaction.version:1 {APPROVED}")
    assert (code, "Result: OK" in told) == (1, True)
    assert "--yes accepts no difference" in error
    assert outcome_of(tmp_path) == "stopped"
    (run,) = run_ids(tmp_path, "fake")
    assert "kafka-rollout features set --cluster fake --run 1" in error
    code, told, error = shell(f"set --run {run}")
    assert (code, "OK (already there)" in told, "differs from its state before the run" in error) == (1, True, True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: True)
    assert shell(f"set --run {run} --as alice --reason CHG-1")[0] == 0
    assert outcome_of(tmp_path) == "finished"


def test_retry_of_a_feature_run_names_the_command_that_continues_it(
    shell: Shell, cluster: FakeCluster, tmp_path: Path
) -> None:
    shell("set --upgrade share.version:1 --dry-run")
    (run,) = run_ids(tmp_path, "fake")
    ports = fake_ports(cluster, tmp_path, run_id=run)
    answers = ScriptAnswers(cluster=ports.cluster, name="alice", reason="test", confirms=False)
    with pytest.raises(UserError) as error:
        start_node_again(ports, Request(), answers)
    assert error.value.remedy == "Continue the run: kafka-rollout features set --cluster fake --run 1"


def test_a_run_that_nobody_approved_is_not_resumed(shell: Shell, cluster: FakeCluster, tmp_path: Path) -> None:
    shell("set --upgrade share.version:1 --dry-run")
    (run,) = run_ids(tmp_path, "fake")
    code, _, error = shell(f"set --run {run}")
    assert (code, "is not approved" in error, sent(cluster)) == (3, True, [])


def test_the_json_of_a_change_is_for_machines(shell: Shell) -> None:
    code, told, _ = shell("set --downgrade transaction.version:1 --dry-run --json")
    data = json.loads(told)
    assert (code, data["exit_code"], data["dry_run"]) == (0, 0, True)
    (result,) = data["results"]
    assert result == {
        "feature": "transaction.version",
        "action": "Downgrade",
        "existing": 2,
        "new": 1,
        "result": "OK (dry run)",
        "sentence": "",
    }


def test_describe_marks_the_nodes_that_differ_and_names_the_silent_and_the_ghosts(
    shell: Shell, cluster: FakeCluster
) -> None:
    cluster.nodes[13].running = Release(4, 2, 1)
    cluster.silent.add(12)
    cluster.find_unlisted_brokers.add(99)
    code, told, _ = shell("describe")
    assert code == 0
    assert "! 7-29: node 13" in told
    assert "! no response: node 12" in told
    assert "Broker 99 is registered but not listed in the inventory" in told
    assert "7-29" in told
    assert "Epoch: 10" in told
    data = json.loads(shell("describe --json")[1])
    (metadata,) = [f for f in data["features"] if f["feature"] == "metadata.version"]
    assert metadata["supported"]["13"] == {"min": 7, "max": 29}
    assert metadata["supported"]["12"] is None
    assert (metadata["finalized"], metadata["finalized_min"], metadata["differs"]) == (29, 7, [12, 13])
    assert (data["epoch"], data["ghosts"]["brokers"]) == (10, [99])
