"""The rehearsal of a plan: on a copy of the cluster, before an approver sees the plan."""

from __future__ import annotations

from collections.abc import Callable

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.model.plan import Direction, Plan
from kafka_rollout.planning.release_path import (
    plan_release_steps,
    source_release,
    with_configured_classes,
)
from kafka_rollout.planning.request import Request
from kafka_rollout.rehearsal.job import GATE_TIMEOUT_S, order_rehearsal
from kafka_rollout.rehearsal.result import REHEARSAL_CHECK, Outcome, RehearsalResult, passed
from kafka_rollout.releases.facts import Catalogue, Release
from kafka_rollout.run.step_events import Rehearsed
from kafka_rollout.steps.common.cluster_ports import ClusterPorts, observe
from kafka_rollout.steps.planning.coordinator_logs import replace_findings
from kafka_rollout.steps.planning.hosts import node_configs
from kafka_rollout.steps.step import SkippedStepError

REHEARSAL_RESULT = "rehearsal/result.json"


def rehearse_plan(
    ports: ClusterPorts, plan: Plan, request: Request, on_progress: Callable[[str], None]
) -> RehearsalResult:
    """Rehearse the plan; add the findings to it and the result to the run.

    Raises SkippedStepError where no rehearsal is possible, with the reason.
    """
    releases = (plan.source, *(release_step.to_release for release_step in plan.release_steps))
    job = order_rehearsal(request, plan.cluster, plan.direction, releases, gate_timeout_s=GATE_TIMEOUT_S)
    try:
        result = ports.rehearsals.rehearse(job, on_progress)
    except (RefusedError, UserError) as error:
        raise SkippedStepError(error.sentence) from error
    ports.run.attach(REHEARSAL_RESULT, result)
    ports.run.record(
        Rehearsed(
            outcome=result.outcome,
            sentence=result.sentence,
            seconds=result.seconds,
            node_seconds=result.node_seconds,
            findings=tuple(str(finding) for finding in result.findings),
        )
    )
    shown = (passed(result), *result.findings) if result.outcome is Outcome.PASSED else result.findings
    replace_findings(ports, REHEARSAL_CHECK.ran(shown))
    return result


def planned_releases(ports: ClusterPorts, target: Release) -> tuple[Direction, tuple[Release, ...]]:
    """Return the direction and the releases of all release steps, the source first.

    Raises UserError if the nodes run different releases: a copy starts on one release.
    """
    state = observe(ports)
    source = source_release(ports.cluster, state)
    if len(state.releases) > 1:
        raise UserError(
            f"The nodes of {ports.cluster.name} run different releases: "
            f"{', '.join(str(release) for release in sorted(state.releases))}.",
            remedy="Finish the change that was interrupted. A copy starts on one release.",
        )
    catalogue = with_configured_classes(ports.catalogue, ports.cluster, node_configs(ports))
    return releases_between(catalogue, source, target)


def releases_between(catalogue: Catalogue, source: Release, target: Release) -> tuple[Direction, tuple[Release, ...]]:
    """Return the direction and the releases of all release steps, the source first."""
    down = target < source
    steps = plan_release_steps(catalogue, source, target, down=down)
    return Direction.DOWNGRADE if down else Direction.UPGRADE, (source, *(to for _, to, _ in steps))
