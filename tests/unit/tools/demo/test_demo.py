"""The demo tells what happens, answers as it was asked to, and ends only what it started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from kafka_rollout.base.errors import FatalError, UserError
from kafka_rollout.base.findings import CheckResult, CheckState, unknown
from kafka_rollout.model.plan import Plan
from kafka_rollout.planning.findings.cluster_state import RF_ONE_TOPIC
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from tests.unit.tools.demo.examples import NEW, plan
from tests.waiting import wait_until
from tools.demo.approvals import Approve, Approver
from tools.demo.cluster import lowerable_from
from tools.demo.folder import MARK, PROJECT_ROOT, DemoFolder, demo_clean, end_demo
from tools.demo.run import kept, main, show, succeeded


def test_a_demo_that_goes_on_says_how_a_shell_reaches_its_cluster(tmp_path: Path) -> None:
    folder = DemoFolder.create(tmp_path)
    told = kept(folder).splitlines()
    named = dict(word.split("=") for word in told[1].removeprefix("export ").split())
    assert named == {key: folder.environment()[key] for key in ("KAFKA_ROLLOUT_CLUSTERS", "KAFKA_ROLLOUT_HOME")}
    assert told[2] == ".venv/bin/kafka-rollout verify --details --cluster demo"


class Client:
    def __init__(self, refuses: bool = False) -> None:
        self.answers: list[tuple[str, str, str]] = []
        self.refuses = refuses

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str, **entered: Any) -> None:
        if self.refuses:
            raise UserError("Airflow answered 409.")
        self.answers.append((task_id, option, entered["reason"]))


def approver(how: Approve, client: Client, said: Sequence[str] = ()) -> tuple[Approver, Console]:
    lines = iter(said)

    def read_line(_prompt: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    console = Console(record=True, width=120, file=open(os.devnull, "w"))  # noqa: SIM115
    return (
        Approver(
            how=how,
            user="approver",
            client=client,
            console=console,
            link=lambda t: f"http://x/{t}",
            read_line=read_line,
        ),
        console,
    )


def question(*options: str) -> dict[str, Any]:
    return {"subject": "Roll demo?", "body": "**plan**", "options": list(options), "created_at": "now"}


PLUGINS = str(PROJECT_ROOT / "plugins")
BLOCKER = RF_ONE_TOPIC.found("topic x", "s", "r")


def test_an_unattended_demo_approves_once_what_has_no_blocker() -> None:
    client = Client()
    answering, _ = approver("auto", client)
    for _look in range(2):
        answering.handle("dag", "run", {"approve_plan": question("Approve", "Reject")}, plan())
    assert [(task, option) for task, option, _ in client.answers] == [("approve_plan", "Approve")]


def test_a_question_that_is_asked_again_is_answered_again() -> None:
    client = Client()
    answering, _ = approver("auto", client)
    for questions in ({"approve_plan": question("Approve")}, {}, {"approve_plan": question("Approve")}):
        answering.handle("dag", "run", questions, plan())
    assert len(client.answers) == 2


HIDES = CheckResult(
    check="ACLs", state=CheckState.NOT_OBSERVABLE, id="acls", can_block=True, unknowns=unknown("ACLs", "No right.")
)


@pytest.mark.parametrize("seen", [plan(BLOCKER), None, replace(plan(), checks=(HIDES,))])
def test_an_unattended_demo_rejects_blockers_and_what_it_does_not_know(seen: Plan | None) -> None:
    client = Client()
    approver("auto", client)[0].handle("dag", "run", {"approve_plan": question("Approve", "Reject")}, seen)
    assert client.answers[0][1] == "Reject"


@pytest.mark.parametrize(("accepts", "answer"), [(("acls=*",), "Approve"), (("jvm-properties=*",), "Reject")])
def test_an_unattended_demo_accepts_what_its_cluster_is_known_to_hide(accepts: tuple[str, ...], answer: str) -> None:
    client = Client()
    answering, _ = approver("auto", client)
    answering.accepts = accepts
    answering.handle("dag", "run", {"approve_plan": question("Approve", "Reject")}, replace(plan(), checks=(HIDES,)))
    assert client.answers[0][1] == answer


def test_an_unattended_demo_rolls_back_when_a_gate_failed_and_gives_up_where_it_cannot() -> None:
    client = Client()
    answering, _ = approver("auto", client)
    answering.handle("dag", "run", {"gate": question("Wait on", "Retry", "Roll back")}, plan())
    assert client.answers[0][1] == "Roll back"
    with pytest.raises(FatalError, match="Only an approver can decide"):
        answering.handle("dag", "run", {"gate_snapshot": question("Wait on", "Retry")}, plan())


def test_at_the_terminal_a_choice_and_a_reason_are_asked_until_both_are_there() -> None:
    client = Client()
    answering, console = approver("ask", client, ["maybe", "2", "", "app", "looks good"])
    answering.handle("dag", "run", {"approve_plan": question("Approve", "Reject")}, plan())
    assert client.answers == [("approve_plan", "Approve", "looks good")]
    assert "needs a reason" in console.export_text()


def test_a_terminal_that_ends_is_a_sentence() -> None:
    with pytest.raises(UserError, match="terminal was closed"):
        approver("ask", Client())[0].handle("dag", "run", {"approve_plan": question("Approve")}, plan())


def test_without_a_terminal_the_link_is_told_and_nothing_is_answered() -> None:
    client = Client()
    answering, console = approver("ui", client)
    answering.handle("dag", "run", {"approve_plan": question("Approve", "Reject")}, plan())
    assert "http://x/approve_plan" in console.export_text()
    assert client.answers == []


def test_an_answer_that_came_too_late_ends_nothing() -> None:
    approver("auto", Client(refuses=True))[0].handle("dag", "run", {"approve_plan": question("Approve")}, plan())


def report(**changes: Any) -> dict[str, Any]:
    return {
        "cluster": "demo",
        "source": "3.9.1",
        "target": "4.3.1",
        "outcome": "finished",
        "sentence": "Every node runs 4.3.1.",
        "duration_s": 200.0,
        "gates": [{"state": "passed"}],
        "approvals": [{"by": "approver", "decision": "approved", "what": "roll", "reason": "fine"}],
        "nodes": [
            {
                "node_id": 1,
                "name": "broker-1",
                "roles": ["broker"],
                "release": "4.3.1",
                "starts_per_release": {"4.3.1": 1},
                "node_steps": [{"total_s": 12.0}],
            }
        ],
        "current_metadata_version": [{"node_id": 1, "prometheus": 30, "jolokia": 30, "api_versions": 30}],
        "features": {"before": {"metadata.version": 21}, "after": {"metadata.version": 30}},
        "traffic": {
            "ok": True,
            "acknowledged": 9,
            "consumed": {"classic": 9},
            "unavailable_s": {"plain": 1.5},
            "discrepancies": [],
        },
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"outcome": "rolled_not_finalized"}, False),
        ({"traffic": None}, False),
        ({"traffic": {"ok": False}}, False),
    ],
)
def test_only_a_finished_upgrade_without_loss_is_a_success(changes: dict[str, Any], expected: bool) -> None:
    assert succeeded(report(**changes)) is expected


def test_the_summary_shows_nodes_features_and_traffic() -> None:
    console = Console(record=True, width=140, file=open(os.devnull, "w"))  # noqa: SIM115
    show(console, report())
    text = console.export_text()
    for part in (
        "broker-1",
        "4.3.1: 1",
        "30 by both agents",
        "metadata.version",
        "21",
        "check passed",
        "1 of 1 passed",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--from", "4.3.1", "--to", "4.3.1"], "both are 4.3.1"),
        (["--from", "3.9"], "'3.9' is not a Kafka release"),
        (["--to", "9.9.9"], "9.9.9"),
    ],
)
def test_bad_releases_are_refused_before_anything_is_made(
    arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DemoFolder, "create", lambda *_: pytest.fail("a folder was made"))
    with pytest.raises(UserError, match=says):
        main(arguments)


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def sleep(sleepers: list[subprocess.Popen[bytes]], mark: Path | None) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **({MARK: str(mark)} if mark else {})}
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=environment)
    sleepers.append(process)
    # Popen returns in the middle of the exec: the environment is there a little later.
    wait_until(lambda: psutil.Process(process.pid).environ().get(MARK) == environment.get(MARK), 60, every_s=0.01)
    return process


def test_clean_ends_marked_processes_of_its_own_demos_only(
    tmp_path: Path, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    ours, other = tmp_path / "checkout" / ".demo", tmp_path / "other" / ".demo"
    for folder in (ours / "one", other / "two"):
        folder.mkdir(parents=True)
    mine, theirs, stranger = (sleep(sleepers, mark) for mark in (ours / "one", other / "two", None))
    driver = sleep(sleepers, None)
    note = {"pid": driver.pid, "started_at": psutil.Process(driver.pid).create_time()}
    (ours / "one" / "driver.json").write_text(json.dumps(note))
    assert demo_clean(ours) == 2
    assert mine.wait(60) is not None
    assert driver.wait(60) is not None
    assert theirs.poll() is None
    assert stranger.poll() is None
    assert demo_clean(ours) == 0


def test_what_a_marked_process_started_is_ended_though_it_no_longer_bears_the_mark(tmp_path: Path) -> None:
    script = "import subprocess as s; p = s.Popen(['sleep', '60'], env={}); print(p.pid, flush=True); p.wait()"
    with subprocess.Popen(
        [sys.executable, "-c", script, "standalone"],
        env={**os.environ, MARK: str(tmp_path)},
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as leader:
        assert leader.stdout is not None
        child = psutil.Process(int(leader.stdout.readline()))
        assert end_demo(tmp_path) == 2
    wait_until(lambda: not child.is_running(), 60)  # a zombie runs until its new parent has waited for it


def test_a_driver_whose_id_went_to_another_process_is_left_alone(
    tmp_path: Path, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    innocent = sleep(sleepers, None)
    note = {"pid": innocent.pid, "started_at": 1.0}
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "driver.json").write_text(json.dumps(note))
    assert demo_clean(tmp_path) == 0
    assert innocent.poll() is None


def test_a_demo_knows_its_own_driver_and_never_ends_itself(tmp_path: Path) -> None:
    folder = DemoFolder.create(tmp_path)
    driver = folder.driver()
    assert driver is not None
    assert driver.pid == os.getpid()
    assert demo_clean(tmp_path) == 0
    assert end_demo(folder.path) == 0


@pytest.mark.parametrize(
    ("target", "level"),
    [("4.2.1", 29), ("4.0.1", 29), ("3.9.1", 22), ("3.7.2", 22), ("3.4.1", 8)],
)
def test_a_demo_that_goes_down_starts_from_where_kafka_itself_goes_down(target: str, level: int) -> None:
    catalogue = load_catalogue(PROJECT_ROOT / "include")
    found = lowerable_from(catalogue.get(NEW), catalogue.get(Release.parse(target)))
    assert (found.level, found.name in {"4.2-IV1", "4.0-IV0", "3.9-IV1", "3.4-IV0"}) == (level, True)


def test_the_end_of_a_demo_removes_the_copy_of_a_killed_rehearsal(tmp_path: Path) -> None:
    folder = DemoFolder.create(tmp_path)
    copies = folder.settings.home / "rehearsals"
    begins = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from kafka_rollout.rehearsal.machine.sandbox import new_sandbox\n"
        "with new_sandbox(Path(sys.argv[1])):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", begins, str(copies)], env={**os.environ, "PYTHONPATH": PLUGINS}, check=False)
    assert len(list(copies.iterdir())) == 1
    end_demo(folder.path)
    assert list(copies.iterdir()) == []
