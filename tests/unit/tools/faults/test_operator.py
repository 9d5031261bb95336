"""What the campaign's operator calls next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.cli.app import app
from tools.faults.history import Moments
from tools.faults.kinds import LOCAL, kinds_of
from tools.faults.operator import Commands, next_words
from tools.faults.plan import Moment, Procedure, Stand, make_round
from tools.faults.tool import Call

ROUND = make_round(1, LOCAL, 1, kinds_of(LOCAL), 0.5)
SCENARIO = replace(ROUND.scenarios[0], procedure=Procedure.UPGRADE, begins=Stand.OLD, ends=Stand.ROLLED, traffic=False)
COMMANDS = Commands(cluster="faults", of=ROUND, scenario=SCENARIO)


def call(*, code: int = 1, output: str = "It failed.", words: tuple[str, ...] = ("roll",)) -> Call:
    return Call(words=words, code=code, output=output)


def following(
    ended: Call, *, turned: bool = False, down: tuple[int, ...] = (), in_step: int | None = None
) -> list[str]:
    return next_words(COMMANDS, ended, "a-run", turned=turned, without_process=down, in_step=in_step)


def test_a_call_that_did_not_complete_is_repeated_with_its_run() -> None:
    assert following(call())[-2:] == ["--run", "a-run"]
    assert next_words(COMMANDS, call(), "", turned=False, without_process=(), in_step=None) == COMMANDS.first()


def test_a_node_of_the_run_without_a_process_is_started_by_retry_if_the_command_offers_it() -> None:
    offered = call(output="restart the node: kafka-rollout retry --cluster faults --run a-run")
    assert following(offered, down=(2,), in_step=2)[0] == "retry"
    assert following(offered, down=(3,), in_step=2)[0] == "roll"
    assert following(call(), down=(2,), in_step=2)[0] == "roll"


def test_a_run_that_turned_goes_back() -> None:
    assert following(call(), turned=True)[0] == "roll-back"


def test_the_lock_of_a_killed_run_is_broken() -> None:
    assert following(call(code=4))[:2] == ["lock", "break"]


@pytest.mark.parametrize("procedure", list(Procedure))
def test_every_procedure_has_a_command_that_exists(procedure: Procedure) -> None:
    import typer.main

    commands = Commands(cluster="faults", of=ROUND, scenario=replace(SCENARIO, procedure=procedure))
    for words in (commands.first(), commands.again("a-run"), commands.back("a-run"), commands.retry("a-run")):
        command = typer.main.get_command(app)
        rest = list(words)
        while hasattr(command, "commands"):
            command = command.commands[rest.pop(0)]
        known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
        assert {word for word in rest if word.startswith("--")} <= known, words


def test_the_first_event_of_each_node_is_a_moment_and_a_repetition_is_none() -> None:
    moments = Moments()

    def add(kind: str, **data: object) -> Moment | None:
        return moments.add({"at": 1.0, "kind": kind, "data": data}).moment

    assert add("stopping", node_id=1, release_step="a") == Moment(event="stopping", nth=1)
    assert add("stopping", node_id=1, release_step="a") is None
    assert add("stopping", node_id=2, release_step="a") == Moment(event="stopping", nth=2)
    assert add("stopping", node_id=1, release_step="back") == Moment(event="stopping", nth=3)
    passed = {"ref": {"kind": "after-start", "release_step": "a", "node_id": 1}}
    assert add("gate-held", **passed) == Moment(event="passed", nth=1)
    assert add("gate-held", **passed) is None
