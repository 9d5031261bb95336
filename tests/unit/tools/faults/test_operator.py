"""What the campaign's operator calls next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.cli.app import app
from kafka_rollout.model.topology import NodeSpec, Role
from tools.faults.history import Moments
from tools.faults.kinds import LOCAL, kinds_of
from tools.faults.operator import Commands, next_words, nodes_to_restart
from tools.faults.plan import Moment, Procedure, Stand, make_round
from tools.faults.tool import Call

ROUND = make_round(1, LOCAL, 1, kinds_of(LOCAL), 0.5)
SCENARIO = replace(ROUND.scenarios[0], procedure=Procedure.UPGRADE, begins=Stand.OLD, ends=Stand.ROLLED, traffic=False)
COMMANDS = Commands(cluster="faults", of=ROUND, scenario=SCENARIO)


def call(*, code: int = 1, output: str = "It failed.", words: tuple[str, ...] = ("upgrade",)) -> Call:
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
    assert following(offered, down=(3,), in_step=2)[0] == "upgrade"
    assert following(call(), down=(2,), in_step=2)[0] == "upgrade"


def test_a_run_that_turned_goes_back() -> None:
    assert following(call(), turned=True)[0] == "rollback"


def test_the_lock_of_a_killed_run_is_broken() -> None:
    assert following(call(code=4))[0] == "unlock"


def test_a_features_command_that_was_refused_before_its_approval_is_called_again_without_its_run() -> None:
    commands = Commands(cluster="faults", of=ROUND, scenario=replace(SCENARIO, procedure=Procedure.RAISE_LEVELS))
    refused = call(output="The feature change of run a-run on cluster faults is not approved. Ask an approver.")
    for output, words in ((refused, commands.first()), (call(), commands.again("a-run"))):
        assert next_words(commands, output, "a-run", turned=False, without_process=(), in_step=None) == words


def test_nodes_with_metadata_errors_are_restarted() -> None:
    nodes = [NodeSpec(node_id=i, name=f"kafka-{i}", roles=frozenset({Role.BROKER})) for i in (1, 2, 3)]
    first, second, _ = nodes
    plan = call(output=f"NOT SENT: {first.name} reports MetadataErrorCount 1: since its start")
    gate = call(output=f"no metadata errors: node {second.node_id} reports metadata-apply-error-count 2: the node")
    assert nodes_to_restart(plan, nodes) == (first,)
    assert nodes_to_restart(gate, nodes) == (second,)
    assert not nodes_to_restart(call(output="no metadata errors: 0 metadata errors"), nodes)


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
