"""Test beds with real hosts for tests; without root or namespaces these tests are skipped with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.releases.facts import Release
from tools.testbed.bed import Bed, missing, up

MakeBed = Callable[..., Bed]


@contextmanager
def open_testbeds(factory: pytest.TempPathFactory) -> Iterator[MakeBed]:
    """Yield `make("4.2.1", size=3, others=["4.3.1"])`. It moves the test into the network of the test bed, whose hosts
    and SSH configuration the command line then finds. A bed is removed when the next one is made, and at the end."""
    if why := missing():
        pytest.skip(why)
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:

        def make(release: str, *, others: tuple[str, ...] = (), **options: Any) -> Bed:
            stack.close()
            folder: Path = factory.mktemp("bed")
            bed = up(folder, Release.parse(release), others=[Release.parse(text) for text in others], **options)
            stack.callback(bed.down)
            stack.enter_context(bed.inside())
            patch.setenv("KAFKA_ROLLOUT_SSH_CONFIG", str(bed.ssh_config))
            return bed

        yield make
