"""The command `kafka-rollout-derive`: what it says, its JSON and its exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kafka_rollout.base.errors import FatalError, RefusedError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout_derivation import __main__ as command

RELEASE = Release(4, 3, 1)


def test_an_added_release_is_told_with_its_gaps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    added = []

    def add(settings: Settings, release: Release, say: Any) -> Any:
        added.append(release)
        say("resolving its jars")
        return replace(get_catalogue().get(release), gaps={"metadata_log": "a class\nis missing"})

    monkeypatch.setattr(command, "add_release", add)
    assert command.run_main(["add", "4.3.1", "--json"]) == 0
    shown = capsys.readouterr()
    assert added == [RELEASE]
    assert json.loads(shown.out) == {"added": ["4.3.1"], "gaps": {"4.3.1": {"metadata_log": "a class\nis missing"}}}
    lines = shown.err.splitlines()
    assert lines[0] == "Kafka 4.3.1: resolving its jars"
    assert "4.3.1: added, emitting, metadata.version 7-30 (3.3-IV3 to 4.3-IV0), built 2026-06-17" in lines
    assert "4.3.1: gap: metadata_log: a class\\nis missing" in lines


@pytest.mark.parametrize(
    ("different", "code", "end"),
    [
        ([], 0, "4.3.1: as derived from its jars"),
        (
            ["releases/4.3.1.json"],
            RefusedError.exit_code,
            "The catalogue differs from what the jars show: releases/4.3.1.json. Restore these files, or derive the "
            "releases again with `kafka-rollout-derive add`.",
        ),
    ],
)
def test_a_check_ends_with_3_if_the_catalogue_differs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], different: list[str], code: int, end: str
) -> None:
    monkeypatch.setattr(command, "check_release", lambda settings, release, say: different)
    assert command.run_main(["check", "4.3.1", "--json"]) == code
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {
        "ok": not different,
        "differences": {"4.3.1": different} if different else {},
    }
    assert shown.err.splitlines()[-1] == end


@pytest.mark.parametrize("debug", [False, True])
def test_an_error_is_one_sentence_and_the_code_of_its_class(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], debug: bool
) -> None:
    def fail(settings: Settings, release: Release, say: Any) -> Any:
        raise FatalError("The jars are wrong.", remedy="Download them again.")

    monkeypatch.setattr(command, "add_release", fail)
    monkeypatch.setenv("KAFKA_ROLLOUT_DEBUG", "1" if debug else "")
    if debug:
        with pytest.raises(FatalError):
            command.run_main(["add", "4.3.1"])
        return
    assert command.run_main(["add", "4.3.1"]) == FatalError.exit_code
    assert capsys.readouterr().err == "The jars are wrong. Download them again.\n"
