"""The kinds of runs, and the commands that start them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class RunOf(StrEnum):
    """What a run changes."""

    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    FEATURES = "features"
    RESTART = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand:
    """The command that starts and continues a kind of run."""

    name: str
    change: str
    """The run as a subject."""
    help: str
    """Its text."""


ROLLBACK = "rollback"
"""The command that rolls a run back, of any kind."""
SIGNED = "--as NAME --reason TEXT"
"""What a command needs that only an approver can call, for the reader to fill in."""

# The command `features` has subcommands, so `cli/commands/features.py` has its text.
RUN_COMMANDS: Mapping[RunOf, RunCommand] = {
    RunOf.UPGRADE: RunCommand(
        name="upgrade",
        change="An upgrade",
        help=(
            "Upgrade a cluster to a release, one node at a time. The next node is stopped after the gate of the "
            "previous node has passed.\n\n"
            "An upgrade needs --as and --reason. Ctrl-C stops it at the next safe point; --run continues it. "
            "At a pause (--pause-after) without a terminal, the command exits with code 130. Check the nodes. To "
            "continue, repeat the command with --run and --as."
        ),
    ),
    RunOf.DOWNGRADE: RunCommand(
        name="downgrade",
        change="A downgrade",
        help=(
            "Downgrade a cluster to an older release, one node at a time.\n\n"
            "Before the first node, the run scans the logs, reports the losses and lowers the feature levels. A "
            "downgrade needs --as and --reason. Ctrl-C stops it at the next safe point; --run continues it."
        ),
    ),
    RunOf.RESTART: RunCommand(
        name="restart",
        change="A restart",
        help=(
            "Restart the nodes of a cluster on the release that they run, one node at a time.\n\n"
            "Use it after a change of what a node reads only when it starts: its configuration file, its Java version. "
            "--node restarts only the named nodes. A restart needs --as and --reason. Ctrl-C stops it at the "
            "next safe point; --run continues it."
        ),
    ),
}
