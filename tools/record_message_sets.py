"""Record message sets of the formats v0 and v1 as fixtures, written by Kafka 3.9.1's own MemoryRecordsBuilder.

    python tools/record_message_sets.py

No current release writes these formats into a log; logs from before Kafka 0.11 still contain them.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "plugins"), str(ROOT)]

from kafka_rollout.base.system.settings import Settings  # noqa: E402
from kafka_rollout.releases.facts import Release  # noqa: E402
from kafka_rollout.releases.jars.cache import ReleaseCache  # noqa: E402
from kafka_rollout.releases.jvm.jvm import Jvm, run_jvm  # noqa: E402

RELEASE = Release(3, 9, 1)
FOLDER = ROOT / "tests" / "fixtures" / f"message-sets-{RELEASE}"
CODECS = ("none", "gzip", "snappy", "lz4")
APPEND_TIME = 1_400_000_009_999

# offset, timestamp, key, value: gaps as after a cleaning pass, nulls, and text that a codec can compress
RECORDS: tuple[tuple[int, int, bytes | None, bytes | None], ...] = (
    (70_000, 1_400_000_000_000, b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00\x01" + b"value" * 20),
    (70_001, 1_400_000_000_005, b"\x00\x02\x00\x01g", None),
    (70_007, 1_400_000_000_003, None, b"\x00\x00" + b"value" * 20),
    (70_008, 1_400_000_000_009, b"\x00\x02\x00\x01g", b""),
)


def write_message_set(jvm: Jvm, magic: int, codec: str, *, log_append_time: bool = False) -> bytes:
    """Return RECORDS as one message set (compressed: one message that wraps it)."""
    record = "org.apache.kafka.common.record"
    compression = jvm.static("org.apache.kafka.common.compress.Compression")
    kind = jvm.static(f"{record}.TimestampType")
    builder = jvm.static(f"{record}.MemoryRecords").builder(
        jvm.packages.java.nio.ByteBuffer.allocate(4096),
        magic,
        compression.of(jvm.static(f"{record}.CompressionType").forName(codec)).build(),
        kind.LOG_APPEND_TIME if log_append_time else kind.CREATE_TIME,
        RECORDS[0][0],
        APPEND_TIME,
    )
    for offset, timestamp, key, value in RECORDS:
        builder.appendWithOffset(offset, timestamp, key, value)
    built = builder.build()
    return bytes(built.buffer().array())[: built.sizeInBytes()]


def main() -> None:
    settings = Settings.from_environment()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with run_jvm(ReleaseCache(settings.cache, settings.include).libs(RELEASE)) as jvm:
        for magic in (0, 1):
            for codec in CODECS:
                (FOLDER / f"v{magic}-{codec}.bin").write_bytes(write_message_set(jvm, magic, codec))


if __name__ == "__main__":
    main()
