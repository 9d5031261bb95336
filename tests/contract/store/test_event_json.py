"""Events as JSON."""

from __future__ import annotations

import json
from importlib import import_module
from pkgutil import iter_modules

import pytest
from hypothesis import given

from kafka_rollout import run
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import Event, Rolled, Unknown, Voided
from kafka_rollout.run.step_events import Started
from kafka_rollout.run.store.event_json import KINDS, decode, encode
from tests.unit.run.events_strategy import events

R = Release.parse


@given(events())
def test_every_kind_survives_json(event: Event) -> None:
    kind, data = encode(event)

    assert decode(kind, event.at, json.loads(json.dumps(data))) == event


def test_every_kind_has_its_own_name() -> None:
    assert len({found.__name__ for found in KINDS.values()}) == len(KINDS) > 40
    assert all(kind == found.kind for kind, found in KINDS.items())


def test_the_events_of_every_module_can_be_read() -> None:
    modules = [import_module(f"{run.__name__}.{found.name}") for found in iter_modules(run.__path__)]
    classes = {found for module in modules for found in vars(module).values() if isinstance(found, type)}
    assert {found for found in classes if issubclass(found, Event) and found.kind} == set(KINDS.values())


def test_json_has_the_fields_of_the_kind_and_releases_as_text() -> None:
    started = Started(at=5.0, node_id=3, release_step="3.9.1-to-4.3.1", release=R("4.3.1"), pid=None, seconds=1.5)

    assert encode(started) == (
        "started",
        {"node_id": 3, "release_step": "3.9.1-to-4.3.1", "release": "4.3.1", "pid": None, "seconds": 1.5},
    )


def test_an_event_of_a_newer_version_is_kept_as_it_is() -> None:
    event = decode("teleported", 7.0, {"node_id": 3, "to": {"x": 1}})

    assert event == Unknown(at=7.0, recorded_kind="teleported", data={"node_id": 3, "to": {"x": 1}})
    assert encode(event) == ("teleported", {"node_id": 3, "to": {"x": 1}})


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"node_id": "x", "release_step": "a", "release": "4.3.1", "pid": 1, "seconds": 0.0},
        {"release": "latest"},
    ],
)
def test_data_that_do_not_fit_their_kind_are_kept_and_no_error(data: dict[str, object]) -> None:
    assert decode("started", 7.0, data) == Unknown(at=7.0, recorded_kind="started", data=data)


def test_a_release_that_is_none_makes_an_unknown_event() -> None:
    assert isinstance(decode("rolled", 1.0, {"target": "latest"}), Unknown)
    assert decode("rolled", 1.0, {"target": "4.3.1"}) == Rolled(at=1.0, target=R("4.3.1"))


def test_a_field_that_a_newer_version_added_is_ignored() -> None:
    data = {"plan_hash": "abc", "blockers": ["X"], "found_by": "a newer version"}

    assert decode("void", 2.0, data) == Voided(at=2.0, plan_hash="abc", blockers=("X",))
