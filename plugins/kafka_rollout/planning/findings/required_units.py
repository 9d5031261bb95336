"""Findings about units without which systemd does not start the unit of a node."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_rollout.base.findings import BLOCKER, WARNING, Finding, FindingCode
from kafka_rollout.model.host_state import HostState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.planning.findings.unit_starts import START_CONDITION

REQUIRED_UNIT_DOWN = FindingCode(
    "REQUIRED-UNIT-DOWN",
    (BLOCKER, WARNING),
    "A unit that the unit of a node requires, or that such a unit requires, does not exist, is masked or does not run. "
    "A warning if systemd can start it with the node.",
)
_ACTIVE = ("active", "activating", "reloading", "refreshing")
_AT_ONCE = "Requisite"


def required_unit_findings(node: NodeSpec, host: HostState) -> Iterator[Finding]:
    """Yield the findings of one node."""
    for unit in host.required_units:
        setting = " and ".join(f"{one}={unit.name}" for one in unit.settings)
        subject = f"node {node.node_id}, {unit.name}"
        fact = f"{unit.of} on host {host.name} has {setting}"
        if unit.of != host.unit:
            fact = f"{host.unit} needs {unit.of} to start, and {fact}"
        remove = (
            f"remove the line from {unit.of} (`systemctl edit --full {unit.of}`) or the link in "
            f"{unit.of}.requires, then run `systemctl daemon-reload`, and plan again."
        )
        if unit.load_state != "loaded":
            yield REQUIRED_UNIT_DOWN.found(
                subject,
                f"{fact}, and systemd reports this unit as {unit.load_state}: it refuses the next start of node "
                f"{node.node_id} at once.",
                f"If {unit.of} needs {unit.name}, install it, or run `systemctl unmask {unit.name}`. If not, {remove}",
                severity=BLOCKER,
            )
        elif unit.active_state not in _ACTIVE and _AT_ONCE in unit.settings:
            yield REQUIRED_UNIT_DOWN.found(
                subject,
                f"{fact}, which is {unit.active_state}: systemd does not start it for the node, and refuses the next "
                f"start of node {node.node_id}.",
                f"Start {unit.name}. Or, if {unit.of} does not need it, {remove}",
                severity=BLOCKER,
            )
        elif unit.active_state not in _ACTIVE and not unit.is_done:
            yield REQUIRED_UNIT_DOWN.found(
                subject,
                f"{fact}, which is {unit.active_state}. The next start of node {node.node_id} starts it first. If that "
                "fails, systemd does not start the node.",
                f"Start {unit.name}, and read its log if that fails. Or, if {unit.of} does not need it, {remove}",
                severity=WARNING,
            )
        elif unit.runs_again:
            yield START_CONDITION.found(
                subject,
                f"{fact}, which ends when its work is done (Type=oneshot). The next start of node {node.node_id} runs "
                "it again first. If it fails then, systemd does not start the node.",
                f"Check that what its commands ask (`systemctl cat {unit.name}`), such as a token, a server or a "
                f"mount, answers as at the last start. Or, if {unit.of} does not need it, {remove}",
            )
