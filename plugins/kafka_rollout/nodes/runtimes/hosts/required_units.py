"""The units that systemd starts, or wants to be active, before it starts the unit of a node.

Source: systemd.unit(5), and transaction_add_job_and_dependencies in src/core/transaction.c: a start is refused at once
if a unit of Requires=, Requisite= or BindsTo= is not loaded, also while it runs.
"""

from __future__ import annotations

from kafka_rollout.model.host_state import RequiredUnit
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, read_properties, service_of, shown_units

_SETTINGS = ("Requires", "Requisite", "BindsTo")
_SHOWN = f"Id,Names,LoadState,ActiveState,Type,Result,ConditionResult,{','.join(_SETTINGS)}"


def read_required_units(commands: HostCommands, node: NodeSpec) -> tuple[RequiredUnit, ...] | None:
    """Return the units; None if systemd does not show them all. No command needs a right."""
    unit = service_of(node).unit
    own = read_properties(commands.run(node, ["systemctl", "show", f"--property={_SHOWN}", "--", unit]).out)
    if not own.keys() >= {*_SETTINGS}:
        return None
    settings: dict[str, tuple[str, ...]] = {}
    for setting in _SETTINGS:
        for name in shown_units(own[setting]):
            settings[name] = (*settings.get(name, ()), setting)
    if not settings:
        return ()
    text = commands.run(node, ["systemctl", "show", f"--property={_SHOWN}", "--", *settings]).out
    found: dict[str, RequiredUnit] = {}
    for shown in map(read_properties, text.strip().split("\n\n")):
        names = shown_units(f"{shown.get('Id')} {shown.get('Names')}")
        for name in names if {"LoadState", "ActiveState"} <= shown.keys() else ():
            if name in settings:
                found[name] = RequiredUnit(
                    name=name,
                    settings=settings[name],
                    load_state=shown["LoadState"],
                    active_state=shown["ActiveState"],
                    is_done=shown.get("ConditionResult") == "no"
                    or (shown.get("Type") == "oneshot" and shown.get("Result") == "success"),
                )
    return tuple(found[name] for name in settings) if found.keys() == settings.keys() else None
