"""`--json` and `--output` of each command: where the result goes, and errors as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from kafka_rollout.base.errors import (
    FatalError,
    LockHeldError,
    RefusedError,
    RolloutError,
    StoppedError,
    TransientError,
    UserError,
)

_JSON, _OUTPUT, _AS_JSON = "--json", "--output", "as_json"
_Output = Annotated[Path | None, typer.Option(_OUTPUT, metavar="FILE", help="File for the result of --json.")]
# The first one that fits an error is its kind.
ERROR_KINDS: tuple[tuple[type[RolloutError], str], ...] = (
    (UserError, "invalid_input"),
    (LockHeldError, "locked"),
    (RefusedError, "refused"),
    (TransientError, "transient"),
    (FatalError, "fatal"),
    (StoppedError, "interrupted"),
)


def with_output(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that has --json the option --output. `file_of` reads it, before the command is parsed."""
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


def wants_json(words: Sequence[str]) -> bool:
    return _JSON in words


def file_of(words: Sequence[str]) -> Path | None:
    """Return the file of --output."""
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == _OUTPUT:
            value = value if equals else next(iter(words[at + 1 :]), "")
            return Path(value) if value else None
    return None


def kind_of(error: Exception) -> str:
    """Return the kind of an error, as scripts read it."""
    return next((kind for of, kind in ERROR_KINDS if isinstance(error, of)), "unexpected")
