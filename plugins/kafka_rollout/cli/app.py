"""`kafka-rollout`: the list of all commands, their help, and `--json` and `--output` of each.

The module of a command is imported when the command is called.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import copy_context
from functools import wraps
from importlib import import_module
from importlib.metadata import version
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from kafka_rollout.base.errors import (
    CredentialsError,
    FatalError,
    LockHeldError,
    RefusedError,
    RolloutError,
    StoppedError,
    TransientError,
    UserError,
)
from kafka_rollout.base.system.settings import is_debug
from kafka_rollout.model.run_of import RUN_COMMANDS

if TYPE_CHECKING:
    from kafka_rollout.cli.show import JsonResult

HELP = (
    "Upgrades or downgrades a running Apache Kafka (KRaft) cluster. The next step starts only after the checks of the "
    "previous one have passed.\n\nExit codes: 0 done; 1 not finished, the message names the cause (no response, or an "
    "operator must act); 2 invalid input or credentials; 3 refused by a check or a blocker; 4 another run holds the "
    "lock of the cluster; 5 `check` cannot exclude a blocker; 130 stopped by Ctrl-C (resumable)."
)
_KINDS = {command.name: kind for kind, command in RUN_COMMANDS.items()}
# Subject → command → function in a module of `commands`, or a module there whose `app` is a group of commands, or which
# makes the command of a kind of run.
_SUBJECTS: Mapping[str, Mapping[str, str]] = {
    "Look at clusters (read-only)": {
        "check": "check.check",
        "fleet": "stored.fleet",
        "status": "stored.status",
        "verify": "verify.verify",
        "scan": "scans.scan",
        "scans": "scans",
        "groups": "groups",
    },
    "Change a cluster": {
        "rehearse": "rehearse.rehearse",
        **{command.name: "changes" for command in RUN_COMMANDS.values()},
        "accept": "changes.accept",
        "retry": "changes.retry",
        "rollback": "changes.rollback",
        "features": "features",
        "traffic": "traffic.traffic",
    },
    "Runs": {
        "pause": "control.pause",
        "resume": "control.resume",
        "stop": "control.stop",
        "unlock": "unlock.unlock",
        "runs": "runs",
    },
    "Set up": {
        "inventory": "inventory",
        "catalogue": "catalogue.catalogue",
        "db": "db.db",
        "clean": "clean.clean",
    },
    "Metadata logs of stopped nodes (for experts)": {
        "metadata": "metadata",
    },
}
COMMANDS: Mapping[str, str] = {name: where for listed in _SUBJECTS.values() for name, where in listed.items()}

_JSON, _OUTPUT, _AS_JSON, _COMMAND_CONFIG = "--json", "--output", "as_json", "--command-config"
_Output = Annotated[Path | None, typer.Option(_OUTPUT, metavar="FILE", help="File for the result of --json.")]
# The first one that fits an error is its kind.
ERROR_KINDS: tuple[tuple[type[RolloutError], str], ...] = (
    (UserError, "invalid_input"),
    (LockHeldError, "locked"),
    (CredentialsError, "credentials"),
    (RefusedError, "refused"),
    (TransientError, "transient"),
    (FatalError, "fatal"),
    (StoppedError, "interrupted"),
)


class Command(TyperCommand):
    """A command whose options are listed by subject. typer's own tables leave 16 columns for their texts."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_options(self, ctx, formatter)


class Group(TyperGroup):
    """A group of commands, each with the first paragraph of its help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        found: dict[str, Any] = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        for title, names in self.by_subject([name for name, command in found.items() if not command.hidden]):
            rows = [(name, " ".join((found[name].help or "").split("\n\n")[0].split())) for name in names]
            with formatter.section(title):
                formatter.write_dl(rows)

    def by_subject(self, names: list[str]) -> Iterable[tuple[str, Iterable[str]]]:
        """Return the commands under their titles."""
        return [("Commands", names)]


def _write_options(command: Any, ctx: Any, formatter: Any) -> None:
    sections: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        if (record := param.get_help_record(ctx)) is not None:
            title = "Arguments" if param.param_type_name == "argument" else param.rich_help_panel or "Options"
            sections.setdefault(title, []).append(record)
    for title, rows in sections.items():
        with formatter.section(title):
            formatter.write_dl(rows)


def with_output(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that has --json the option --output. `_file_of` reads it, before the command is parsed."""
    own = signature(command, eval_str=True)
    if _AS_JSON not in own.parameters or "output" in own.parameters:  # loaded before
        return command

    @wraps(command)
    def call(output: Path | None, **given: Any) -> Any:
        if output is not None and not given[_AS_JSON]:
            raise UserError(f"{_OUTPUT} writes the JSON result.", remedy=f"Add {_JSON}.")
        return command(**given)

    parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own.parameters.values()]
    at = list(own.parameters).index(_AS_JSON) + 1
    output = Parameter("output", Parameter.KEYWORD_ONLY, default=None, annotation=_Output)
    call.__signature__ = Signature([*parameters[:at], output, *parameters[at:]])  # type: ignore[attr-defined]
    return call


def _load(name: str) -> Any:
    """Import a command."""
    module, _, function = COMMANDS[name].partition(".")
    imported = import_module(f"kafka_rollout.cli.commands.{module}")
    run = imported.command_of_kind(_KINDS[name]) if name in _KINDS else getattr(imported, function, None)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False) if run else imported.app
    app.rich_markup_mode = None
    app.info.cls = Group
    if run:
        app.command(name)(run)
    for one in app.registered_commands:
        one.cls = Command
        one.callback = one.callback and with_output(_interruptible(one.callback))
    command: Any = typer.main.get_command(app) if run else typer.main.get_group(app)
    command.name = name
    return command


def _interruptible(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let Ctrl-C end a command with a sentence: typer exits without one."""

    @wraps(command)
    def call(*given: Any, **named: Any) -> Any:
        try:
            return command(*given, **named)
        except KeyboardInterrupt:
            raise StoppedError("Stopped by Ctrl-C before the end.", remedy="To do the rest, repeat it.") from None

    return call


def _read_help(name: str) -> str:
    """Return the first paragraph of a command's help, without importing its module."""
    if name in _KINDS:
        return " ".join(RUN_COMMANDS[_KINDS[name]].help.split("\n\n")[0].split())
    module, _, function = COMMANDS[name].partition(".")
    source: Any = ast.parse((Path(__file__).with_name("commands") / f"{module}.py").read_text(encoding="utf-8"))
    if function:
        (source,) = (part for part in source.body if isinstance(part, ast.FunctionDef) and part.name == function)
    return " ".join((ast.get_docstring(source) or "").split("\n\n")[0].split())


class _Loaded(Mapping[str, Any]):
    """The real commands by name. Each one is imported when it is requested."""

    def __getitem__(self, name: str) -> Any:
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Commands(Group):
    """Lists the commands without importing them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _Loaded()  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return Command(cmd_name, help=_read_help(cmd_name)) if cmd_name in COMMANDS else None

    def by_subject(self, names: list[str]) -> Iterable[tuple[str, Iterable[str]]]:
        return [(subject, [name for name in listed if name in names]) for subject, listed in _SUBJECTS.items()]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else self.commands[name], rest


app = typer.Typer(
    cls=_Commands,
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={
        "max_content_width": 100,
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda word: word.replace("_", "-"),  # a form's spelling: after_approval
    },
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kafka-rollout {version('kafka-rollout')}")
        raise typer.Exit


@app.callback()
def _every_command(
    shown: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Make the app a group, although it has no command itself."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Prints one sentence on standard error and exits with a code by error class; no traceback."""
    sys.exit(run_main(sys.argv[1:] if arguments is None else arguments))


def run_main(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code. `help COMMAND` is `COMMAND --help`."""
    words = [*arguments[1:], "--help"] if arguments[:1] == ["help"] else list(arguments)
    return copy_context().run(_run_alone, words)  # what a call prints depends on no other call


def _run_alone(words: list[str]) -> int:
    credentials = _file_of(_COMMAND_CONFIG, words)
    if credentials is None and _JSON not in words:
        return _run(words)
    from kafka_rollout.cli import show

    if credentials is not None:
        show.name_credentials(credentials)
    if _JSON not in words:
        return _run(words)
    with show.json_result(_file_of(_OUTPUT, words)) as result:
        return _run(words, result)


def _run(words: list[str], result: JsonResult | None = None) -> int:
    try:
        return int(app(args=words, prog_name="kafka-rollout", standalone_mode=False) or 0)
    except RolloutError as error:
        if is_debug():
            raise
        return _fail(error, result)
    except TyperException as error:
        from kafka_rollout.cli.usage import usage_error

        return _fail(usage_error(error), result)
    except (KeyboardInterrupt, typer.Abort):
        return _fail(StoppedError("Stopped by Ctrl-C."), result)
    except Exception as error:
        if is_debug():
            raise
        sentence = f"Unexpected error: {type(error).__name__}: {str(error) or 'no message'}."
        remedy = "Set KAFKA_ROLLOUT_DEBUG=1 to see the traceback."
        return _fail(FatalError(sentence, remedy=remedy), result, kind="unexpected")


def _file_of(option: str, words: Sequence[str]) -> Path | None:
    """Return the file of an option."""
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == option:
            value = value if equals else next(iter(words[at + 1 :]), "")
            return Path(value) if value else None
    return None


def _fail(error: RolloutError, result: JsonResult | None, kind: str = "") -> int:
    """Print the sentence. With --json, also print the error as the result, unless the command has printed one."""
    from kafka_rollout.cli import show

    sentence = " ".join(f"{error.sentence} {error.remedy}".split())
    show.err.print(show.as_text(sentence), style="red", soft_wrap=True)
    if result is not None and not result.is_written:
        kind = kind or next((kind for of, kind in ERROR_KINDS if isinstance(error, of)), "unexpected")
        shown = {"kind": kind, "sentence": error.sentence, "remedy": error.remedy, "exit_code": error.exit_code}
        show.print_json({"error": shown, **({"run": result.run} if result.run else {})})
    return error.exit_code
