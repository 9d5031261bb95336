"""Metadata errors that the plan expects of a broker, and the log of its process, which must show each of them.

The gates and the plans of levels read them here: a plan that restarts no node raises levels while the counters keep
their values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kafka_rollout.base.findings import Checked
from kafka_rollout.control.approval import accepted_doubts
from kafka_rollout.gates.counters import (
    COUNTER_CHECK,
    ExpectedErrors,
    counter_findings,
    expected_broker_errors,
    expected_errors,
    metadata_doubts,
)
from kafka_rollout.gates.log_directories import expected_faults
from kafka_rollout.model.counters import METADATA_APPLY_ERRORS
from kafka_rollout.model.node_log import SeenLog
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.node_logs import read_broker_log
from kafka_rollout.observation.run import Run
from kafka_rollout.releases.facts import Release


def expected_of(run: Run, release: Release, state: ClusterState, logs: Mapping[int, SeenLog]) -> ExpectedErrors:
    """Return what the plan expects of processes on `release`. `logs`: node id → the log of its process."""
    plan, catalogue = run.plan, run.ports.catalogue
    of_directories = expected_faults(plan.findings, plan.feature_changes, release, catalogue, state.finalized.reported)
    of_settings = expected_broker_errors(plan, release, run.cluster)
    return ExpectedErrors(
        settings=expected_errors(plan, release),
        of_nodes={
            node_id: of_directories.get(node_id, frozenset()) | of_settings.get(node_id, frozenset())
            for node_id in {**of_directories, **of_settings}
        },
        logs=logs,
        accepted=accepted_doubts(run),
    )


def read_logs(run: Run, release: Release, state: ClusterState, nodes: Iterable[NodeSpec]) -> dict[int, SeenLog]:
    """Return the logs of those of `nodes` of which the plan expects an error, and whose log can be read."""
    expected = expected_of(run, release, state, {})
    concerned = [node for node in nodes if expected.of(node.node_id)]
    return {node.node_id: log for node in concerned if (log := read_broker_log(run.ports, node)) is not None}


def check_counters(run: Run, state: ClusterState, *, tiered: Collection[int] = ()) -> Checked:
    """Return the check of the counters for the plan of the run, whose findings say what is expected.

    `tiered`: as in `find_unchecked_counters`.
    """
    restarted = {one.node_id for step in run.plan.release_steps for one in step.order}
    keeps = [n for n in run.cluster.nodes if n.node_id not in restarted] if run.plan.feature_changes else []
    erring = [node for node in keeps if count_apply_errors(state, node)]
    expected = expected_of(run, run.plan.target, state, read_logs(run, run.plan.target, state, erring))
    ids = [node.node_id for node in keeps]
    return COUNTER_CHECK.ran(
        counter_findings(run.cluster, state, tiered=tiered, keeps=ids, expected=expected),
        unknown=metadata_doubts(keeps, state, expected),
    )


def count_apply_errors(state: ClusterState, node: NodeSpec) -> float:
    """Return metadata-apply-error-count of a broker; 0 if it is unknown."""
    seen = state.nodes.get(node.node_id)
    return seen.metrics.counters.get(METADATA_APPLY_ERRORS, 0) if seen and seen.metrics else 0
