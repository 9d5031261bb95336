"""`clean`: stops the demos of a checkout; an installed package has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.cli.app import run_main
from kafka_rollout.cli.commands import clean


def test_an_installed_package_cleans_without_a_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(clean, "_CHECKOUT", tmp_path)
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
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
