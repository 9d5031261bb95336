"""Shared options of the commands, and the ports of a cluster.

Levels and releases are accepted as `kafka-features.sh` does: by number or name, `feature=level`, two numbers.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli import show
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.planning.fields import Field, fields_of
from kafka_rollout.planning.request import Request
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue, Release
from kafka_rollout.run.events import Called, newest
from kafka_rollout.wiring.cluster_ports import open_cluster_ports

if TYPE_CHECKING:
    from kafka_rollout.client.security.client_security import ClientSecurity


def _known_clusters() -> list[str]:
    """Return the names of the clusters, for the completion of a shell."""
    from kafka_rollout.clusters.inventory import list_readable_clusters

    return list(list_readable_clusters()[0])


ClusterName = Annotated[
    str,
    typer.Option("--cluster", "-c", help="Name in the inventory (see `fleet`).", autocompletion=_known_clusters),
]
RunId = Annotated[
    str | None,
    typer.Option("--run", help="Number of the run to continue, with the options of its last call; default: a new run."),
]
AnyRun = Annotated[
    str | None, typer.Option("--run", help="Number of the run (see `runs list`); default: the run that `status` shows.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Kafka's client.properties with credentials and TLS settings; default: that of the run's last call, or no "
        "TLS and no credentials.",
    ),
]
Approver = Annotated[
    str | None, typer.Option("--as", metavar="NAME", help="Name of the approver, from the inventory's list.")
]
ApprovalReason = Annotated[
    str | None, typer.Option(help="Reason of the approval, as a sentence; stored in the run history.")
]
TakeOver = Annotated[
    bool,
    typer.Option("--take-over", help="Continue a run that a DAG started, as the approver in --as."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask at the terminal: --as is the approval.")]
AcceptUnknown = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-unknown",
        metavar="CHECK=SUBJECT",
        help="What --yes accepts although it can hide a blocker, as its refusal names it; with wildcards. Repeatable.",
    ),
]


def read_level(text: str) -> int:
    """Return the metadata.version of `25`, `4.0-IV3` or `4.0`. Raises UserError for another text."""
    if re.fullmatch(r"[1-9]\d{0,4}", text):
        return int(text)
    level = _level_of_name(get_catalogue(), text)
    if level is None:
        raise UserError(
            f"'{text}' is not a metadata.version.", remedy="Use a number or a name, for example 25 or 4.0-IV3."
        )
    return level


def read_feature(text: str) -> str:
    """Return `feature:level` lists with the level of metadata.version as a number, if it has a name."""
    return ",".join(_with_number(part.strip()) for part in text.split(","))


def read_release(text: str) -> Release:
    """Return the release of `4.0.1`, or for `4.0` the newest of this minor line in the catalogue."""
    return _newest_of(get_catalogue(), text) or Release.parse(text)


def _with_number(text: str) -> str:
    name, sign, level = re.fullmatch(r"(.*?)([:=]?)([^:=]*)", text).groups()  # type: ignore[union-attr]
    if not sign or name != METADATA_VERSION or re.fullmatch(r"-?\d+", level):
        return text
    return f"{name}:{read_level(level)}"


def _level_of_name(catalogue: Catalogue, text: str) -> int | None:
    names = {one.name.upper(): one.level for facts in catalogue.releases.values() for one in facts.metadata_versions}
    if (level := names.get(text.upper())) is not None:
        return level
    release = _newest_of(catalogue, text)
    return None if release is None else catalogue.get(release).features[METADATA_VERSION].latest_production


def _newest_of(catalogue: Catalogue, text: str) -> Release | None:
    """Return the newest release of a minor line such as `4.0`."""
    return next((one for one in reversed(list(catalogue)) if f"{one.major}.{one.minor}" == text), None)


_READERS: Mapping[str, Callable[[str], Any]] = {
    "level": read_level,
    "release_version": read_release,
    "upgrade": read_feature,
    "downgrade": read_feature,
}


def new_run_id() -> str:
    """Return a new unique run id, which begins with the time (UTC). It also identifies the holder of the lock."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-shell-{secrets.token_hex(3)}"


def require_name(change: str, approve_as: str | None, reason: str | None, *, remedy: str = "") -> None:
    """Raise UserError without an approver and a reason. `change`: its subject, such as `An upgrade`."""
    missing = [words for words, given in (("--as NAME", approve_as), ("--reason TEXT", reason)) if not given]
    if missing:
        needed = "a named approval" if len(missing) == 2 else "a reason" if approve_as else "the name of the approver"
        raise UserError(f"{change} needs {needed}.", remedy=f"Add {' '.join(missing)}{remedy}.")


@contextmanager
def open_ports(
    cluster: str, run: str | None, command_config: Path | None, *, kept: Called | None = None
) -> Iterator[tuple[ClusterPorts, Settings, ClientSecurity | None]]:
    """Open the ports of a cluster, for an existing run or (`run` None) for a new one.

    An existing run has the credentials of its last call if `command_config` names no others. `kept`: that call, if the
    caller has read it.
    """
    from kafka_rollout.client.security.credentials import read_credentials

    settings = Settings.from_environment()
    spec = get_cluster(cluster, settings)
    if run is not None:
        number, run = run, require_run(cluster, run, settings)
        if command_config is None and (kept := kept or kept_call(cluster, run, settings)).command_config:
            command_config = Path(kept.command_config)
            if not command_config.exists():
                raise UserError(
                    f"The last call of run {number} had its credentials in {command_config}, which does not exist "
                    "here.",
                    remedy="Name the file: --command-config FILE.",
                )
            show.name_credentials(command_config)
    security = read_credentials(spec, command_config)
    with open_cluster_ports(cluster, run or new_run_id(), security, settings) as ports:
        yield ports, settings, security


def require_run(cluster: str, run: str, settings: Settings | None = None) -> str:
    """Return the id of a run by its number; an id is accepted too. Raises UserError if the cluster does not have it."""
    from kafka_rollout.run.store.opening import database_of
    from kafka_rollout.run.store.run_names import find_run_id

    if (found := find_run_id(database_of(settings), cluster, run)) is None:
        remedy = f"See its runs: kafka-rollout runs list --cluster {cluster}"
        raise UserError(f"Cluster {cluster} has no run {run}.", remedy=remedy)
    return found


def find_run(cluster: str, run: str | None) -> tuple[str, str, Settings]:
    """Return the names of the cluster and of its run. `run` None: that of `status`. Raises UserError without one."""
    from kafka_rollout.wiring.runs import read_status

    settings = Settings.from_environment()
    name = get_cluster(cluster, settings).name
    if run is not None:
        return name, require_run(name, run, settings), settings
    status = read_status(name, settings)
    if status is None or status.run is None:
        raise UserError(f"Cluster {name} has no run in progress.", remedy="Name a run with --run (see `runs list`).")
    return name, status.run, settings


def kept_call(cluster: str, run: str, settings: Settings | None = None) -> Called:
    """Return the options of the last call of a run, for what this call does not name."""
    from kafka_rollout.run.store.opening import open_run

    return newest(open_run(cluster, run, settings).events(), Called) or Called(options={})


def takes_request(
    *kinds: RunOf,
    plans_only: bool = False,
    without: Collection[str] = (),
    required: Collection[str] = (),
    request: type[Request] = Request,
    keeps: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a request, and the request as its parameter `request`.

    `keeps`: what this call does not name is as in the last call that started or continued the run.
    A command with a parameter `options` gets, by name of the field, what both have named; one with `kept` that call;
    one with `named` the names of the fields that this call has named.

    The options are those of the fields that one of the kinds of runs has. `plans_only`, `without`: fewer of
    them, by name of the field. `required`: fields that this command needs.
    """
    shown = [
        replace(one, required=one.required or one.name in required)
        for one in fields_of(frozenset(kinds), request, plans_only=plans_only)
        if one.option and one.name not in without
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        gets = {"options", "kept", "named"} & signature(command).parameters.keys()

        @wraps(command)
        def call(context: typer.Context, **given: Any) -> None:
            options = {one.name: _or_none(one, given.pop(one.parameter)) for one in shown}
            named = {one.name for one in shown if _is_named(context, one.parameter)}
            if "named" in gets:
                given["named"] = frozenset(named)
            kept = None
            if keeps and given["run"] is not None:
                kept = kept_call(given["cluster"], require_run(given["cluster"], given["run"]))
            if kept is not None:
                left = kept.options.keys() & options.keys() - named
                options |= {name: json.loads(kept.options[name]) for name in left}
                named |= left
            if "kept" in gets:
                given["kept"] = kept
            if "options" in gets:
                given["options"] = {name: json.dumps(options[name]) for name in options if name in named}
            values = {one.name: one.from_option(_read(one, options[one.name])) for one in shown}
            command(**given, request=request(**values))

        parameters = [Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)]
        for own in signature(command, eval_str=True).parameters.values():
            if own.name == "request":
                parameters += map(_option, shown)
            elif own.name not in gets:
                parameters.append(own.replace(kind=Parameter.KEYWORD_ONLY))
        call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return call

    return decorate


def _is_named(context: typer.Context, parameter: str) -> bool:
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def _is_none(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() in {"", "none"}


def _or_none(field: Field, value: Any) -> Any:
    return None if field.is_optional and not field.required and _is_none(value) else value


def _read(field: Field, value: Any) -> Any:
    """Return the value of an option whose names the catalogue knows."""
    read = _READERS.get(field.name)
    if read is None or value is None:
        return value
    return [read(one) for one in value] if field.is_list else read(value)


def _option(field: Field) -> Parameter:
    """Return a field as the parameter of a command, as typer reads it."""
    is_number = field.is_optional and field.type is int and not field.is_duration and field.name not in _READERS
    as_text = field.type is Release or field.is_duration or is_number or field.name in _READERS  # the text can be none
    kind: Any = bool if field.switch is not None else str if as_text else field.type
    if field.is_list:
        kind = list[kind]
    limits = {
        name: field.type(limit)
        for name, limit in (("min", field.least), ("max", field.most))
        if limit is not None and not as_text
    }
    shown: dict[str, Any] = {"case_sensitive": False}
    if field.is_duration or is_number:
        shown = {"metavar": "DURATION" if field.is_duration else "NUMBER"}
    more = " Repeatable." if field.is_list else ""
    if field.is_duration:
        within = f", {field.option_limits}" if field.option_limits else ""
        more = f" Such as 30s, 10m or 2h{within}; a number is seconds."
    return Parameter(
        field.parameter,
        Parameter.KEYWORD_ONLY,
        default=Parameter.empty if field.required else field.option_default,
        annotation=Annotated[
            kind | None if field.is_list or (field.is_optional and not field.required) else kind,
            typer.Option(
                field.option, help=field.text + more, rich_help_panel=field.section or None, **limits, **shown
            ),
        ],
    )
