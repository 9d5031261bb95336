"""What an operator does after a call of the command: repeat it, start a node again, or break the lock. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_rollout.model.counters import COUNTERS, METADATA_ERROR_COUNTERS
from kafka_rollout.model.topology import NodeSpec
from tools.faults.plan import Procedure, Round, Scenario, Stand
from tools.faults.tool import Call
from tools.testbed.bed import UNSEEN

APPROVED = ("--as", "alice", "--reason", "a campaign of faults", "--yes")
PLANNED = (*APPROVED, *(word for one in UNSEEN for word in ("--accept-unknown", one)))
# The nodes of a cluster have min.insync.replicas in the brokers' files only: its plans refuse to lower it.
PINNED = ("--pin-min-insync-replicas",)
GATES = ("--pace", "fast")
_FEATURE = "share.version"
_LOCKED = 4
_NOT_BEGUN = ("has no plan", "is not approved")  # the command was refused or ended before its approval


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The commands of a scenario for a cluster."""

    cluster: str
    of: Round
    scenario: Scenario

    def first(self) -> list[str]:
        """The command that begins the run."""
        to = self.of.older if self.scenario.ends is Stand.OLD else self.of.newer
        name = ["--cluster", self.cluster]
        traffic = ["--traffic"] if self.scenario.traffic else []
        match self.scenario.procedure:
            case Procedure.UPGRADE:
                return ["upgrade", *name, "--to", to, "--no-scan", *traffic, *GATES, *PLANNED]
            case Procedure.ROLL_BACK:
                return ["upgrade", *name, "--to", self.of.newer, "--no-scan", *traffic, *GATES, *PLANNED]
            case Procedure.UPGRADE_AND_FINALIZE:
                levels = ["--finalize", "after-approval", *PINNED]
                return ["upgrade", *name, "--to", to, "--no-scan", *levels, *traffic, *GATES, *PLANNED]
            case Procedure.DOWNGRADE:
                return ["downgrade", *name, "--to", to, *traffic, *GATES, *PLANNED]
            case Procedure.LIVE_DOWNGRADE:
                return ["downgrade", *name, "--to", to, "--lowering", "live", *traffic, *GATES, *PLANNED]
            case Procedure.OFFLINE_DOWNGRADE:
                return ["downgrade", *name, "--to", to, "--lowering", "offline", *traffic, *GATES, *PLANNED]
            case Procedure.RAISE_LEVELS:
                return ["features", "set", "--action", "upgrade-all", *name, *PINNED, *PLANNED]
            case Procedure.LOWER_FEATURE:
                return ["features", "set", *name, "--downgrade", f"{_FEATURE}:0", *PLANNED]
            case _:
                return ["features", "set", *name, "--upgrade", f"{_FEATURE}:1", *PLANNED]

    def again(self, run_id: str) -> list[str]:
        """The command that continues the run."""
        if not run_id:
            return self.first()
        if self.first()[0] == "features":
            return ["features", "set", "--cluster", self.cluster, "--run", run_id, "--as", "alice"]
        return [*self.first(), "--run", run_id]

    def back(self, run_id: str) -> list[str]:
        return ["rollback", "--cluster", self.cluster, "--run", run_id, *APPROVED]

    def retry(self, run_id: str) -> list[str]:
        return ["retry", "--cluster", self.cluster, "--run", run_id, *APPROVED]

    def break_lock(self) -> list[str]:
        return ["unlock", "--cluster", self.cluster, "--as", "alice"]


def nodes_to_restart(call: Call, nodes: Sequence[NodeSpec]) -> tuple[NodeSpec, ...]:
    """Nodes that the command names with metadata errors: a restart applies all metadata again, as its remedy says."""
    names = "|".join(re.escape(COUNTERS[name].kafka_name) for name in METADATA_ERROR_COUNTERS)
    named = set(re.findall(rf"(node \d+|\S+) reports (?:{names}) [1-9]", call.output))
    return tuple(node for node in nodes if named & {node.name, f"node {node.node_id}"})


def next_words(
    commands: Commands, call: Call, run_id: str, *, turned: bool, without_process: Sequence[int], in_step: int | None
) -> list[str]:
    """Return the next command after a call that did not complete.

    `turned`: the run goes back. `without_process`: nodes. `in_step`: the node at which the run stopped.
    """
    if call.code == _LOCKED and call.words[0] != "unlock":
        return commands.break_lock()
    if "kafka-rollout retry" in call.output and in_step is not None and in_step in without_process:
        return commands.retry(run_id)
    if turned and run_id:
        return commands.back(run_id)
    if run_id and commands.first()[0] == "features" and any(each in call.output for each in _NOT_BEGUN):
        return commands.first()
    return commands.again(run_id)
