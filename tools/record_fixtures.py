"""Record the coordinator logs of a real broker as fixtures: the bytes of its Fetch responses, and their records.

    python tools/record_fixtures.py HOST:PORT NAME [--consumer-protocol] [--all-groups]

Use a new broker; tests/fixtures/README.md describes each fixture. The tests of the decoder compare its result with
classes.json next to the bytes, which an independent consumer counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "plugins"), str(ROOT)]

from kafka_rollout.client.fetch import FetchSource  # noqa: E402
from tools.coordinator_traffic import (  # noqa: E402
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    count_by_consumer,
    make_traffic,
    plant,
    versioned,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("servers")
    parser.add_argument("name", help="the release, with the difference from other fixtures")
    parser.add_argument("--consumer-protocol", action="store_true", help="use the protocol of KIP-848 as well")
    parser.add_argument("--all-groups", action="store_true", help="share groups and streams groups as well, 4.2 on")
    options = parser.parse_args()
    make_traffic(options.servers, consumer_protocol=options.consumer_protocol, all_groups=options.all_groups)
    # Unknown keys with and without a value, in a batch of each codec; padding makes the data compressible.
    for codec in CODECS:
        records = [(versioned(99, b"k%d" % n), versioned(0, b"v" * 200)) for n in range(4)]
        plant(options.servers, CONSUMER_OFFSETS, 0, [*records, (versioned(99, b"gone"), None)], codec)
    record(options.servers, ROOT / "tests" / "fixtures" / f"coordinator-logs-{options.name}", options.all_groups)


def record(servers: str, folder: Path, has_shares: bool) -> None:
    topics = [CONSUMER_OFFSETS, TRANSACTION_STATE, *([SHARE_GROUP_STATE] if has_shares else [])]
    folder.mkdir(parents=True, exist_ok=True)
    logs = []
    with FetchSource(servers) as source:
        for log in source.ranges(topics):
            data = b"".join(fetched.data for fetched in source.read(log))
            if data:
                (folder / f"{log.topic}-{log.partition}.fetch").write_bytes(data)
            logs.append({"topic": log.topic, "partition": log.partition, "start": log.start, "end": log.end})
    classes = [
        {
            "topic": topic,
            "partition": partition,
            "key_version": key_version,
            "value_version": value_version,
            "count": count,
            "first_offset": first,
        }
        for topic in topics
        for (partition, key_version, value_version), (count, first) in count_by_consumer(servers, topic).items()
    ]
    classes.sort(key=lambda c: (c["topic"], c["partition"], c["first_offset"]))
    (folder / "classes.json").write_text(json.dumps({"logs": logs, "classes": classes}, indent=1) + "\n")
    print(f"{folder}: {len(logs)} partitions, {sum(int(str(c['count'])) for c in classes)} records")


if __name__ == "__main__":
    main()
