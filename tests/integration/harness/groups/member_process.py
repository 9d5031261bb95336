"""Three members of each of three groups on one topic, in a process of its own: what polls them cannot hang a test.

    python -m tests.integration.harness.groups.member_process BOOTSTRAP TOPIC

prints `settled` whenever every member has partitions after a change; for each line that it reads, the first member of
each group leaves and a new one joins, as in a rolling restart of an application.
"""

from __future__ import annotations

import select
import sys

from confluent_kafka import Consumer

MEMBERS = 3
GROUPS = {
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "next-generation": {"group.protocol": "consumer"},
}


def main(bootstrap: str, topic: str) -> None:
    def join(group: str) -> Consumer:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **GROUPS[group]})
        consumer.subscribe([topic])
        return consumer

    members = {group: [join(group) for _ in range(MEMBERS)] for group in GROUPS}
    told = False
    while True:
        everyone = [member for group in members.values() for member in group]
        for member in everyone:
            member.poll(0.02)
        settled = all(member.assignment() for member in everyone)
        if settled and not told:
            print("settled", flush=True)
        told = settled
        if select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                return
            for group, of_group in members.items():
                of_group.pop(0).close()
                of_group.append(join(group))
            told = False


if __name__ == "__main__":
    main(*sys.argv[1:])
