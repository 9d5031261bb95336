"""`kafka-rollout`: names of the commands and where they are; a command's module is imported when it is called."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from kafka_rollout.domain.model.errors import FatalError, RolloutError, UserError
from kafka_rollout.settings import debug_wanted

HELP = (
    "Upgrades or downgrades a running Apache Kafka (KRaft) cluster and checks every step before the next "
    "one.\n\nExit codes: 0 done; 1 not done, read the sentence (no response now, or an operator must act); 2 "
    "invalid input; 3 refused by a check or a blocker; 4 another run holds the lock of the cluster; 130 "
    "stopped by Ctrl-C (resumable)."
)
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@dataclass(frozen=True, slots=True)
class _Command:
    """`where`: the module in this package and the function, or the Typer group, in it. `help`: the first paragraph
    of its own help, which `kafka-rollout --help` shows without importing it."""

    where: str
    help: str
    context_settings: Mapping[str, Any] | None = None

    def load(self, name: str) -> Any:
        module, attribute = self.where.split(".")
        found = getattr(import_module(f"kafka_rollout.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            command: Any = typer.main.get_group(found)
        else:
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            alone.command(name, context_settings=dict(self.context_settings or {}))(found)
            command = typer.main.get_command(alone)
        command.name = name
        return command


COMMANDS: Mapping[str, _Command] = {
    "clusters": _Command("commands.clusters", "List the clusters of the inventory."),
    "catalogue": _Command(
        "commands.catalogue", "List the supported releases: coordinator class, metadata.version, Java, features."
    ),
    "observe": _Command(
        "commands.observe",
        "Show the state of a cluster: nodes, releases, features, quorum, partitions, groups, findings. Read-only.",
    ),
    "plan": _Command(
        "commands.plan",
        "Show the plan of an upgrade and its findings. Exit code 3 if the plan has blockers. Read-only.",
    ),
    "roll": _Command(
        "changes.roll",
        "Upgrade a cluster to a release, node by node through the gates. --finalize after-approval continues "
        "with its features.",
    ),
    "retry": _Command(
        "changes.retry",
        "Start the node again at which a run stopped, and wait for its gate. First fix the error in the node's log.",
    ),
    "roll-back": _Command(
        "changes.roll_back", "Roll back the nodes of a run to their previous release, from the node where it stopped."
    ),
    "verify": _Command(
        "commands.verify",
        "Check that every node reports the same levels and metadata.version and has no findings. Exit code 3 if not.",
    ),
    "report": _Command(
        "commands.report",
        "Write the report of a run again (default: the newest run) and print its paths, the JSON file last.",
    ),
    "downgrade": _Command(
        "changes.downgrade",
        "Downgrade a cluster to an older release and its levels: scans, loss report, levels, then node by node.",
    ),
    "scan": _Command(
        "scan.scan",
        "Check for every release whether it can load the coordinator logs, of a running cluster or of log directories.",
    ),
    "demo": _Command(
        "commands.demo",
        "Start a real cluster, test traffic and Airflow on this machine, and upgrade or downgrade it through the DAG.",
        _PASSED_ON,
    ),
    "demo-clean": _Command("commands.demo_clean", "Stop everything that demos of this checkout started."),
    "metadata": _Command("metadata.metadata_app", "The metadata log: losses, scan, snapshot, trim, install."),
    "features": _Command(
        "features.features_app",
        "Feature levels (KIP-584): show the finalized and the supported levels, and change them.",
    ),
    "groups": _Command(
        "groups.groups_app",
        "Consumer groups: list them, and plan their move to cooperative rebalancing, to the consumer "
        "protocol (KIP-848) or back to classic. Read-only.",
    ),
    "lock": _Command("lock.lock_app", "The lock of the cluster: one change at a time."),
    "ledger": _Command("ledger.ledger_app", "Test traffic: compares acknowledged with consumed records."),
    "runs": _Command("database.runs_app", "Recorded runs of a cluster."),
    "db": _Command("database.db_app", "The database of run histories, locks and scans."),
    "scans": _Command("scans.scans_app", "Stored scans of the coordinator logs."),
}


class _Loaded(Mapping[str, Any]):
    """The real commands by name, each made when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        return COMMANDS[name].load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Commands(TyperGroup):
    """Lists the commands without importing them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _Loaded()  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = COMMANDS.get(cmd_name)
        return None if found is None else TyperCommand(cmd_name, help=found.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else self.commands[name], rest


app = typer.Typer(cls=_Commands, help=HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def _every_command() -> None:
    """It makes a group of an app that has no command yet."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Prints one sentence on standard error and exits with a code by error class; no traceback."""
    sys.exit(run_main(sys.argv[1:] if arguments is None else arguments))


def run_main(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    try:
        code = app(args=list(arguments), prog_name="kafka-rollout", standalone_mode=False)
    except RolloutError as error:
        if debug_wanted():
            raise
        return _fail(str(error), error.exit_code)
    except TyperException as error:
        return _fail(error.format_message(), UserError.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        from kafka_rollout.cli.run import INTERRUPTED

        return _fail("Stopped by Ctrl-C.", INTERRUPTED)
    except Exception as error:
        if debug_wanted():
            raise
        return _fail(
            f"Unexpected error: {type(error).__name__}: {str(error) or 'no message'}. Set "
            "KAFKA_ROLLOUT_DEBUG=1 to see the traceback.",
            FatalError.exit_code,
        )
    return int(code or 0)


def _fail(sentence: str, code: int) -> int:
    from kafka_rollout.cli import show

    show.err.print(show.as_text(" ".join(sentence.split())), style="red", soft_wrap=True)
    return code
