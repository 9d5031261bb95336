"""Real hosts for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testbeds import MakeBed, open_testbeds


@pytest.fixture(scope="module")
def make_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeBed]:
    with open_testbeds(tmp_path_factory) as make:
        yield make
