"""Settings of all tests."""

import logging
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.leftovers import pytest_unconfigure  # noqa: F401 (a hook)
from tests.postgres import Postgres, running_postgres

# These machines are small and noisy: how long an example takes says nothing about the code. And the same examples are
# tried in every run: what stops one can be seen again. `make test-full` tries others each time.
settings.register_profile("exploring", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", settings.get_profile("exploring"), derandomize=True)
settings.load_profile("repeatable")

# A node that is stopped leaves its ports free for a while: clusters that other workers make must not take them then.
if (worker := os.environ.get("PYTEST_XDIST_WORKER")) is not None:
    share = 12_000 // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    first = 20_000 + share * int(worker.removeprefix("gw"))
    os.environ["KAFKA_ROLLOUT_PORTS"] = f"{first}-{first + share - 1}"

# py4j takes leave of the JVM when Python ends, into a stream that pytest has closed by then.
logging.getLogger("py4j").setLevel(logging.WARNING)

# A shell has what it starts in the background ignore Ctrl-C, and so would all that tests start and then interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
def each_database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with SQLite, and in `make test-full` with PostgreSQL too (see tests/records.py)."""
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        monkeypatch.setenv("KAFKA_ROLLOUT_DATABASE", server.create_upgraded_database())
