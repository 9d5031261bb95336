"""Real logs with wrong bytes, right CRCs over many: python -m tests.unit.spark.kernel.fuzz SEED CASES

A process of its own, because what goes wrong in compiled code ends its process. Prints how much was read and refused.
"""

from __future__ import annotations

import random
import struct
import sys

from kafka_rollout.formats.codecs import crc32c
from kafka_rollout.formats.log_types import Codec, RecordBatch
from kafka_rollout.formats.record_batch import batches, payload
from kafka_rollout_spark.decode import worker_rows
from kafka_rollout_spark.kernel.programs import DecodingSpec
from kafka_rollout_spark.merge.newest import reduce_entries
from kafka_rollout_spark.rows import LogBytes, RowKind
from tests.paths import FIXTURES
from tests.unit.formats.test_record_batch import ATTRIBUTES_AT, COMPRESS, CRC_AT, HEADER_BYTES
from tests.unit.spark.kernel.test_tables import LOGS, deep, log_of

_NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
_FIELDS = ((">q", 0), (">i", 8), (">b", 16), (">h", ATTRIBUTES_AT), (">i", 23), (">q", 27), (">q", 35), (">i", 57))


def wrong(random_: random.Random, batch: RecordBatch) -> bytes:
    """The batch with some bytes changed, put in, taken out; often compressed again, and most often with a right CRC."""
    if batch.magic != 2:
        return changed(random_, bytes(batch.data))
    body = payload(batch)
    header = bytearray(batch.data[:HEADER_BYTES])
    codec = random_.choice(list(Codec))
    if random_.random() < 0.8:
        body = changed(random_, body)
    body = bytes(COMPRESS[codec](body))
    if random_.random() < 0.2:
        body = changed(random_, body)
    whole = header + body
    struct.pack_into(">h", whole, ATTRIBUTES_AT, codec)
    struct.pack_into(">i", whole, 8, len(whole) - 12)
    if random_.random() < 0.2:
        form, at = random_.choice(_FIELDS)
        size = struct.calcsize(form)
        whole[at : at + size] = bytes(random_.choice(_NUMBERS) for _ in range(size))
    if random_.random() < 0.9:
        struct.pack_into(">I", whole, CRC_AT, crc32c(bytes(whole[ATTRIBUTES_AT:])))
    return bytes(whole)


def changed(random_: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(random_.randint(1, 4)):
        at = random_.randrange(len(out) + 1)
        match random_.randrange(12):
            case 0 | 1 | 2 | 3 | 4 if at < len(out):
                out[at] = random_.choice(_NUMBERS)
            case 5:
                out[at:at] = random_.randbytes(random_.randint(1, 6))
            case 6:
                del out[at : at + random_.randint(1, 6)]
            case _ if at < len(out):
                out[at] ^= 1 << random_.randrange(8)
    return bytes(out)


def main(seed: int, cases: int) -> None:
    random_ = random.Random(seed)
    logs: list[tuple[str, list[RecordBatch]]] = [(log_of(file)[0], list(batches(file.read_bytes()))) for file in LOGS]
    message_sets = (file.read_bytes() for file in sorted(FIXTURES.glob("message-sets-*/*")))
    logs += [("__consumer_offsets", list(batches(data))) for data in message_sets]
    logs = [log for log in logs if log[1]]
    specs = [DecodingSpec(), DecodingSpec(live=True, buckets=2), deep(), deep(live=True, buckets=3)]
    read = refused = 0
    for _ in range(cases):
        topic, held = random_.choice(logs)
        data = b"".join(wrong(random_, random_.choice(held)) for _ in range(random_.randint(1, 4)))
        # Exactly as large as it is: what lies behind it belongs to nobody.
        chunk = LogBytes(topic=topic, partition=0, data=memoryview(data), file="f")
        for batch in reduce_entries(worker_rows(iter([chunk]), random_.choice(specs))):
            for row in batch.select(["kind", "count"]).to_pylist():
                read += row["count"] or 0 if row["kind"] == RowKind.LOG else 0
                refused += row["kind"] == RowKind.DAMAGE
    print(f"{read} records read, {refused} damages told")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
