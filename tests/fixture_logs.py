"""Log directories made of bytes that real brokers wrote."""

from __future__ import annotations

from pathlib import Path

from kafka_rollout.formats.record_batch import batches
from tests.paths import FIXTURES


def write_fixture_logs(
    folder: Path, release: str, *, name: str = "node", times: int = 1, segment_batches: int = 5
) -> Path:
    """Write a log directory with the coordinator logs of a release, `times` times over, and return it."""
    for path in sorted((FIXTURES / f"coordinator-logs-{release}").glob("*.fetch")):
        log = folder / name / path.stem
        log.mkdir(parents=True)
        held = [bytes(batch.data) for batch in batches(path.read_bytes())] * times
        offset = 0
        for at in range(0, len(held), segment_batches):
            segment, data = log / f"{offset:020}.log", b""
            for batch in held[at : at + segment_batches]:
                data += offset.to_bytes(8) + batch[8:]  # the base offset lies outside of the CRC
                offset += int.from_bytes(batch[23:27]) + 1
            segment.write_bytes(data)
    return folder / name
