"""One scenario: calls the command as an operator does while faults happen, until its run is completed or is stuck."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from kafka_rollout.model.topology import NodeSpec
from tools.faults.health import Health
from tools.faults.injector import Injector
from tools.faults.operator import Commands, next_words, nodes_to_restart
from tools.faults.plan import Moment, Procedure
from tools.faults.tool import Call, Tool
from tools.faults.world import NotPossibleError, World
from tools.testbed.machine import TestbedError

_POLL_S = 0.2
_CALLS_WITHOUT_FAULTS = 5
_WHOLE_S = 120.0


class InterruptedCampaignError(Exception):
    """The campaign was asked to end."""


@dataclass(slots=True, kw_only=True)
class Driver:
    """`stuck_s`: without an event, an output and a fault for this time, a call counts as stuck.

    `stop_asked`: whether the campaign ends. `stuck`: one sentence; empty for a run that was completed. `turned`: the
    run goes back.
    """

    world: World
    tool: Tool
    health: Health
    injector: Injector
    commands: Commands
    stuck_s: float
    stop_asked: Callable[[], bool]
    turned: bool = False
    stuck: str = ""
    _calm_calls: int = 0
    _began: float = 0.0
    _down_since: dict[int, float] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        return self.injector.history.run_id

    def run(self) -> None:
        """Return when the run is completed; `stuck` says why it cannot be."""
        turns = self.commands.scenario.procedure is Procedure.ROLL_BACK
        words = self.commands.first()
        while True:
            call = self._call(words)
            if call is None:
                return
            if call.code == 0 and call.words[0] not in ("unlock", "retry"):
                if not turns or self.turned:
                    return
                self.turned = True  # every node was upgraded before the run was stopped
                words = self.commands.back(self.run_id)
                continue
            if turns and not self.turned and self._turning_point() and self.run_id:
                self.turned = True
            self._settle()
            if self._is_spent(call):
                self.stuck = (
                    f"The run was not completed by {_CALLS_WITHOUT_FAULTS} calls without a fault. The last one ended "
                    f"with exit code {call.code}: {call.last_line}"
                )
                return
            self._restart(nodes_to_restart(call, self.world.spec.nodes))
            down = [node.node_id for node in self.world.spec.nodes if not self.world.has_process(node)]
            words = next_words(
                self.commands,
                call,
                self.run_id,
                turned=self.turned,
                without_process=down,
                in_step=self.injector.node_in_step,
            )

    def repair(self) -> None:
        """Start nodes that are down although the run did not stop them."""
        for node in self.world.spec.nodes:
            if self.world.has_process(node):
                self._down_since.pop(node.node_id, None)
                continue
            since = self._down_since.setdefault(node.node_id, time.monotonic())
            if not self.injector.holds(node) and time.monotonic() - since > self.world.patience_s:
                with suppress(Exception):  # the next call shows what is wrong
                    self.world.start(node)
                    self._down_since.pop(node.node_id, None)

    def _restart(self, nodes: Sequence[NodeSpec]) -> None:
        """Restart nodes one after the other, as the remedy of the command says."""
        for node in nodes:
            if self.health.wait_until_whole(_WHOLE_S, self._go_on):
                return
            with suppress(NotPossibleError, TestbedError):
                self.world.restart(node)
        if nodes:
            self.health.wait_until_whole(_WHOLE_S, self._go_on)

    def _go_on(self) -> None:
        if self.stop_asked():
            raise InterruptedCampaignError
        self.repair()

    def _turning_point(self) -> bool:
        started = Moment(event="started", nth=self.commands.scenario.turns_after)
        return started in self.injector.seen

    def _is_spent(self, call: Call) -> bool:
        if call.words[0] in ("unlock", "retry") and call.code == 0:
            return False
        if call.code in (130, -signal.SIGKILL, -signal.SIGINT):
            return False  # a fault or this operator ended it
        if self.injector.last_ended > self._began:
            return False  # a fault lasted during the call
        self._calm_calls += 1
        return self._calm_calls >= _CALLS_WITHOUT_FAULTS

    def _call(self, words: list[str]) -> Call | None:
        """Return the call when it has ended; None if it is stuck."""
        self._began = progress = time.monotonic()
        self.tool.start(words)
        written, asked = 0, False
        while (call := self.tool.ended()) is None:
            time.sleep(_POLL_S)
            if self.stop_asked():
                raise InterruptedCampaignError
            now = time.monotonic()
            if self.tool.written != written or self.injector.active:
                written, progress = self.tool.written, now
            progress = max(progress, self.injector.last_event)
            if now - progress > self.stuck_s:
                self.stuck = f"`{' '.join(words[:4])}` made no progress for {self.stuck_s:.0f} s without a fault."
                return None
            turns = self.commands.scenario.procedure is Procedure.ROLL_BACK and not self.turned
            if turns and not asked and self._turning_point():
                asked = True
                with suppress(NotPossibleError):
                    self.tool.send(signal.SIGINT)
        return call

    def _settle(self) -> None:
        """Wait until no fault lasts, and start nodes that the run did not stop."""
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline:
            self._go_on()
            down = [
                node
                for node in self.world.spec.nodes
                if not self.injector.holds(node) and not self.world.has_process(node)
            ]
            if not (self.injector.active or down):
                return
            time.sleep(0.5)
