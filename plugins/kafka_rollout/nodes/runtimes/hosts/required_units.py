"""The units that systemd starts, or wants to be active, before it starts the unit of a node.

Source: systemd.unit(5), and transaction_add_job_and_dependencies in src/core/transaction.c: a start is refused at once
if a unit of Requires=, Requisite= or BindsTo= is not loaded, also while it runs. One transaction has the start of the
node and those of all units that these units require, whether they are active or not. Requisite= starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_rollout.model.host_state import RequiredUnit
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.model.unit_settings import REQUIRED_UNITS
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, read_properties, service_of, shown_units

_VERIFIED = "Requisite"
_NEEDED = {"LoadState", "ActiveState", *REQUIRED_UNITS}
_SHOWN = f"Id,Names,LoadState,ActiveState,Type,Result,ConditionResult,{','.join(REQUIRED_UNITS)}"


def read_required_units(commands: HostCommands, node: NodeSpec) -> tuple[RequiredUnit, ...] | None:
    """Return the units, nearest first; None if systemd does not show them all.

    Each unit is asked for once, all of one distance with one command, which needs no right.
    """
    own = service_of(node).unit
    shown: dict[str, Mapping[str, str]] = {}
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    started, followed = {own: None}, set[str]()
    while asked := [name for name in (own, *found) if name not in shown]:
        text = commands.run(node, ["systemctl", "show", f"--property={_SHOWN}", "--", *asked]).out
        for unit in map(read_properties, text.strip().split("\n\n")):
            names = shown_units(f"{unit.get('Id')} {unit.get('Names')}")
            shown |= dict.fromkeys(names if unit.keys() >= _NEEDED else (), unit)
        if not shown.keys() >= {*asked}:
            return None
        while follows := [name for name in started if name in shown and name not in followed]:
            for name in follows:
                followed.add(name)
                for other, settings in _required_by(shown[name]).items():
                    if other != own:
                        found.setdefault(other, (name, settings))
                        started |= dict.fromkeys([other] if {*settings} - {_VERIFIED} else ())
    return tuple(
        RequiredUnit(
            name=name,
            of=of,
            settings=settings,
            load_state=shown[name]["LoadState"],
            active_state=shown[name]["ActiveState"],
            is_done=shown[name].get("ConditionResult") == "no" or _has_succeeded(shown[name]),
            runs_again=_has_succeeded(shown[name]) and shown[name]["ActiveState"] == "inactive",
        )
        for name, (of, settings) in found.items()
    )


def _has_succeeded(unit: Mapping[str, str]) -> bool:
    return unit.get("Type") == "oneshot" and unit.get("Result") == "success" and unit.get("ConditionResult") != "no"


def _required_by(unit: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for setting in REQUIRED_UNITS:
        for name in shown_units(unit[setting]):
            found[name] = (*found.get(name, ()), setting)
    return found
