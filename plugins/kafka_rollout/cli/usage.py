"""One sentence for words that are not a command line: the problem, then the nearest right word or the right form."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from enum import Enum
from typing import Any

from typer.exceptions import TyperException

from kafka_rollout.base.errors import UserError

_OPPOSITES = ("upgrade", "downgrade")
# Commands that operators look for at the top → ours.
_IN_A_GROUP = {"finalize": "features set --action upgrade-all"}
# Options of other tools, and those that operators guess → ours, where a command has it.
_MEANT = {
    "--bootstrap-servers": "--bootstrap-server",
    "--config": "--command-config",
    "--level": "--to-level",
    "--metadata": "--to-level",
    "--name": "--cluster",
    "--release": "--to",
    "--run-id": "--run",
    "--target": "--to",
    "--target-level": "--to-level",
    "--target-release": "--to",
    "--to-release": "--to",
    "--user": "--as",
    "--version": "--to",
}


def usage_error(error: TyperException) -> UserError:
    """Return an error of the parser as a problem and its fix."""
    context: Any = getattr(error, "ctx", None)
    message = error.format_message()
    kind = type(error).__name__
    if found := re.match(r"Option '(.*?)' requires an argument", message):
        return UserError(f"{found[1]} needs a value.", remedy="Add it after the option.")
    if context is None:
        return UserError(message)
    path = context.command_path
    if found := re.match(r"No such command '(.*?)'\.", message):
        return _no_command(context, found[1])
    if kind == "NoArgsIsHelpError":
        return UserError(f"{path} needs a command.", remedy=f"For all commands, see `{path} --help`.")
    if kind == "NoSuchOption":
        return _no_option(context, error.option_name)  # type: ignore[attr-defined]
    if kind == "MissingParameter":
        return _missing(context, error.param)  # type: ignore[attr-defined]
    if kind == "BadParameter" and getattr(error, "param", None) is not None:
        return _bad_value(error.param, error)  # type: ignore[attr-defined]
    if found := re.match(r"Got unexpected extra argument\(?s?\)? \((.*)\)", message):
        return UserError(
            f"{path} does not expect '{found[1]}'.",
            remedy=f"Put a text with spaces in quotes. For all options, see `{path} --help`.",
        )
    return UserError(message)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that is most like a mistyped one; empty if none is.

    A word for raising is never answered with one for lowering: both are suggested only for a word with the same first
    letter.
    """
    begins = word.lstrip("-")[:1]
    fitting = [one for one in known if not one.lstrip("-").startswith(_OPPOSITES) or one.lstrip("-")[:1] == begins]
    return next(iter(get_close_matches(word, fitting, n=1, cutoff=0.7)), "")


def _no_command(context: Any, word: str) -> UserError:
    path = context.command_path
    elsewhere = "" if context.parent else _IN_A_GROUP.get(word, "")
    meant = elsewhere or nearest(word, context.command.list_commands(context))
    remedy = f"Did you mean '{meant}'?" if meant else f"For all commands, see `{path} --help`."
    return UserError(f"{path} has no command '{word}'.", remedy=remedy)


def _no_option(context: Any, option: str) -> UserError:
    path = context.command_path
    known = {name for param in context.command.params for name in (*param.opts, *param.secondary_opts)}
    if option == "--dry-run" and "Read-only" in (context.command.help or ""):
        return UserError(f"{path} has no option --dry-run, because it changes nothing.", remedy="Remove the option.")
    meant = _MEANT.get(option, "")
    meant = meant if meant in known else nearest(option, (name for name in known if name.startswith("--")))
    remedy = f"Did you mean {meant}?" if meant else f"For all options, see `{path} --help`."
    return UserError(f"{path} has no option {option}.", remedy=remedy)


def _missing(context: Any, param: Any) -> UserError:
    path, option = context.command_path, _name(param)
    if option == "--cluster":
        return UserError(f"{path} needs --cluster NAME.", remedy=_known_clusters())
    if param.param_type_name == "argument":
        return UserError(f"{path} needs {(param.metavar or option).rstrip('.')}.", remedy=f"See `{path} --help`.")
    return UserError(f"{path} needs {option}: {_first_sentence(param.help)}", remedy="Add it.")


def _known_clusters() -> str:
    from kafka_rollout.clusters.inventory import list_readable_clusters

    try:
        clusters, problems = list_readable_clusters()
    except UserError as error:
        return str(error)
    if not clusters and problems:
        return "No inventory can be used: `kafka-rollout fleet` says why."
    if not clusters:
        return "There is none yet: write its file with `kafka-rollout inventory init`."
    return f"Clusters: {', '.join(clusters)}."


def _bad_value(param: Any, error: TyperException) -> UserError:
    cause: Any = error.__cause__ or error.__context__
    found = cause.errors(include_url=False)[0] if hasattr(cause, "errors") else {}
    typed = found.get("input")
    expected = _expected(param)
    if not found or not expected:
        return UserError(f"{_name(param)}: {error.message.removeprefix('Value error, ')}")
    return UserError(f"{_name(param)} cannot be '{typed}'.", remedy=f"It must be {expected}.")


def _expected(param: Any) -> str:
    kind = param.type_descriptor.annotation
    if not isinstance(kind, type):
        return ""
    if issubclass(kind, Enum):
        return f"one of {', '.join(str(one.value) for one in kind)}"
    if kind not in (int, float):
        return ""
    limits = " ".join(
        f"{word} {limit:g}" for word, limit in (("from", param.min), ("to", param.max)) if limit is not None
    )
    return f"{'a whole number' if kind is int else 'a number'}{' ' + limits if limits else ''}"


def _name(param: Any) -> str:
    return str(max(param.opts, key=len)) if param.opts else str(param.name)


def _first_sentence(text: str | None) -> str:
    sentence = " ".join((text or "").split()).split(". ")[0].rstrip(".")
    return f"{sentence[:1].lower()}{sentence[1:]}."
