from __future__ import annotations

import pytest

from kafka_rollout.metadata_log.metadata_scan import LogSpace, backup_space_findings


@pytest.mark.parametrize(("free", "is_short"), [(1_999_999, True), (2_000_000, False)])
def test_a_node_without_space_for_the_backup_and_the_new_files_is_a_blocker(free: int, is_short: bool) -> None:
    found = backup_space_findings([LogSpace(node_id=3, log_bytes=1_000_000, free_bytes=free)])
    assert [(one.code, one.severity, one.subject) for one in found] == (
        [("BACKUP-SPACE-SHORT", "blocker", "node 3")] if is_short else []
    )
