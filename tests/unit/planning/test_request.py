"""Each field of a request is declared once: forms, commands, rehearsals and the page of parameters read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import typer

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.cli.options import takes_request
from kafka_rollout.features.requests import FeatureAction
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.planning.fields import FieldUnit, declared, declared_fields, fields_of
from kafka_rollout.planning.request import DowngradeType, FinalizePolicy, Request, request_of, request_on_copy
from tests.unit.builders import R431
from tools.reference_pages import parameters

MOST_FIELDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WithPause(Request):
    """A request with one more field, declared in one place."""

    pause_s: float = declared(
        120.0,
        form="pause_minutes",
        option="--pause",
        title="Pause",
        text="Time between two nodes.",
        of=frozenset({RunOf.UPGRADE}),
        in_plan=True,
        most=3600,
        form_unit=FieldUnit("minutes", 60),
        option_unit=FieldUnit("seconds", 1),
        on_copy=0.0,
    )


def commands(got: list[Request]) -> Any:
    app = typer.Typer()

    @app.command("roll")
    @takes_request(RunOf.UPGRADE, request=WithPause)
    def roll(request: Request, yes: bool = False) -> None:
        got.append(request)

    @app.command("plan")
    @takes_request(RunOf.UPGRADE, plans_only=True, request=WithPause)
    def plan(request: Request) -> None:
        got.append(request)

    @app.command("downgrade")
    @takes_request(RunOf.DOWNGRADE, request=WithPause)
    def downgrade(request: Request) -> None:
        got.append(request)

    return typer.main.get_command(app)


def test_a_field_that_is_declared_in_one_place_is_in_form_command_plan_rehearsal_and_documentation() -> None:
    asked: Any = request_of({"target_release": "4.3.1", "pause_minutes": 3}, RunOf.UPGRADE, WithPause)
    assert (asked.target, asked.pause_s) == (R431, 180.0)
    got: list[Any] = []
    app = commands(got)
    for name, *words in (("roll", "--pause", "30"), ("plan",), ("downgrade",)):
        app([name, "--to", "4.3.1", *words], standalone_mode=False)
    assert [one.pause_s for one in got] == [30.0, 120.0, 120.0]
    known = {name: {option for param in app.commands[name].params for option in param.opts} for name in app.commands}
    assert [name for name, options in known.items() if "--pause" in options] == ["roll", "plan"]
    copy: Any = request_on_copy(asked)
    assert copy.pause_s == 0.0
    assert from_json(WithPause, to_json(asked)) == asked
    assert any("`pause_minutes` | `--pause` | upgrade | 2 minutes | at most 60" in row for row in parameters(WithPause))


def test_a_command_has_the_options_of_its_kind() -> None:
    got: list[Any] = []
    app = commands(got)
    app(["downgrade", "--to", "4.0.1", "--unsafe", "--accept-unavailable", "tmp-*"], standalone_mode=False)
    app(["plan", "--to", "4.3.1", "--max-batch-size", "5"], standalone_mode=False)
    assert (got[0].downgrade_type, got[0].accept_unavailable) == (DowngradeType.UNSAFE, ("tmp-*",))
    assert (got[1].finalize, got[1].max_batch_size) == (FinalizePolicy.LATER, 5)
    for words in (["roll"], ["plan", "--to", "4.3.1", "--pace", "fast"], ["roll", "--to", "4.3.1", "--pace", "0"]):
        with pytest.raises(typer.exceptions.TyperException):
            app(words, standalone_mode=False)


def test_a_form_and_a_command_have_the_same_defaults() -> None:
    assert request_of({}, RunOf.UPGRADE) == Request()
    for one in declared_fields(Request):
        if one.default is not None and not one.is_list:
            assert one.from_form(one.form_default) == one.from_option(one.option_default) == one.default, one.name


def test_a_form_is_read_for_its_own_kind() -> None:
    """A DAG of a user that embeds an upgrade can have parameters of its own."""
    own = {"action": "restart", "level": "everything", "target_release": "4.3.1", "finalize": "after_approval"}
    asked = request_of(own, RunOf.UPGRADE)
    assert asked == Request(target=R431, finalize=FinalizePolicy.AFTER_APPROVAL)
    with pytest.raises(UserError, match="'restart' is not known"):
        request_of(own, RunOf.FEATURES)


def test_the_feature_order_of_a_form_is_checked_when_the_plan_asks_for_it() -> None:
    form = {"action": "upgrade_all", "release_version": None, "upgrade": ["a.b:1"], "downgrade": None}
    asked = request_of(form, RunOf.FEATURES)
    with pytest.raises(UserError, match="only for an update"):
        asked.feature_order()
    with pytest.raises(UserError, match="names no feature levels"):
        Request().feature_order()
    order = Request(action=FeatureAction.UPDATE, upgrade=("a.b:1",)).feature_order()
    assert [str(one) for one in order.named] == ["upgrade of a.b to 1"]


def test_names_of_forms_and_options_are_unique_within_a_kind() -> None:
    for kind in RunOf:
        shown = fields_of(frozenset({kind}), Request)
        for names in ([one.form for one in shown if one.form], [one.option for one in shown if one.option]):
            assert len(names) == len(set(names))


def test_there_are_few_fields_to_learn() -> None:
    """Of all kinds of runs together. What belongs to the cluster is in its inventory."""
    assert len(declared_fields(Request)) <= MOST_FIELDS


def test_each_switch_that_a_continued_run_keeps_can_be_taken_back() -> None:
    """A dry run keeps nothing."""
    switches = [one for one in fields_of(frozenset(RunOf), Request) if one.type is bool or one.switch is not None]
    assert [one.name for one in switches if one.option and "/" not in one.option] == ["dry_run"]
