"""The compiled kernel is loaded from a folder that only this user can change: its index is a pickle."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout_spark import kernel


@pytest.mark.parametrize(
    ("mode", "own"), [(0o755, True), (0o700, True), (0o775, False), (0o777, False), (0o1777, False)]
)
def test_a_folder_that_others_can_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, own: bool
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    cache, home = tmp_path / "cache", tmp_path / "home"
    (cache / "numba").mkdir(parents=True)
    (cache / "numba").chmod(mode)
    monkeypatch.setenv("KAFKA_ROLLOUT_CACHE", str(cache))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(home))
    assert kernel._folder() == (cache if own else home) / "numba"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache / "numba"))
    assert kernel._folder() == (cache if own else home) / "numba"
