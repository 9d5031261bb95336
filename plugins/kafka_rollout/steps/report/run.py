"""Report: everything a run did and saw, as one JSON-able value."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kafka_rollout.domain.gates.ref import GateKind
from kafka_rollout.domain.model.errors import TransientError
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.model.releases import METADATA_VERSION
from kafka_rollout.domain.model.state import ClusterState, NodeState
from kafka_rollout.domain.model.topology import NodeSpec
from kafka_rollout.steps.common.approval import approvals
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.observe import observe
from kafka_rollout.steps.report.outcome import Outcome, outcome_of

__all__ = ["FORMAT", "Outcome", "build_report"]

FORMAT = 1
SCAN_VERDICT = "scan/verdict.json"
LEDGER_VERDICT = "ledger/verdict.json"
GROUPS_WATCHED = "groups/watch.json"
_KEPT_LOOKS = 20


def build_report(ports: ClusterPorts, plan: Plan, *, dry_run: bool = False) -> dict[str, Any]:
    """Collect the run from its record and one last look at the cluster. Holds no credentials.

    Keys are stable (`format` counts their versions); times are epoch seconds, durations seconds.
    """
    events = tuple(event for event in ports.run.events() if "at" in event)  # without lines that a kill tore
    try:
        state: ClusterState | None = observe(ports)
        unanswered = ""
    except TransientError as error:
        state, unanswered = None, error.sentence
    gates = _gates(events)
    outcome, sentence = outcome_of(ports, plan, state, events, gates, dry_run=dry_run)
    began = float(events[0]["at"]) if events else ports.clock.now()
    ended = float(events[-1]["at"]) if events else began
    return {
        "format": FORMAT,
        "run_id": ports.run_id,
        "cluster": plan.cluster,
        "cluster_id": plan.cluster_id,
        "direction": plan.direction.value,
        "way": plan.way,
        "origin": str(plan.source),
        "target": str(plan.target),
        "plan_hash": plan.hash,
        "outcome": outcome.value,
        "sentence": sentence,
        "began_at": began,
        "ended_at": ended,
        "duration_s": round(ended - began, 3),
        "hops": [
            _release_step(
                release_step.key,
                str(release_step.from_release),
                str(release_step.to_release),
                release_step.reason,
                release_step.order,
            )
            for release_step in plan.release_steps
        ],
        "findings": [{**asdict(finding), "severity": finding.severity.value} for finding in plan.findings],
        "config_changes": [{**asdict(change), "release": str(change.release)} for change in plan.config_changes],
        "nodes": [_node(ports, node, state, events, gates) for node in ports.cluster.nodes],
        "gates": gates,
        "approvals": [asdict(approval) for approval in approvals(ports)],
        "features": _features(plan, state, events),
        "current_metadata_version": [_current(ports, node, state) for node in ports.cluster.nodes],
        "feature_support": _last(events, "feature-support"),
        "scan": ports.run.attachment(SCAN_VERDICT),
        "scan_tails": [event for event in events if event.get("kind") == "scan-tail"],
        "ledger": ports.run.attachment(LEDGER_VERDICT),
        "groups": ports.run.attachment(GROUPS_WATCHED),
        "snapshot": _last(events, "snapshot"),
        "unanswered": [unanswered] if unanswered else list(state.unanswered if state else ()),
    }


def _release_step(key: str, source: str, target: str, reason: str, order: Iterable[Any]) -> dict[str, Any]:
    return {
        "key": key,
        "from": source,
        "to": target,
        "reason": reason,
        "order": [asdict(node_step) for node_step in order],
    }


def _gates(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every gate in its order, with the looks that were recorded: the first ones, every change, the last."""
    gates: dict[tuple[str, str, str], dict[str, Any]] = {}
    for event in events:
        kind = event.get("kind")
        if kind == "gate":
            details = dict(event.get("details") or {})
            key = (details.pop("kind", ""), details.pop("hop", ""), details.pop("node_id", ""))
            gate = gates.setdefault(key, _new_gate(event["gate"], *key))
            look = {
                "at": float(event["at"]),
                "holds": all(condition["holds"] for condition in event["conditions"]),
                "conditions": [dict(condition) for condition in event["conditions"]],
                "details": details,
            }
            gate["looks"].append(look)
            if not (look["holds"] and gate["state"] == "held"):  # looked at once more right before the act
                gate["state"] = "holds" if look["holds"] else "waits"
        elif kind in {"gate-held", "gate-failed"}:
            key = (event["kind_of_gate"], event["hop"] or "", "" if event["node_id"] is None else str(event["node_id"]))
            gate = gates.setdefault(key, _new_gate(event["gate"], *key))
            gate["state"], gate["message"] = kind.removeprefix("gate-"), event["message"]
            gate["ended_at"] = float(event["at"])
    for gate in gates.values():
        looks = gate["looks"]
        gate["looks_recorded"] = len(looks)
        gate["looks"] = (
            looks if len(looks) <= _KEPT_LOOKS else [*looks[: _KEPT_LOOKS // 2], *looks[-_KEPT_LOOKS // 2 :]]
        )
        if looks:
            gate["began_at"] = looks[0]["at"]
            gate["ended_at"] = max(gate["ended_at"] or 0.0, looks[-1]["at"])
            gate["waited_s"] = round(gate["ended_at"] - gate["began_at"], 3)
    return list(gates.values())


def _new_gate(name: str, kind: str, release_step: str, node_id: str) -> dict[str, Any]:
    return {
        "gate": name,
        "kind": kind,
        "hop": release_step or None,
        "node_id": int(node_id) if node_id else None,
        "state": "waits",
        "message": "",
        "looks": [],
        "began_at": None,
        "ended_at": None,
        "waited_s": None,
    }


def _node(
    ports: ClusterPorts,
    node: NodeSpec,
    state: ClusterState | None,
    events: Sequence[Mapping[str, Any]],
    gates: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    began, ended = (float(events[0]["at"]), float(events[-1]["at"])) if events else (0.0, 0.0)
    starts = [start for start in ports.runtime.starts(node) if began <= start.started_at <= ended]
    seen = state.nodes.get(node.node_id) if state else None
    return {
        "node_id": node.node_id,
        "name": node.name,
        "roles": sorted(role.value for role in node.roles),
        "release": str(seen.release) if seen and seen.release else None,
        "starts": [{"release": str(s.release), "started_at": s.started_at, "pid": s.pid} for s in starts],
        "starts_per_release": dict(Counter(str(start.release) for start in starts)),
        "turns": _node_steps(node.node_id, events, gates),
    }


def _node_steps(
    node_id: int, events: Sequence[Mapping[str, Any]], gates: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What a node's turn in each release step took: from the stop (or the start, where it was down) to its gate's
    end."""
    acts: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for event in events:
        if event.get("kind") in {"stopping", "stopped", "started"} and event["node_id"] == node_id:
            acts[event["hop"]].setdefault(f"{event['kind']}_at", float(event["at"]))
            if "seconds" in event:
                acts[event["hop"]][f"{'stop' if event['kind'] == 'stopped' else 'start'}_s"] = event["seconds"]
    node_steps = []
    for release_step, seen in acts.items():
        after = next(
            (
                g
                for g in gates
                if g["kind"] == GateKind.AFTER_START and g["hop"] == release_step and g["node_id"] == node_id
            ),
            None,
        )
        began = seen.get("stopping_at", seen.get("started_at"))
        ended = after["ended_at"] if after and after["state"] in {"held", "holds"} else None
        node_steps.append(
            {
                "hop": release_step,
                "began_at": began,
                "started_at": seen.get("started_at"),
                "ended_at": ended,
                "stop_s": seen.get("stop_s"),
                "start_s": seen.get("start_s"),
                "gate_s": after["waited_s"] if after else None,
                "total_s": round(ended - began, 3) if ended is not None and began is not None else None,
            }
        )
    return node_steps


def _features(plan: Plan, state: ClusterState | None, events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = next((event for event in events if event.get("kind") == "observed"), None)
    return {
        "before": dict(first["finalized"]) if first else {},
        "after": dict(state.finalized) if state else {},
        "planned": [{**asdict(change), "undo": change.undo.value} for change in plan.feature_changes],
        "answers": [
            {"at": event["at"], "levels": event["levels"], "answers": event["answers"]}
            for event in events
            if event.get("kind") == "validated"
        ],
    }


def _current(ports: ClusterPorts, node: NodeSpec, state: ClusterState | None) -> dict[str, Any]:
    seen = state.nodes.get(node.node_id) if state else None
    metrics = seen.metrics if seen else None
    told = {
        "node_id": node.node_id,
        "prometheus": metrics.current_metadata_version_prometheus if metrics else None,
        "jolokia": metrics.current_metadata_version_jolokia if metrics else None,
        "api_versions": seen.features.finalized.get(METADATA_VERSION) if seen and seen.features else None,
    }
    return {**told, "source": _source(ports, seen)}


def _source(ports: ClusterPorts, seen: NodeState | None) -> str:
    if seen is None or (seen.metrics is None and seen.features is None):
        return "no response"
    release = seen.release
    if release is None:
        return "ApiVersions (the metrics do not tell the release)"
    if release in ports.catalogue and not ports.catalogue.get(release).has_current_metadata_version_metric:
        return f"ApiVersions (release {release} has no CurrentMetadataVersion metric)"
    return "CurrentMetadataVersion (Prometheus and Jolokia)"


def _last(events: Sequence[Mapping[str, Any]], kind: str) -> dict[str, Any] | None:
    found = [event for event in events if event.get("kind") == kind]
    return dict(found[-1]) if found else None
