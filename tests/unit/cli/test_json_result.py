"""`--json`: standard output has the result and nothing else, also for an error; `--output` names a file for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli import show
from kafka_rollout.cli.app import run_main
from kafka_rollout.cli.commands import changes, runs
from kafka_rollout.clusters.inventory import dump_cluster
from tests.fakes.cluster import FakeCluster, make_spec
from tests.fakes.ports import fake_ports
from tests.paths import ROOT
from tests.records import change_lock

SCHEMA = json.loads((ROOT / "docs" / "error.schema.json").read_text())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    clusters = tmp_path / "clusters"
    clusters.mkdir()
    spec = make_spec()
    nodes = tuple(replace(node, directory=str(tmp_path / node.name)) for node in spec.nodes)
    (clusters / "fake.yaml").write_text(dump_cluster(replace(spec, nodes=nodes)))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(clusters))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    return tmp_path


def error_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    jsonschema.validate(found, SCHEMA)
    assert list(found) == ["error"]
    assert list(found["error"]) == ["kind", "sentence", "remedy", "exit_code"]
    return dict(found["error"])


def test_the_result_goes_to_standard_output_or_to_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(["fleet", "--json"]) == 0
    printed = capsys.readouterr().out
    assert [row["cluster"] for row in json.loads(printed)] == ["fake"]
    assert run_main(["fleet", "--json", "--output", str(folder / "found.json")]) == 0
    assert capsys.readouterr().out == ""
    assert (folder / "found.json").read_text() == printed


def test_an_error_is_the_result_and_is_also_a_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(["verify", "--cluster", "nope", "--json"]) == 2
    said = capsys.readouterr()
    error = error_of(said.out)
    assert (error["kind"], error["exit_code"]) == ("invalid_input", 2)
    assert f"{error['sentence']} {error['remedy']}" == said.err.strip()
    assert run_main(["verify", "--cluster", "fake", "--json", f"--output={folder / 'error.json'}"]) == 1
    assert capsys.readouterr().out == ""
    assert error_of((folder / "error.json").read_text())["kind"] == "transient"


def test_words_that_are_not_a_command_line_are_an_error_in_json_too(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(["verify", "--json", "--no-such-option"]) == 2
    assert "--no-such-option" in error_of(capsys.readouterr().out)["sentence"]


def test_a_file_that_cannot_be_written_and_a_file_without_json_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(["fleet", "--json", "--output", str(folder)]) == 2
    assert "cannot be written: Is a directory." in capsys.readouterr().err
    assert run_main(["fleet", "--output", str(folder / "found.json")]) == 2
    assert capsys.readouterr().err == "--output writes the JSON result. Add --json.\n"


def test_what_a_command_prints_for_people_goes_to_standard_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with show.json_result(None):
        show.say("for people")
        show.print_json({"for": "programs"})
    said = capsys.readouterr()
    assert (json.loads(said.out), said.err) == ({"for": "programs"}, "for people\n")


def test_a_lock_is_shown_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(["status", "-c", "fake", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lock"] is None
    change_lock(folder / "home").acquire("fake", "run-7", "Stop node 2.", for_s=60)
    assert run_main(["status", "-c", "fake", "--json"]) == 0
    held = json.loads(capsys.readouterr().out)["lock"]
    assert (held["holder"], held["purpose"]) == ("run-7", "Stop node 2.")


def test_a_dry_run_is_its_plan(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[object]:
        yield fake_ports(FakeCluster(), folder / "home"), Settings.from_environment(), None

    for commands in (changes, runs):
        monkeypatch.setattr(commands, "open_ports", opened)
    words = ["upgrade", "-c", "fake", "--to", "4.3.1", "--no-scan", "--no-rehearse", "--dry-run", "--json"]
    assert run_main(words) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert (found["run"], found["dry_run"], found["exit_code"]) == ("run-1", True, 0)
    assert found["plan"]["release_steps"][0]["order"][0]["node_id"] == 2
    assert "report: " in said.err, "what people read is not in the result"
    assert run_main(["runs", "report", "-c", "fake", "--run", "run-1", "--write", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "dry_run"
    refused = [*words[:-2], "--as", "mallory", "--reason", "x", "--yes", "--json"]
    assert run_main(refused) == 3
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    assert (found["error"]["kind"], found["run"]) == ("refused", "run-1")
