"""Whatever the bytes: the kernel ends, and with it no process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT


@pytest.mark.parametrize(
    ("seed", "cases"), [(1, 600), pytest.param(2, 15_000, marks=[pytest.mark.full, pytest.mark.timeout(900)])]
)
def test_wrong_bytes_end_no_process(seed: int, cases: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.spark.kernel.fuzz", str(seed), str(cases)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT / 'spark_jobs'}:{ROOT}", "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        check=False,
        timeout=850,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = re.fullmatch(r"(\d+) records read, (\d+) damages told", done.stdout.strip())
    assert told is not None
    assert min(int(number) for number in told.groups()) > cases / 3
