"""One sentence for words that are not a command line: the problem, then the nearest right word."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from typer.exceptions import TyperException

_OPPOSITES = ("upgrade", "downgrade")


def sentence_of(error: TyperException) -> str:
    """Return the sentence for an error of the parser."""
    message = error.format_message()
    context: Any = getattr(error, "ctx", None)
    if context is not None and (found := re.match(r"No such command '(.*?)'\.", message)):
        return _no_command(context, found[1])
    return message


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that is most like a mistyped one; empty if none is.

    A word for raising is never answered with one for lowering: both are suggested only for a word with the same first
    letter.
    """
    begins = word.lstrip("-")[:1]
    fitting = [one for one in known if not one.lstrip("-").startswith(_OPPOSITES) or one.lstrip("-")[:1] == begins]
    return next(iter(get_close_matches(word, fitting, n=1, cutoff=0.7)), "")


def _no_command(context: Any, word: str) -> str:
    path = context.command_path
    shown = [name for name in context.command.list_commands(context) if not _is_hidden(context, name)]
    if (meant := nearest(word, shown)) != "":
        return f"{path} has no command '{word}'. Did you mean '{meant}'?"
    return f"{path} has no command '{word}'. For all commands, see `{path} --help`."


def _is_hidden(context: Any, name: str) -> bool:
    command = context.command.get_command(context, name)
    return command is None or bool(command.hidden)
