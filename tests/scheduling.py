"""Which worker runs which tests, and in which order (`--dist loadfile`).

The tests of a file stay on one worker, which shares the file's clusters. All files that use the shared Airflow server
(fixture `airflow`) stay on one worker, so that it is started once. Long files start first: the short ones fill the gaps
at the end.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.paths import ROOT

LONGEST_FIRST = (
    # The first block has work for `make test-full` alone; in `make test` its files have few tests or none.
    "tests/integration/downgrade/test_cli_downgrade_live.py",
    "tests/integration/upgrade/test_cli_roll.py",
    "tests/integration/rehearsal/test_rehearsal_matrix.py",
    "tests/integration/upgrade/test_dag_secured.py",
    "tests/integration/hosts/test_faults_over_ssh.py",
    "tests/integration/hosts/test_downgrades_over_ssh.py",
    "tests/integration/hosts/test_live_downgrade_lost_host.py",
    "tests/integration/downgrade/test_live_downgrade_objects.py",
    "tests/integration/hosts/test_distributed_airflow.py",
    "tests/integration/downgrade/test_dag_downgrade_live.py",
    "tests/integration/metadata_log/test_node_files_on_brokers.py",
    "tests/integration/derivation/test_derivation.py",
    "tests/integration/upgrade/test_demo.py",
    "tests/integration/coordinator_logs/test_scan_oracle.py",
    "tests/integration/upgrade/test_batches.py",
    "tests/integration/groups/test_dynamic_consumer.py",
    "tests/integration/groups/test_group_commands.py",
    "tests/integration/rehearsal/test_rehearsal.py",
    "tests/dags/runs/test_upgrade_run.py",
    "tests/integration/downgrade/test_offline_downgrade.py",
    "tests/integration/features/test_features_applied.py",
    "tests/integration/features/test_features.py",
    "tests/integration/metadata_log/test_metadata_on_brokers.py",
    "tests/dags/runs/test_downgrade_run.py",
    "tests/contract/test_cluster_contract.py",
    "tests/integration/coordinator_logs/test_scan_live.py",
    "tests/dags/runs/test_answers.py",
)


@cache
def needs_airflow(file: Path) -> bool:
    """Whether a test of this file uses the shared Airflow server."""
    return "airflow: PrivateAirflow" in file.read_text(encoding="utf-8")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    return _FilesAndAirflow(config, log) if config.getvalue("dist") == "loadfile" else None


class _FilesAndAirflow(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return "airflow" if needs_airflow(ROOT / file) else file


def _rank(item: pytest.Item) -> int:
    """Position of the item's file in the order; files that are not listed keep their places after the listed ones."""
    file = item.nodeid.split("::", 1)[0]
    if needs_airflow(item.path):
        return -1
    return LONGEST_FIRST.index(file) if file in LONGEST_FIRST else len(LONGEST_FIRST)
