from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.metadata_log.disk.folder import decode_voters
from kafka_rollout.rehearsal.machine.sandbox import encode_voters, rewrite_voters
from tests.paths import FIXTURES

# A VotersRecord of one voter, 101, with the endpoint CONTROLLER kafka-1:9093 and kraft.version 0 to 1.
VOTERS = (
    bytes.fromhex("0000 02 00000065 000102030405060708090a0b0c0d0e0f 02 0b".replace(" ", ""))
    + b"CONTROLLER\x08kafka-1"
    + bytes.fromhex("2385 00 00000001 00 00 00".replace(" ", ""))
)


def test_a_voter_gets_another_address_and_keeps_the_rest() -> None:
    (before,) = decode_voters(VOTERS)
    (after,) = decode_voters(encode_voters(VOTERS, {101: "127.0.0.1:22001"}))
    assert before["endpoints"] == [{"name": "CONTROLLER", "host": "kafka-1", "port": 9093}]
    assert after["endpoints"] == [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 22001}]
    assert {**after, "endpoints": []} == {**before, "endpoints": []}


def test_the_same_address_gives_the_same_bytes() -> None:
    assert encode_voters(VOTERS, {101: "kafka-1:9093"}) == VOTERS


def test_a_voter_without_a_copy_is_refused() -> None:
    with pytest.raises(UserError, match="Controller 101 is a voter of the quorum, and it is not copied"):
        encode_voters(VOTERS, {102: "127.0.0.1:22001"})


def test_a_log_of_a_static_quorum_stays_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "__cluster_metadata-0"
    shutil.copytree(FIXTURES / "metadata-log-level-30", tmp_path / "copy")
    (source,) = [path.parent for path in (tmp_path / "copy").rglob("*.log")][:1]
    shutil.copytree(source, log)
    before = {path.name: path.read_bytes() for path in log.iterdir() if path.is_file()}
    assert rewrite_voters(log, {}) == 0
    assert {path.name: path.read_bytes() for path in log.iterdir() if path.is_file()} == before
