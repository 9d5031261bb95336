"""An observation of the cluster that is independent of the tool: which nodes can be counted on, and when again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kafka_rollout.model.topology import NodeSpec
from tools.faults.kinds import Kind
from tools.faults.limits import Impaired
from tools.faults.world import World

_EVERY_S = 1.0
_CONTROLLER_S = 10.0  # no other controller is impaired for this time after a fault


@dataclass(slots=True)
class Health:
    """Nodes that faults impaired, until they are in every ISR again. A thread observes while some are recovering."""

    world: World
    now: Callable[[], float] = time.time  # epoch seconds
    times: list[Impaired] = field(default_factory=list)  # with an end
    _open: dict[int, Impaired] = field(default_factory=dict)
    _ended: dict[int, float] = field(default_factory=dict)  # node → end of its fault
    _in_sync: dict[int, float] = field(default_factory=dict)  # broker → first observation in every ISR after that
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _end: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="health", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=30)

    def impair(self, node: NodeSpec, kind: Kind) -> None:
        with self._lock:
            ended, in_sync = self._ended.pop(node.node_id, None), self._in_sync.pop(node.node_id, None)
            until = in_sync if node.is_broker else ended
            if until is not None:  # a new time begins: the node was back between the faults
                self.times.append(replace(self._open.pop(node.node_id), until=until))
            if node.node_id not in self._open:
                self._open[node.node_id] = Impaired(node_id=node.node_id, kind=kind, since=self.now())

    def fault_ended(self, node: NodeSpec) -> None:
        with self._lock:
            if node.node_id in self._open:
                self._ended[node.node_id] = self.now()

    @property
    def impaired(self) -> frozenset[int]:
        with self._lock:
            return frozenset(self._open)

    def all_times(self) -> list[Impaired]:
        with self._lock:
            return [*self.times, *self._open.values()]

    def lacking(self) -> str:
        """What is not whole yet, in words; empty if every node runs and every replica is in sync."""
        down = [node.name for node in self.world.spec.nodes if not self.world.has_process(node)]
        if down:
            return f"without a process: {', '.join(down)}"
        try:
            behind = self._not_in_sync()
        except KafkaException as error:
            return str(error.args[0])
        return f"not in every ISR: {', '.join(map(str, sorted(behind)))}" if behind else ""

    def wait_until_whole(self, within_s: float, repair: Callable[[], None]) -> str:
        """Return what is still lacking after the time; empty if the cluster is whole."""
        deadline = time.monotonic() + within_s
        while True:
            repair()
            lacking = self.lacking()
            if not lacking or time.monotonic() > deadline:
                return lacking
            time.sleep(1)

    def _watch(self) -> None:
        while not self._end.wait(_EVERY_S):
            with self._lock:
                waiting = dict(self._ended)
            if not waiting:
                continue
            at = self.now()
            try:
                behind = self._not_in_sync()
            except KafkaException:
                continue
            for node in self.world.spec.nodes:
                if node.node_id not in waiting or (node.is_broker and node.node_id in behind):
                    continue
                if self.world.has_process(node):
                    self.recovered(node, at)

    def recovered(self, node: NodeSpec, at: float) -> None:
        """Take note that the node ran at this time, as a broker in every ISR; epoch seconds."""
        with self._lock:
            ended, one = self._ended.get(node.node_id), self._open.get(node.node_id)
            if one is None or ended is None or ended > at:
                return
            # What is not observed is not called unsafe: whether a controller that works again follows the leader.
            until = self._in_sync.setdefault(node.node_id, at) if node.is_broker else ended
            if node.is_controller and at < ended + _CONTROLLER_S:
                return
            self._in_sync.pop(node.node_id, None)
            del self._ended[node.node_id], self._open[node.node_id]
            self.times.append(replace(one, until=until))

    def _not_in_sync(self) -> set[int]:
        admin = AdminClient({"bootstrap.servers": self.world.spec.bootstrap_servers, "log_level": 0})
        behind: set[int] = set()
        for topic in admin.list_topics(timeout=5).topics.values():
            for partition in topic.partitions.values():
                behind |= set(partition.replicas) - set(partition.isrs)
        return behind
