"""Memory and disk that a rehearsal needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_rollout.base.wording import count, size

MIB = 1 << 20
_HEAP = 256 * MIB
_HEAP_OF_REPLICA = 56 << 10  # about 36 KiB are in use; with less, most of the CPU time is garbage collection
_NATIVE = 160 * MIB  # metaspace, code and threads of a broker
_NATIVE_OF_REPLICA = 8 << 10
_TOOL = 400 * MIB  # this tool, and the classes of a release in a JVM
_DISK_OF_NODE = 64 * MIB  # its log, and what it writes during the rehearsal
_DISK_OF_REPLICA = 32 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Memory and disk of a rehearsal. Sizes in bytes; `heaps`: node id → maximum heap of its JVM."""

    heaps: Mapping[int, int]
    memory: int
    copied: int
    disk: int
    partitions: int

    @property
    def sentence(self) -> str:
        return (
            f"{count(len(self.heaps), 'node')}, {count(self.partitions, 'replica')}: about {size(self.memory)} of "
            f"memory and {size(self.disk)} of disk, of which {size(self.copied)} are copied."
        )


def estimate(replicas: Mapping[int, int], copied: int) -> Estimate:
    """Return the estimate. `replicas`: node id → number of its partition directories; `copied`: bytes to copy."""
    heaps = {node_id: -(-(_HEAP + number * _HEAP_OF_REPLICA) // MIB) * MIB for node_id, number in replicas.items()}
    partitions = sum(replicas.values())
    return Estimate(
        heaps=heaps,
        memory=sum(heaps.values()) + len(heaps) * _NATIVE + partitions * _NATIVE_OF_REPLICA + _TOOL,
        copied=copied,
        disk=copied * 5 // 4 + len(heaps) * _DISK_OF_NODE + partitions * _DISK_OF_REPLICA,
        partitions=partitions,
    )


def find_shortage(needed: Estimate, *, free_memory: int, free_disk: int) -> str:
    """Return why this machine cannot run the rehearsal, as a sentence; empty if it can."""
    if free_memory < needed.memory:
        return f"The rehearsal needs about {size(needed.memory)} of memory, and {size(free_memory)} are free."
    if free_disk < needed.disk:
        return f"The rehearsal needs about {size(needed.disk)} of disk, and {size(free_disk)} are free."
    return ""
