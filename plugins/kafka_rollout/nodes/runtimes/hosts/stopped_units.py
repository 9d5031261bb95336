"""The units that systemd stops together with the unit of a node.

Source: systemd.unit(5), and the dependencies with UNIT_ATOM_PROPAGATE_STOP in src/core/unit-dependency-atom.c. A stop
passes from each of these units to the next. WantedBy=, UpheldBy= and ConflictedBy= pass no stop.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_rollout.model.host_state import StoppedUnit
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, read_properties, service_of, shown_units

# What systemd shows of the unit that is stopped, and the setting of the unit that stops with it.
_SETTINGS = {
    "RequiredBy": "Requires",
    "RequisiteOf": "Requisite",
    "BoundBy": "BindsTo",
    "ConsistsOf": "PartOf",
    "PropagatesStopTo": "StopPropagatedFrom",
}
# systemd before 249 has no PropagatesStopTo=, and prints no line for it.
_ALWAYS_SHOWN = {"Id", "Names", "RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf"}


def read_stopped_units(commands: HostCommands, node: NodeSpec) -> tuple[StoppedUnit, ...] | None:
    """Return the units, nearest first; None if systemd does not show them all.

    Each unit is asked for once, all of one distance with one command, which needs no right.
    """
    names: dict[str, tuple[str, ...]] = {}
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    asked = [service_of(node).unit]
    while asked:
        done = commands.run(node, ["systemctl", "show", f"--property=Id,Names,{','.join(_SETTINGS)}", "--", *asked])
        shown = [read_properties(part) for part in done.out.strip().split("\n\n")]
        if any(_ALWAYS_SHOWN - unit.keys() for unit in shown):
            return None
        for unit in shown:
            own = tuple(dict.fromkeys([*shown_units(unit["Id"]), *shown_units(unit["Names"])]))
            names |= dict.fromkeys(own, own)
        if not names.keys() >= {*asked}:
            return None
        for unit in shown:
            for name, settings in _stopped_with(unit).items():
                if name not in names:
                    found.setdefault(name, (unit["Id"], settings))
        asked = [name for name in found if name not in names]
    return tuple(StoppedUnit(names=names[name], of=of, settings=settings) for name, (of, settings) in found.items())


def _stopped_with(unit: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the units that stop with this one, and the settings of each by which it does."""
    found: dict[str, tuple[str, ...]] = {}
    for shown, setting in _SETTINGS.items():
        for name in shown_units(unit.get(shown, "")):
            found[name] = (*found.get(name, ()), setting)
    return found
