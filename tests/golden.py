"""Recorded structures: a test compares what the code makes now with a small text file beside it."""

from __future__ import annotations

import os
from pathlib import Path

WRITE = "KAFKA_ROLLOUT_WRITE_GOLDEN"  # set to 1 to record the present structure; look at the diff before committing


def assert_same_as_recorded(file: Path, lines: list[str]) -> None:
    """Compare `lines` with the file; records them instead where WRITE is set."""
    if os.environ.get(WRITE):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    recorded = file.read_text(encoding="utf-8").splitlines()
    assert recorded == lines, f"If the change of {file.name} is wanted, record it: {WRITE}=1 pytest with this file."
