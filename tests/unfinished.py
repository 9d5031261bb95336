"""Names the tests that had begun and not ended when a run is interrupted: one of them may hang.

Dots alone do not tell it, and pytest-xdist does not either when it ends its workers.
"""

from __future__ import annotations

import time

import pytest

_started_s: dict[str, float] = {}


def pytest_runtest_logstart(nodeid: str) -> None:
    _started_s[nodeid] = time.monotonic()


def pytest_runtest_logfinish(nodeid: str) -> None:
    _started_s.pop(nodeid, None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _started_s:
        return
    terminalreporter.section("tests that had begun and not ended")
    for nodeid, began_s in sorted(_started_s.items(), key=lambda item: item[1]):
        terminalreporter.write_line(f"{time.monotonic() - began_s:7.0f} s  {nodeid}")
