"""The commands that a start of a node's unit runs beside Kafka, and what the host has of all that they need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypedDict

from kafka_rollout.model.host_state import PlaceState
from kafka_rollout.model.start_conditions import (
    StartCommand,
    find_conditions,
    find_removals,
    is_strict,
    of_script,
    of_start,
    of_unit,
    paths_of,
    removed_paths,
)
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of, shown_with_errors
from kafka_rollout.nodes.runtimes.hosts.option_sources import ScriptsOfStart, UnitOptions
from kafka_rollout.nodes.runtimes.hosts.shell_lines import STARTS_KAFKA
from kafka_rollout.nodes.runtimes.hosts.times import read_newer
from kafka_rollout.nodes.runtimes.hosts.unit_environment import put_in
from kafka_rollout.nodes.runtimes.hosts.user_access import follow

_BESIDE = ("ExecCondition=", "ExecStartPre=", "ExecStartPost=")
_OWNERS = 'while read -r kind name; do if getent "$kind" "$name" >/dev/null 2>&1; then echo "$kind $name"; fi; done'


class StartCommands(TypedDict):
    """Fields of HostState."""

    start_conditions: tuple[str, ...]
    start_removals: tuple[tuple[str, str], ...]


def read_start_commands(
    commands: HostCommands,
    node: NodeSpec,
    options: UnitOptions,
    start: ScriptsOfStart,
    *,
    stop: Iterable[str],
    others: Iterable[StartCommand],
    directories: Collection[str],
) -> StartCommands:
    """Return what can end the next start, and what removes data. `stop`: the commands of a stop. `others`: those of
    other units that a start runs."""
    own = [*_commands(options, start)]
    others = [*of_unit((one, True) for one in stop), *_of_texts(start), *others]
    paths, sources, owners = paths_of(own)
    removed = [path for one in (*own, *others) for path, _ in removed_paths(one.text)]
    places = follow(commands, node, [*paths, *removed, *directories]) if paths or removed else {}
    text = "".join(f"{one}\n" for one in owners if one.isprintable())
    known = commands.shell.run(service_of(node).host, _OWNERS, text=text).out.splitlines() if owners else ()
    return StartCommands(
        start_conditions=find_conditions(
            own,
            lambda path: places[path].state if path in places else PlaceState.HIDDEN,
            known,
            read_newer(commands, node, sources, options.started),
        ),
        start_removals=find_removals(
            [*own, *others], directories, lambda path: places[path].place if path in places else path
        ),
    )


def _commands(options: UnitOptions, start: ScriptsOfStart) -> Iterator[StartCommand]:
    """Yield them in their order."""
    shown = [(one, text, bad) for one in options.commands for text, bad in shown_with_errors(one)]
    values = options.variables
    yield from of_unit((put_in(text, values), bad) for one, text, bad in shown if one.startswith(_BESIDE[:2]))
    for one, text, _ in shown:
        if one.startswith("ExecStart="):
            yield from of_start(put_in(text, values), STARTS_KAFKA)
    yield from _of_wrappers(start, values)
    yield from of_unit((put_in(text, values), bad) for one, text, bad in shown if one.startswith(_BESIDE[2]))


def _of_wrappers(start: ScriptsOfStart, values: Mapping[str, str]) -> Iterator[StartCommand]:
    resolved = iter(start.wrapper_lines(values))
    strict = any(is_strict(text.interpreter, text.lines) for text in start.wrappers)
    # A file that a script reads comes before the rest of the script.
    for text in start.wrappers:
        lines = [next(resolved) for _ in text.lines]
        yield from of_script(text.path, text.lines, lines, STARTS_KAFKA, is_strict=strict)


def _of_texts(start: ScriptsOfStart) -> Iterator[StartCommand]:
    """Yield the commands of all scripts that a start executes, of which none is known to end it."""
    for text in start.texts:
        if text.path.startswith("/") and text not in start.wrappers:
            yield from of_script(text.path, text.lines, text.lines, STARTS_KAFKA, is_strict=False)
