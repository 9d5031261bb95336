"""The other units that the next start of a node's unit runs, and what they execute.

A unit of Wants=, Requires=, BindsTo= or Upholds= that is not active, or that stops with the node, is started in the
same transaction (systemd.unit(5)), and so is what this one names. A oneshot unit can make a file that Kafka reads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from kafka_rollout.model.start_conditions import StartCommand, of_script, of_unit
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import (
    HostCommands,
    read_properties,
    service_of,
    shown_units,
    shown_with_errors,
)
from kafka_rollout.nodes.runtimes.hosts.option_sources import ScriptsOfStart, read_scripts
from kafka_rollout.nodes.runtimes.hosts.shell_lines import STARTS_KAFKA
from kafka_rollout.nodes.runtimes.hosts.unit_environment import UnclearError, parse_shown, put_in

_STARTS = ("Wants", "Requires", "BindsTo")
_MORE = "Upholds"  # since systemd 249
_ACTIVE = ("active", "activating", "reloading", "refreshing")
_SHOWN = f"Id,Names,LoadState,ActiveState,{','.join(_STARTS)},{_MORE}"
_COMMANDS = ("ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost")
_FILES = ("FragmentPath", "DropInPaths", "EnvironmentFiles")
_SHOWN_FILES = re.compile(r"\(ignore_errors=\w+\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedUnit:
    """Another unit that runs at the next start of a node."""

    name: str
    commands: tuple[tuple[str, bool], ...]
    """Its commands, each with whether its errors are ignored."""
    variables: Mapping[str, str]
    """Of its Environment=."""
    files: tuple[str, ...]
    """With its settings and its environment."""
    start: ScriptsOfStart
    """What it executes."""

    @property
    def all_commands(self) -> Iterator[StartCommand]:
        """Its commands and those of its scripts, of which none is known to end the start of the node."""
        yield from of_unit((put_in(text, self.variables), True) for text, _ in self.commands)
        for text in self.start.wrappers:
            yield from of_script(text.path, text.lines, text.lines, STARTS_KAFKA, is_strict=False)


def read_started_units(
    commands: HostCommands, node: NodeSpec, stopped: Collection[str]
) -> tuple[StartedUnit, ...] | None:
    """Return the units; None if systemd does not show them all. `stopped`: those that stop with the node.

    All units of one distance are asked for with one command, which needs no right.
    """
    own = service_of(node).unit
    shown: dict[str, Mapping[str, str]] = {}
    asked = [own]
    while asked:
        done = commands.run(node, ["systemctl", "show", f"--property={_SHOWN}", "--", *asked])
        units = [read_properties(part) for part in done.out.strip().split("\n\n")]
        for unit in units:
            names = shown_units(f"{unit.get('Id')} {unit.get('Names')}")
            shown |= dict.fromkeys(names if unit.keys() >= {"LoadState", "ActiveState"} else (), unit)
        if not shown.keys() >= {*asked}:
            return None
        named = (name for unit in units for one in (*_STARTS, _MORE) for name in shown_units(unit.get(one, "")))
        asked = [name for name in dict.fromkeys(named) if name not in shown]
    again = {
        unit["Id"]: None
        for name, unit in shown.items()
        if unit is not shown[own]
        and name.endswith(".service")
        and unit["LoadState"] == "loaded"
        and (unit["ActiveState"] not in _ACTIVE or name in stopped)
    }
    return _read_commands(commands, node, list(again)) if again else ()


def _read_commands(commands: HostCommands, node: NodeSpec, names: list[str]) -> tuple[StartedUnit, ...] | None:
    asked = ",".join(("Id", *_COMMANDS, *_FILES, "Environment"))
    done = commands.run(node, ["systemctl", "show", f"--property={asked}", "--", *names])
    found: dict[str, StartedUnit] = {}
    for part in re.split(r"\n\n(?=(?:\w+=.*\n)*Id=)", done.out.strip()):
        lines = part.splitlines()
        name = read_properties(part).get("Id", "")
        shown = tuple(one for line in lines if line.startswith(_COMMANDS) for one in shown_with_errors(line))
        try:
            variables = parse_shown(read_properties(part).get("Environment", ""))
        except UnclearError:
            return None
        words = (_SHOWN_FILES.sub("", line.partition("=")[2]) for line in lines if line.startswith(_FILES))
        found[name] = StartedUnit(
            name=name,
            commands=shown,
            variables=variables,
            files=tuple(dict.fromkeys(path for each in words for path in each.split())),
            start=read_scripts(commands, node, name, [text for text, _ in shown]),
        )
    return tuple(found.values()) if found.keys() >= {*names} else None
