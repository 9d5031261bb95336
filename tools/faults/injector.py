"""Injects the faults of a scenario at their moments, ends each after its time, and records it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.model.topology import NodeSpec
from tools.faults.database import RunDatabase
from tools.faults.health import Health
from tools.faults.history import History, Seen
from tools.faults.kinds import FACTS, Hits, Kind
from tools.faults.limits import choose_target
from tools.faults.plan import Fault, Moment, Procedure
from tools.faults.records import FaultLine, Record
from tools.faults.tool import Tool
from tools.faults.world import End, NotPossibleError, World

_POLL_S = 0.1


@dataclass(slots=True, kw_only=True)
class Injector:
    """`place`: of the scenario, for the record. `say`: shows a line. `node_in_step`: whose stop was requested and whose
    gate has not passed; None between two node steps."""

    world: World
    health: Health
    tool: Tool
    database: RunDatabase
    history: History
    record: Record
    place: str
    procedure: Procedure
    faults: Sequence[Fault]
    say: Callable[[str], None]
    node_in_step: int | None = None
    newest: str = "begin"
    over: bool = False
    seen: set[Moment] = field(default_factory=set)
    last_event: float = field(default_factory=time.monotonic)
    _threads: list[threading.Thread] = field(default_factory=list)
    _active: int = 0
    _done: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _end: threading.Event = field(default_factory=threading.Event)
    last_ended: float = 0.0  # monotonic

    def start(self) -> None:
        watcher = threading.Thread(target=self._watch, name="history", daemon=True)
        self._threads.append(watcher)
        watcher.start()

    @property
    def active(self) -> bool:
        """Whether a fault lasts now, or is due within its delay."""
        with self._lock:
            return self._active > 0

    def holds(self, node: NodeSpec) -> bool:
        """Return whether the run stopped the node and will start it: its operator must not."""
        if self.over:
            return False
        if node.node_id == self.node_in_step:
            return True
        if Moment(event="offline-stopping", nth=1) not in self.seen:
            return False
        if self.procedure is Procedure.OFFLINE_DOWNGRADE:
            return True
        return node.is_controller and Moment(event="live-lowered", nth=1) not in self.seen

    def finish(self) -> None:
        """Cancel faults that have not begun, end the others, and record those whose moment did not come."""
        self.over = True
        self._end.set()
        for thread in list(self._threads):
            thread.join(timeout=120)
        for fault in self.faults:
            if fault.number not in self._done:
                self._note(fault, "", 0.0, reached=False, outcome="its moment did not come")

    def _watch(self) -> None:
        while not self._end.wait(_POLL_S):
            try:
                fresh = self.history.read()
            except RolloutError:
                continue  # the database is one of the things that fail
            for one in fresh:
                self._follow(one)

    def _follow(self, one: Seen) -> None:
        self.last_event = time.monotonic()
        if one.event == "stopping":
            self.node_in_step = one.node_id
        elif one.event == "passed" and one.node_id == self.node_in_step:
            self.node_in_step = None
        if one.moment is None:
            return
        self.newest = f"{one.moment}" + (f" (node {one.node_id})" if one.node_id is not None else "")
        self.seen.add(one.moment)
        for fault in self.faults:
            if fault.at == one.moment:
                with self._lock:
                    self._active += 1
                    self._done.add(fault.number)
                thread = threading.Thread(target=self._carry_out, args=(fault, one), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _carry_out(self, fault: Fault, one: Seen) -> None:
        try:
            if self._end.wait(fault.delay_s):
                self._note(fault, "", 0.0, reached=False, outcome="the run ended before")
                return
            self._inject(fault, one)
        finally:
            with self._lock:
                self._active -= 1
                self.last_ended = time.monotonic()

    def _inject(self, fault: Fault, one: Seen) -> None:
        step, began = self.newest, time.monotonic()
        node: NodeSpec | None = None
        try:
            if FACTS[fault.kind].hits is Hits.TOOL:
                target, end = "the command", self._hit_tool(fault)
            elif FACTS[fault.kind].hits is Hits.DATABASE:
                target, end = "the database", self.database.fail()
            else:
                node = self._reserve(fault, one)
                target, end = node.name, self.world.inject(fault, node)
        except NotPossibleError as error:
            self._release(fault, node)
            self._note(fault, node.name if node else "", 0.0, reached=False, outcome=str(error), step=step)
            return
        self.say(f"{fault.kind} on {target} ({fault.for_s:g} s) {fault.delay_s:g} s after {fault.at}")
        self._end.wait(fault.for_s)
        try:
            outcome = end()
        except Exception as error:  # a fault that does not end is recorded and ends with its cluster
            outcome = f"could not be ended: {error}"
        if fault.kind is Kind.KILL_NODE and node is not None:
            outcome = self._start_again(node, outcome)
        self._release(fault, node)
        self._note(fault, target, time.monotonic() - began, reached=True, outcome=outcome, step=step)

    def _reserve(self, fault: Fault, one: Seen) -> NodeSpec:
        """Choose the node, and count it as impaired before the fault begins."""
        with self._lock:
            impaired = set(self.health.impaired)
            if self.node_in_step is not None:
                impaired.add(self.node_in_step)
            node = choose_target(fault, self.world.spec.nodes, here=one.node_id, impaired=impaired)
            if node is None:
                raise NotPossibleError("another node could not be counted on")
            if FACTS[fault.kind].impairs:
                self.health.impair(node, fault.kind)
            return node

    def _release(self, fault: Fault, node: NodeSpec | None) -> None:
        if node is not None and FACTS[fault.kind].impairs:
            self.health.fault_ended(node)

    def _hit_tool(self, fault: Fault) -> End:
        match fault.kind:
            case Kind.KILL_TOOL:
                self.tool.send(signal.SIGKILL)
                return lambda: "killed"
            case Kind.PAUSE_TOOL:
                self.tool.send(signal.SIGSTOP)
                return self._continue_tool
            case Kind.TURN_CLOCK:
                self.tool.turn_clock(fault.shift_s)
                return self._turn_clock_back
            case _:
                self.tool.send(signal.SIGINT)
                return lambda: "stop requested"

    def _turn_clock_back(self) -> str:
        self.tool.turn_clock(0)
        return "turned back"

    def _continue_tool(self) -> str:
        with suppress(NotPossibleError):
            self.tool.send(signal.SIGCONT)
            return "continued"
        return "the command had ended"

    def _start_again(self, node: NodeSpec, outcome: str) -> str:
        """An operator starts a killed node, unless the run replaces it; systemd starts it on hosts."""
        if self.holds(node) or self.world.has_process(node):
            return outcome
        try:
            self.world.start(node)
        except Exception as error:
            return f"{outcome}; not started again: {error}"
        return f"{outcome}; started again"

    def _note(self, fault: Fault, target: str, lasted_s: float, *, reached: bool, outcome: str, step: str = "") -> None:
        values: dict[str, Any] = {"kind": str(fault.kind), "target": target, "moment": str(fault.at)}
        self.record.add(
            FaultLine(
                at=round(time.time() - lasted_s, 3),
                place=self.place,
                delay_s=fault.delay_s,
                step=step,
                lasted_s=round(lasted_s, 2),
                reached=reached,
                outcome=outcome,
                **values,
            )
        )
