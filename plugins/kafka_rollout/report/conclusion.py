"""The conclusion of a run's report: which gate failed, what was proved, and what was not.

Pure: it reads the other values of the report.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka_rollout.base.wording import count, few
from kafka_rollout.gates.check import GateKind
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.report.run_report import DowngradeReport, FailedGate, Outcome, RunReport

UNFINISHED = frozenset({Outcome.STOPPED, Outcome.ROLLED_BACK})


def find_failed_gate(report: RunReport) -> FailedGate | None:
    """Return the gate at which the run stopped, or because of which it was rolled back; None for another outcome."""
    if report.outcome not in UNFINISHED:
        return None
    open_gates = [gate for gate in report.gates if not gate.is_passed]
    if not open_gates:
        return None
    failed = max(open_gates, key=lambda gate: gate.ended_at or 0.0)
    newest = failed.checks[-1] if failed.checks else None
    conditions = () if newest is None else newest.conditions
    return FailedGate(
        gate=failed.gate,
        kind=failed.kind,
        release_step=failed.release_step,
        node_id=failed.node_id,
        began_at=failed.began_at,
        ended_at=failed.ended_at,
        message=failed.message,
        unmet=tuple(one for one in conditions if not one.is_met),
        met=sum(one.is_met for one in conditions),
    )


def list_proofs(report: RunReport) -> tuple[str, ...]:
    """Return a sentence for each fact that the run proved, with its evidence in numbers."""
    return () if report.outcome in {Outcome.DRY_RUN, Outcome.REFUSED} else tuple(_proofs(report))


def list_gaps(report: RunReport) -> tuple[str, ...]:
    """Return a sentence for each fact that the run did not prove, because it was not observed."""
    return () if report.outcome in {Outcome.DRY_RUN, Outcome.REFUSED} else tuple(_gaps(report))


def _proofs(report: RunReport) -> Iterator[str]:
    nodes = report.nodes
    final = report.source if report.outcome is Outcome.ROLLED_BACK else report.target
    if nodes and all(node.release == final for node in nodes):
        restarted = sum(bool(node.starts) for node in nodes)
        yield f"All {count(len(nodes), 'node')} run Kafka {final}; {restarted} of them restarted in this run."
    after_start = [gate for gate in report.gates if gate.kind is GateKind.AFTER_START]
    if after_start and all(gate.is_passed for gate in after_start):
        checks = count(sum(gate.checks_recorded for gate in after_start), "recorded check")
        yield f"After each restart the node passed its gate: {count(len(after_start), 'gate')}, {checks}."
    reached = [change for change in report.features.planned if report.features.after.get(change.feature, 0)]
    if levels := ", ".join(
        f"{one.feature} {one.target}" for one in reached if report.features.after[one.feature] == one.target
    ):
        yield f"These levels are finalized: {levels}."
    reporting = [seen for seen in report.current_metadata_version if _levels(seen)]
    level = report.features.after.get(METADATA_VERSION)
    if reporting and len(reporting) == len(nodes) and all(_levels(seen) == {level} for seen in reporting):
        yield f"Every node reports metadata.version {level} itself."
    if report.snapshot is not None and report.snapshot.proved:
        loaded = report.snapshot.summary
        yield (
            f"The classes of Kafka {loaded.release} load the metadata snapshot of node {report.snapshot.node_id} "
            f"(end offset {report.snapshot.end_offset}) with the planned levels: {loaded.topics} topics, "
            f"{loaded.partitions} partitions."
        )
    if report.traffic is not None and report.traffic.get("ok"):
        yield (
            f"Test traffic ran through every restart: {report.traffic['acknowledged']:,} records were acknowledged, "
            "and none was lost."
        )
    if report.state_comparisons and not any(one.get("digest") for one in report.state_comparisons):
        yield "Topics, configuration, ACLs and groups are as before the run, except for the differences of the plan."
    inventory = report.inventory if isinstance(report, DowngradeReport) else None
    if inventory is not None and all(one["foretold"] for one in inventory["differences"]):
        yield "The contents of the cluster are as before the run, except for the differences of the plan."
    if report.scan_tails and not any(tail.findings for tail in report.scan_tails):
        offsets = sum(tail.offsets for tail in report.scan_tails)
        yield f"The older release loads what was written to the coordinator logs since the scan ({offsets:,} offsets)."


def _gaps(report: RunReport) -> Iterator[str]:
    if silent := [f"node {node.node_id}" for node in report.nodes if node.release is None]:
        yield f"The release of {few(silent)} is unknown: there was no response."
    if report.traffic is None:
        yield "No test traffic ran: whether clients lost records was not checked."
    elif not report.traffic.get("ok"):
        yield "The check of the test traffic did not pass."
    if (
        report.release_steps
        and not report.state_comparisons
        and not (isinstance(report, DowngradeReport) and report.inventory)
    ):
        yield "The state of the cluster was not compared with its state before the run."
    for sentence in report.unanswered:
        yield f"A query failed: {sentence}"


def _levels(seen: object) -> set[int]:
    values = (getattr(seen, name) for name in ("prometheus", "jolokia", "api_versions"))
    return {value for value in values if value is not None}
