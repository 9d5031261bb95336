"""`kafka-rollout demo` finds the demo of the checkout; an installed package has none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kafka_rollout.cli.app import run_main
from kafka_rollout.cli.commands import demo


def test_the_command_finds_the_demo_from_any_folder(tmp_path: Path) -> None:
    command = [Path(sys.executable).with_name("kafka-rollout"), "demo", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert "--approve" in done.stdout


def test_an_installed_package_says_where_the_demo_is_and_cleans_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_CHECKOUT", tmp_path)
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    assert run_main(["demo", "--help"]) == 2
    assert capsys.readouterr().err.split(". ")[0] == (
        "The demo is part of the source checkout of kafka-rollout, not of the installed package"
    )
    assert run_main(["clean"]) == 0
    assert capsys.readouterr().out == "Removed 0 copies of clusters.\n"


def test_in_a_checkout_clean_stops_its_demos_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    monkeypatch.setattr("tools.demo.folder.demo_clean", lambda: 2)
    assert run_main(["clean", "--folder", str(tmp_path)]) == 0
    assert "demo" not in capsys.readouterr().out, "only the copies in this folder"
    assert run_main(["clean"]) == 0
    assert capsys.readouterr().out == "Removed 0 copies of clusters.\nStopped 2 processes of demos.\n"
