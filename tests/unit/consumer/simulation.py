"""Whole groups on one table: members that consume, commit, miss rebalances and crash, in any order.

Each method is one step that really happens by itself, so the caller decides the order of events. Listeners
do what most do: they commit as partitions are taken away, also where the default of on_partitions_lost hands them to
on_partitions_revoked. The coordinator's `overwrites` tells whether one member wrote over another's offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import count

from dynamic_protocol_consumer.member import Handover, Member
from dynamic_protocol_consumer.protocols import Assignor, Partition, RebalanceProtocol
from tests.unit.consumer.assignment import assign
from tests.unit.consumer.coordinator import Claim, Coordinator, GroupState, Pick

_NO_GENERATION = -1


@dataclass(slots=True, kw_only=True)
class Process:
    """One running consumer: its protocol's state, and what a client keeps beside it."""

    id: str
    state: Member
    positions: dict[Partition, int] = field(default_factory=dict)
    generation: int = _NO_GENERATION  # the one it commits with
    joining: bool = False  # JoinGroup sent, no assignment yet
    rejoin: bool = True
    in_flight: list[tuple[int, Partition, int]] = field(default_factory=list)

    @property
    def owned(self) -> frozenset[Partition]:
        return frozenset(self.positions)


@dataclass(slots=True, kw_only=True)
class Group:
    """A group that consumes `partitions`. `short_circuit=False` takes the safeguard away, to see what it is for."""

    partitions: frozenset[Partition]
    pick: Pick = min
    short_circuit: bool = True
    coordinator: Coordinator = field(default_factory=Coordinator)
    processes: dict[str, Process] = field(default_factory=dict)
    refusals: list[tuple[str, Partition]] = field(default_factory=list)
    """Commits refused by the short circuit: member and partition."""
    handovers: list[tuple[str, Handover]] = field(default_factory=list)
    _ids: count[int] = field(default_factory=count)

    def start(self, name: str, assignors: Iterable[Assignor]) -> None:
        self.processes[name] = Process(id=f"{name}-{next(self._ids)}", state=Member.start(assignors))

    def crash(self, name: str) -> None:
        """It is gone; the coordinator only learns by its silence (expire_sessions)."""
        del self.processes[name]

    def stop(self, name: str) -> None:
        """An orderly end: revoke, commit, leave."""
        process = self.processes.pop(name)
        self._commit_now(name, process, process.owned)
        self.coordinator.leave(process.id)

    def expire_sessions(self) -> None:
        alive = {process.id for process in self.processes.values()}
        for member in self.coordinator.claims.keys() - alive:
            self.coordinator.leave(member)

    def consume(self, name: str) -> None:
        process = self.processes[name]
        for partition in process.positions:
            process.positions[partition] += 1

    def send_commit(self, name: str) -> None:
        """An asynchronous commit of all positions; a client sends none during a rebalance."""
        process = self.processes[name]
        if not process.joining:
            process.in_flight += [(process.generation, *entry) for entry in process.positions.items()]

    def deliver_commit(self, name: str) -> None:
        process = self.processes[name]
        if process.in_flight:
            generation, partition, offset = process.in_flight.pop(0)
            self._commit(name, process, generation, partition, offset)

    def poll(self, name: str) -> None:
        """A heartbeat's news, and JoinGroup if it asks for one."""
        process = self.processes[name]
        if process.joining:
            fenced = process.id not in self.coordinator.claims
        else:
            fenced = process.generation != _NO_GENERATION and not self.coordinator.knows(process.id, process.generation)
        if fenced:
            self._fall_out(name, process)
        preparing = self.coordinator.state is GroupState.PREPARING and process.id not in self.coordinator.joined
        if not (process.rejoin or preparing):
            return
        if not process.joining:
            self._give_up(name, process, process.state.to_revoke_before_joining(process.owned))
        claim = Claim(
            assignors=tuple(assignor.name for assignor in process.state.assignors),
            owned=process.owned,
            generation=process.state.generation or _NO_GENERATION,
        )
        if self.coordinator.join(process.id, claim):
            process.joining, process.rejoin = True, False

    def complete_join(self) -> None:
        """The coordinator waits no longer; who has not joined is out."""
        if self.coordinator.state is GroupState.PREPARING and self.coordinator.joined:
            self.coordinator.complete_join(self.pick)

    def answer_join(self, name: str) -> None:
        """JoinGroup's answer arrives; the leader computes the assignment and sends it."""
        process, coordinator = self.processes[name], self.coordinator
        if not (process.joining and process.id in coordinator.claims and coordinator.state is GroupState.COMPLETING):
            return
        if process.state.generation != coordinator.generation:
            process.state = process.state.joined(coordinator.generation, coordinator.assignor)
            process.generation = coordinator.generation
        if process.id == coordinator.leader:
            coordinator.sync(assign(coordinator.assignor, self.partitions, coordinator.claims))

    def answer_sync(self, name: str) -> None:
        """SyncGroup's answer arrives: the assignment, or the news that the next rebalance began already."""
        process, coordinator = self.processes[name], self.coordinator
        if not process.joining or process.id not in coordinator.claims or process.id in coordinator.joined:
            return
        if coordinator.state is GroupState.PREPARING:
            process.rejoin = True
        if coordinator.state is not GroupState.STABLE:
            return
        if process.state.generation != coordinator.generation:  # both answers at once
            process.state = process.state.joined(coordinator.generation, coordinator.assignor)
            process.generation = coordinator.generation
        assigned = coordinator.assignment.get(process.id, frozenset())
        state, handover = process.state.assigned(owned=process.owned, assigned=assigned)
        process.state, process.joining, process.rejoin = state, False, handover.rejoin
        if not self.short_circuit:
            handover = replace(handover, lost=frozenset(), revoked=handover.lost | handover.revoked)
            process.state = replace(state, blocked=frozenset())
        self.handovers.append((name, handover))
        self._give_up(name, process, handover.lost | handover.revoked)
        process.state = process.state.took_over(handover.added)
        for partition in handover.added:
            process.positions[partition] = coordinator.offsets.get(partition, (0, ""))[0]

    def settle(self) -> None:
        """Everybody polls until nothing changes: the group as it is when the world is left in peace."""
        for _ in range(10 + 4 * len(self.processes)):
            self.expire_sessions()
            for step in (self.poll, self.answer_join, self.answer_sync):
                for name in self.processes:
                    step(name)
                if step == self.poll and len(self.coordinator.joined) == len(self.processes):
                    self.complete_join()
            if self.is_settled:
                return
        raise AssertionError("the group does not settle")

    @property
    def is_settled(self) -> bool:
        if not self.processes:
            return self.coordinator.state is GroupState.EMPTY
        return self.coordinator.state is GroupState.STABLE and not any(
            process.joining or process.rejoin or not self.coordinator.knows(process.id, process.generation)
            for process in self.processes.values()
        )

    @property
    def protocols(self) -> frozenset[RebalanceProtocol]:
        return frozenset(process.state.protocol for process in self.processes.values())

    def _fall_out(self, name: str, process: Process) -> None:
        process.state = process.state.out_of_group()
        process.generation, process.joining, process.rejoin = _NO_GENERATION, False, True
        self._give_up(name, process, process.owned)
        process.id = f"{name}-{next(self._ids)}"

    def _give_up(self, name: str, process: Process, partitions: frozenset[Partition]) -> None:
        self._commit_now(name, process, partitions)
        for partition in partitions:
            del process.positions[partition]

    def _commit_now(self, name: str, process: Process, partitions: frozenset[Partition]) -> None:
        if process.joining:
            return  # clients refuse it themselves
        for partition in partitions:
            self._commit(name, process, process.generation, partition, process.positions[partition])

    def _commit(self, name: str, process: Process, generation: int, partition: Partition, offset: int) -> None:
        if process.state.refused([partition]):
            self.refusals.append((name, partition))
        else:
            self.coordinator.commit(process.id, generation, partition, offset)
