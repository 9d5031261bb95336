"""The trees of all sources take 400 MB: they go with the last test of the architecture."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.rooms import nodes_of, parsed


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        nodes_of.cache_clear()
        parsed.cache_clear()
