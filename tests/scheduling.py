"""Which worker runs which tests, and in which order (`--dist loadfile`).

The tests of a file stay on one worker, which shares the file's clusters. All files that use the shared Airflow server
(fixture `airflow`) stay on one worker, so that it is started once, and so do those of tests/architecture, which parse
the same sources, and of tests/spark, which share a Spark session. A test with brokers waits for a good part of its
time: such files and the others take turns, so that the workers do not wait all at once. Long files start first: the
short ones fill the gaps at the end.
"""

from __future__ import annotations

from functools import cache
from itertools import chain, zip_longest
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.paths import ROOT

LONGEST_FIRST = (
    # The first block has work for `make test-full` alone; in `make test` its files have few tests or none.
    "tests/integration/downgrade/test_cli_downgrade_live.py",
    "tests/integration/upgrade/test_cli_roll.py",
    "tests/integration/rehearsal/test_rehearsal_matrix.py",
    "tests/integration/upgrade/test_batches.py",
    "tests/integration/downgrade/test_live_downgrade.py",
    "tests/integration/upgrade/test_dag_secured.py",
    "tests/integration/hosts/test_faults_over_ssh.py",
    "tests/integration/hosts/test_downgrades_over_ssh.py",
    "tests/integration/hosts/test_live_downgrade_lost_host.py",
    "tests/integration/downgrade/test_live_downgrade_objects.py",
    "tests/integration/hosts/test_distributed_airflow.py",
    "tests/integration/downgrade/test_dag_downgrade_live.py",
    "tests/integration/metadata_log/test_node_files_on_brokers.py",
    "tests/integration/hosts/test_roll_over_ssh.py",
    "tests/integration/rehearsal/test_rehearsal.py",
    "tests/integration/downgrade/test_offline_downgrade.py",
    # Files with brokers, by the processor time and the waiting of a run.
    "tests/contract/test_cluster_contract.py",
    "tests/integration/coordinator_logs/test_scan_oracle.py",
    "tests/integration/check/test_check.py",
    "tests/integration/groups/test_dynamic_consumer.py",
    "tests/integration/coordinator_logs/test_scan_live.py",
    "tests/integration/features/test_features.py",
    "tests/integration/check/test_secured_check.py",
    "tests/integration/adapters/test_kafka_admin.py",
    "tests/integration/metadata_log/test_metadata_on_brokers.py",
    "tests/integration/metadata_log/test_config_providers.py",
    "tests/integration/adapters/test_secured_admin.py",
    "tests/integration/groups/test_group_commands.py",
    "tests/integration/metadata_log/test_dynamic_configs_on_brokers.py",
    "tests/integration/metadata_log/test_kafka_classes.py",
    # Files without brokers, by the processor time of a run.
    "tests/dags/runs/test_upgrade_run.py",
    "tests/dags/runs/test_control.py",
    "tests/dags/runs/test_batches.py",
    "tests/dags/runs/test_answers.py",
    "tests/dags/pages/test_console_in_browser.py",
    "tests/unit/lowering/test_live_lost_host.py",
    "tests/dags/runs/test_downgrade_run.py",
    "tests/dags/pages/test_downgrade_page.py",
    "tests/unit/roll/test_registration.py",
    "tests/unit/roll/test_pauses.py",
    "tests/dags/runs/test_registration.py",
)
_ONE_WORKER = ("tests/architecture/", "tests/spark/")


@cache
def needs_airflow(file: Path) -> bool:
    """Whether a test of this file uses the shared Airflow server."""
    return "airflow: PrivateAirflow" in file.read_text(encoding="utf-8")


@pytest.hookimpl(trylast=True)  # without the tests that `-m` leaves out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files: dict[Path, list[pytest.Item]] = {}
    for item in sorted(items, key=_rank):
        files.setdefault(item.path, []).append(item)
    turns: dict[str, list[list[pytest.Item]]] = {"airflow": [], "brokers": [], "others": []}
    for path, tests in files.items():
        with_brokers = any(test.get_closest_marker("integration") for test in tests)
        turns["airflow" if needs_airflow(path) else "brokers" if with_brokers else "others"].append(tests)
    in_turns = zip_longest(turns["brokers"], turns["others"], fillvalue=[])
    items[:] = chain.from_iterable([*turns["airflow"], *chain.from_iterable(in_turns)])


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    return _FilesAndAirflow(config, log) if config.getvalue("dist") == "loadfile" else None


class _FilesAndAirflow(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        for folder in _ONE_WORKER:
            if file.startswith(folder):
                return folder
        return "airflow" if needs_airflow(ROOT / file) else file

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test that ended the worker; a new worker goes on behind it, and does not begin it again."""
        units = self.assigned_work[node].values()
        ended_by = next(((unit, test) for unit in units for test, is_done in unit.items() if not is_done), None)
        if ended_by is not None:
            unit, test = ended_by
            unit[test] = True
        super().remove_node(node)
        return None if ended_by is None else ended_by[1]


def _rank(item: pytest.Item) -> int:
    """Position of the item's file among those of its kind: listed files, then other runs of DAGs, then the rest."""
    file = item.nodeid.split("::", 1)[0]
    if file in LONGEST_FIRST:
        return LONGEST_FIRST.index(file)
    return len(LONGEST_FIRST) + (not file.startswith("tests/dags/"))
