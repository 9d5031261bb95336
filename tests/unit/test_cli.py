"""Bad input gets one sentence and the exit code of its kind, never a trace."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout import cli, cli_run
from kafka_rollout.adapters.change_lock import FileChangeLock
from kafka_rollout.adapters.inventory import dump_cluster
from kafka_rollout.adapters.settings import Settings
from kafka_rollout.cli_common import new_run_id
from kafka_rollout.domain.errors import RefusedError
from kafka_rollout.domain.gate_watch import GatePolicy
from kafka_rollout.domain.plan import Plan
from kafka_rollout.steps.plan import plan_upgrade
from tests.fake_cluster import R431, FakeCluster, make_spec
from tests.fakes import fake_bench


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
        ("observe --cluster nope", 2, "There is no cluster nope"),
        ("observe", 2, "--cluster"),
        ("rol", 2, "No such command 'rol'"),
        ("roll -c fake --to 4.3.1", 2, "A roll needs a named approval"),
        ("roll -c fake --to 4.3 --dry-run", 2, "'4.3' is not a Kafka release"),
        ("roll -c fake --to 4.3.1 --run never", 2, "has no run never"),
        ("roll-back -c fake --run never", 2, "has no run never"),
        ("report -c fake", 2, "has no run yet"),
        ("features update -c fake --upgrade group.version", 2, "is not feature:level"),
        ("features update -c fake --upgrade group.version:1", 2, "needs a named approval"),
        ("features update -c fake --upgrade group.version:1 --delete group.version", 2, "asked for twice"),
        ("features update -c fake", 2, "in one way"),
        ("features describe -c fake", 1, "No node of cluster fake answers"),
        ("features downgrade-all -c fake --release-version 3.9 --dry-run", 2, "is not a Kafka release"),
        ("observe -c fake --connection-file /nowhere", 2, "/nowhere"),
        ("ledger stop -c fake", 2, "There is no ledger"),
        ("observe -c fake", 1, "127.0.0.1"),
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
    def broken() -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(cli, "list_clusters", broken)
    assert cli.run_main(["clusters"]) == 1
    assert "KAFKA_ROLLOUT_DEBUG=1" in capsys.readouterr().err
    monkeypatch.setenv("KAFKA_ROLLOUT_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.run_main(["clusters"])


def test_a_lock_is_shown_and_broken_by_name(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FileChangeLock(home).acquire("fake", "run-7", "Stop node 2.", for_s=60)
    assert cli.run_main(["lock", "show", "-c", "fake"]) == 0
    assert "run-7 holds the lock" in capsys.readouterr().out.replace("\n", " ")
    assert cli.run_main(["lock", "break", "-c", "fake"]) == 2
    assert cli.run_main(["lock", "break", "-c", "fake", "--by", "alice"]) == 0
    assert FileChangeLock(home).holder("fake") is None


def test_the_catalogue_and_the_exit_codes_are_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_main(["catalogue"]) == 0
    assert "4.3.1" in capsys.readouterr().out
    assert cli.run_main(["--help"]) == 0
    assert "Exit codes" in capsys.readouterr().out


def test_the_first_ctrl_c_asks_and_the_second_ends() -> None:
    handler_before = signal.getsignal(signal.SIGINT)  # Spark's, if a session ran in this process before
    with cli_run.stop_signal() as stop_asked:
        assert not stop_asked()
        signal.raise_signal(signal.SIGINT)
        assert stop_asked()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is handler_before


def test_two_shells_in_one_second_are_two_holders_of_the_lock() -> None:
    assert new_run_id() != new_run_id()


def request_for(**options: object) -> cli_run.RollRequest:
    given: dict[str, object] = {
        "target": R431,
        "policy": GatePolicy(looks=1, interval_s=0),
        "approver": cli_run.Approver(name="alice", reason="CHG-1", asks=False),
        "finalize": cli_run.FinalizePolicy.LATER,
        "dry_run": False,
        "scan": False,
        "ledger": False,
        "security": None,
        "security_file": None,
    }
    return cli_run.RollRequest(**{**given, **options})  # type: ignore[arg-type]


def test_a_resumed_run_finalizes_only_when_it_is_asked_to(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    cluster = FakeCluster()
    bench = fake_bench(cluster, home)
    planned: Plan = plan_upgrade(bench, R431, finalize=True)  # by `kafka-rollout plan`
    assert planned.feature_changes
    assert cli_run.roll(bench, Settings.from_environment(), request_for()) == 0
    assert {node.running for node in cluster.nodes.values()} == {R431}
    assert cluster.updates == []


def test_only_the_inventory_s_approvers_approve(home: Path) -> None:
    cluster = FakeCluster()
    request = request_for(approver=cli_run.Approver(name="mallory", reason="I can", asks=False))
    with pytest.raises(RefusedError, match="mallory may not approve changes of cluster fake"):
        cli_run.roll(fake_bench(cluster, home), Settings.from_environment(), request)
    assert cluster.stops == []
