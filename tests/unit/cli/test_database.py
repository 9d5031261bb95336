"""`kafka-rollout db` and `runs`: what is recorded, and whether it was changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from kafka_rollout.base.errors import FatalError, TransientError, UserError
from kafka_rollout.cli.app import run_main
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.run.events import Approval, ApprovalOf, Asked, Begun, Channel, Decision, Responder, events_of
from kafka_rollout.run.store.database import Database
from kafka_rollout.run.store.tables import REVISION, events
from tests.fakes.cluster import make_spec
from tests.records import FILE, database_of, run_history


def _spec() -> ClusterSpec:
    spec = make_spec(name="fake")
    return replace(spec, nodes=tuple(replace(node, directory=f"/nowhere/{node.name}") for node in spec.nodes))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "fake.yaml").write_text(dump_cluster(_spec()))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


ALICE = Approval(what=ApprovalOf.ROLL, by="alice", decision=Decision.APPROVED, reason="why", plan_hash="abc")


REPORT = {
    **{"outcome": "finished", "sentence": "It finished.", "next_action": "", "failed_gate": None},
    **{"proved": [], "not_proved": []},
}


def test_a_damaged_history_is_found(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for by in ("alice", "bob"):
        run_history(home, "fake", "run-1").record(replace(ALICE, by=by))
    run_history(home, "fake", "run-1").write_report("", REPORT)
    assert run_main(["runs", "list", "-c", "fake"]) == 0
    assert run_main(["runs", "report", "--events", "-c", "fake", "--run", "run-1"]) == 0
    assert run_main(["runs", "report", "-c", "fake", "--run", "run-1"]) == 0
    shown = capsys.readouterr().out
    assert "by=alice" in shown
    assert "is complete, and its plan and documents are as they were written" in shown
    with database_of(home).begin() as connection:
        connection.execute(update(events).where(events.c.number == 2).values(body='{"by":'))
    assert run_main(["runs", "report", "-c", "fake", "--run", "run-1"]) == 3
    assert "Event 2 of run 1 of cluster fake is damaged" in capsys.readouterr().err
    assert run_main(["runs", "report", "-c", "fake", "--run", "another"]) == 2


def test_an_approval_that_was_added_to_a_dag_s_run_is_found(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A user who can write to the database can append an event."""
    run = run_history(home, "fake", "run-1")
    run.record(Begun(dag_id="kafka_upgrade_fake", triggered_by="mallory"))
    run.record(Asked(what=ApprovalOf.ROLL, task_id="approve_plan", record_id="01", text="Roll?", options=("Approve",)))
    alice = Responder(channel=Channel.AIRFLOW, user="alice", record_id="01")
    run.record(replace(ALICE, responder=alice))
    run.write_report("", REPORT)
    assert run_main(["runs", "report", "-c", "fake", "--run", "run-1"]) == 0
    run.record(replace(ALICE, what=ApprovalOf.FINALIZE, responder=replace(alice, record_id="forged")))
    assert run_main(["runs", "report", "-c", "fake", "--run", "run-1"]) == 3
    assert "The approval of the feature change by alice was not given in Airflow" in capsys.readouterr().err


def test_the_tables_are_made_once_and_another_revision_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert run_main(["db"]) == 0
    assert run_main(["db", "--check"]) == 0
    with Database(f"sqlite:///{home / FILE}").begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    assert run_main(["db", "--check"]) == 2
    assert f"has revision 9999, but this version supports only {REVISION}" in capsys.readouterr().err


def test_the_revision_is_that_of_the_newest_migration() -> None:
    from alembic.script import ScriptDirectory

    from kafka_rollout.run.store import migrations

    assert ScriptDirectory(str(Path(migrations.__file__).parent)).get_current_head() == REVISION


@pytest.mark.parametrize("url", ["postgresql://rollout:secret@host/db", "postgresql://host/db?password=secret"])
def test_a_password_in_the_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UserError, match="contains a password") as refused:
        Database(url)
    assert "secret" not in str(refused.value)


def test_a_password_file_must_be_private_and_an_unreachable_server_is_named_without_it(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret")
    database = Database(f"postgresql://rollout@/db?host={tmp_path}", password_file=file)
    file.chmod(0o644)
    with pytest.raises(UserError, match="can be read by other users"):
        database.check()
    file.chmod(0o600)
    with pytest.raises(TransientError, match="did not respond") as refused:
        database.check()
    assert "secret" not in str(refused.value)


def test_a_full_disk_fails_the_write_and_keeps_what_was_recorded(tmp_path: Path) -> None:
    run = run_history(tmp_path, "fake", "run-1")
    run.record(ALICE)
    with pytest.raises(FatalError, match="is full"):
        _fill(database_of(tmp_path))
    assert [event.by for event in events_of(run.events(), Approval)] == ["alice"]
    assert run.find_damage() == ""


def _fill(database: Database) -> None:
    with database.begin() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        connection.execute(update(events).values(body="x" * 1_000_000))
