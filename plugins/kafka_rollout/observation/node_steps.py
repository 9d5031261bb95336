"""Node steps: the release that a node really runs, its state in the plan, and what a broker has loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from functools import partial

from kafka_rollout.base.errors import NotObservableError, RefusedError, TransientError
from kafka_rollout.base.internal_topics import SHARE_TOPIC
from kafka_rollout.base.time_limits import STOP_UNDER_WAY_S
from kafka_rollout.gates.coordinators import CONDITION, CoordinatorAnswers, coordinators_condition, led_partitions
from kafka_rollout.gates.counters import Unchecked
from kafka_rollout.gates.gate import BeforeStop, GateCondition
from kafka_rollout.gates.node import state_before_stop
from kafka_rollout.gates.remote_storage import check_remote_requests, check_tiered_storage, uses_tiered_storage
from kafka_rollout.gates.written_lines import written_lines_condition
from kafka_rollout.model.node_log import SeenLog
from kafka_rollout.model.plan import Lowering, Plan, ReleaseStep, changed_lines, changes_of_overrides
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ReadPorts
from kafka_rollout.observation.node_registrations import registration_is_complete
from kafka_rollout.observation.run import NodeRun, ReadRun, Run
from kafka_rollout.releases.facts import Release, starts_share_coordinator
from kafka_rollout.run.events import Event
from kafka_rollout.run.projections.nodes import is_in_node_step, last_act_on_node
from kafka_rollout.run.step_events import InstalledWithError, PreparingStop, Started, Stopped, Stopping, StopPrepared


def install_release(at: NodeRun, release: Release) -> None:
    """Install a release on a stopped node, with its lines of the plan, and with what the installation had before this
    run stopped the node.

    Observed before the stop, and not at the installation: a killed one can have lost it already.
    """
    before = _before_stops(at)
    held = max(before, key=lambda one: one.at).installation.held if before else ()
    changes = at.plan.config_changes_of(at.node_id, release)
    warning = at.ports.runtime.install(led_back(at, release), release, changes, held=held)
    if warning:
        at.history.record(InstalledWithError(node_id=at.node_id, release_step=at.key, sentence=warning))


def refuse_other_release(node: NodeSpec, release: Release, installed: Release | None) -> None:
    """Raise RefusedError if a start that installs nothing would not be on the release: each such start asks this.

    `installed`: what the link or the package of the node has, as it was just read.
    """
    if installed != release:
        raise RefusedError(
            f"The next start of node {node.node_id} would be on {installed or 'an unknown release'}, and this step "
            f"starts it on {release}.",
            remedy=f"Switch its link, or install its package, of {release} again, or start an upgrade or a downgrade "
            "that changes the release.",
        )


def led_back(at: NodeRun, release: Release) -> NodeSpec:
    """Return the node with the folder in which this run found a release: to it a rollback leads the link back."""
    links = [one.installation.link for one in _before_stops(at) if one.release == str(release)]
    service = at.node.service
    found = service.led_to(release, links[0]) if service is not None and links else None
    return at.node if found is None else replace(at.node, service=found)


def _before_stops(at: NodeRun) -> list[BeforeStop]:
    """Return the states before the stops of the node in a release step and in its reverse."""
    keys = (at.key, at.release_step.reversed().key)
    return [one for one in (at.history.load_before_stop(key, at.node_id) for key in keys) if one is not None]


class NodeStepState(StrEnum):
    """Observed state of a node in a release step."""

    NEEDED = "needed"  # runs the source release of the release step, or has no process
    RUNS_TARGET = "runs-target"  # runs the target release, in a restart as a new process: only its gate remains
    # Runs the release of a later release step, or need not register again: nothing remains, not even a gate.
    PAST = "past"


def node_step_state(at: NodeRun) -> NodeStepState:
    """Observe one node. Raises RefusedError for a release outside the release step, TransientError if it is not
    reported.
    """
    release = running_release(at.ports, at.node)
    if at.release_step.restarts and release == at.release_step.to_release:
        before, process = at.history.load_before_stop(at.key, at.node_id), at.ports.runtime.process(at.node)
        # The process of a stop that is under way can be gone since the reading of its release.
        is_new = before is not None and process.pid is not None and not before.is_of(process)
        if is_new:
            return NodeStepState.RUNS_TARGET
        again = at.plan.registration_step if before is None else None
        if again is not None and again.key == at.key and registration_is_complete(NodeRun(at.run, again, at.node)):
            return NodeStepState.PAST
        return NodeStepState.NEEDED
    if release in (None, at.release_step.to_release):
        later_keys = [later.key for later in later_release_steps(at.plan, at.release_step)[1:]]
        if any(at.history.load_before_stop(key, at.node_id) is not None for key in later_keys):
            return NodeStepState.PAST  # its stop in a later release step is under way or done
    if release is None or release == at.release_step.from_release:
        return NodeStepState.NEEDED
    if release == at.release_step.to_release:
        return NodeStepState.RUNS_TARGET
    if any(release == later.to_release for later in later_release_steps(at.plan, at.release_step)[1:]):
        return NodeStepState.PAST
    raise RefusedError(
        f"Node {at.node_id} runs {release}, but this release step goes from {at.release_step.from_release} to "
        f"{at.release_step.to_release}.",
        remedy="Finish the earlier release step first, or start a new run.",
    )


def running_release(ports: ReadPorts, node: NodeSpec) -> Release | None:
    """Return the release of the node's process; None if there is no process, or one of an unfinished installation.

    Source: the jars that the process has loaded, or app-info; for a process that is too new to respond, the runtime's
    record of its start.
    """
    process = ports.runtime.process(node)
    if process.pid is None or process.is_unfinished:
        return None
    if process.running is not None:
        return process.running
    try:
        reported = ports.metrics.read(node).release
    except TransientError:
        reported = None
    if reported is not None:
        return reported
    starts = ports.runtime.starts(node)
    if starts and starts[-1].pid == process.pid:
        return starts[-1].release
    raise TransientError(
        f"Node {node.node_id} runs (process {process.pid}) but does not report its release (metric app-info).",
        remedy="Check its metrics agents, then call again.",
    )


def last_started_release(ports: ReadPorts, node: NodeSpec) -> Release | None:
    """Return the release of the node's last start; None if the runtime never started it.

    The runtime has no record of a start by an operator or by systemd: such a process counts by its own release.
    """
    starts, process = ports.runtime.starts(node), ports.runtime.process(node)
    if process.pid is not None and (not starts or starts[-1].pid != process.pid):
        return process.running or process.installed
    return starts[-1].release if starts else None


def run_commands_before_stop(at: NodeRun) -> bool:
    """Run the operator's commands before a stop; return whether there are any. A repeated call runs them again."""
    commands = at.node.commands_before_stop
    if not commands:
        return False
    began = at.ports.clock.monotonic()
    at_most_s = at.node.commands_before_stop_s
    at.history.record(
        PreparingStop(node_id=at.node_id, release_step=at.key, commands=len(commands), at_most_s=at_most_s)
    )
    at.ports.runtime.prepare_stop(at.node)
    took = round(at.ports.clock.monotonic() - began, 3)
    at.history.record(StopPrepared(node_id=at.node_id, release_step=at.key, seconds=took))
    return True


def stop_node(at: NodeRun, *, deadline_s: float, force: bool = False) -> None:
    """Stop the node. Request and result are recorded: a resumed call relies on the request.

    `force`: kill the process at the deadline. Such a node recovers its log at the next start, which takes longer.
    """
    began = at.ports.clock.monotonic()
    at.history.record(Stopping(node_id=at.node_id, release_step=at.key))
    at.ports.runtime.stop(at.node, deadline_s=deadline_s, force=force)
    took = at.ports.clock.monotonic() - began
    forced = force and took >= deadline_s
    at.history.record(Stopped(node_id=at.node_id, release_step=at.key, seconds=round(took, 3), forced=forced))


def record_start(at: NodeRun, *, seconds: float = 0.0) -> None:
    """Record that the node was started on the target of the release step."""
    at.history.record(
        Started(
            node_id=at.node_id,
            release_step=at.key,
            release=at.release_step.to_release,
            pid=at.ports.runtime.process(at.node).pid,
            seconds=round(seconds, 3),
        )
    )


def previous_release(run: ReadRun) -> Release:
    """Return the release from which the cluster came, the target of a rollback.

    If all nodes already run the target (features are finalized later, by default), source and target of the plan are
    equal. Then the runtime's record of starts contains the previous release.
    """
    if run.plan.changes_release:
        return run.plan.source
    found: Counter[Release] = Counter()
    for node in run.cluster.nodes:
        others = [start.release for start in run.ports.runtime.starts(node) if start.release != run.plan.target]
        found.update([one for one in others if one in run.ports.catalogue][-1:])
    # A record has its starts in their order. Their times are those of a clock, which can have been wrong once.
    return max(found, key=lambda one: (found[one], one), default=run.plan.source)


def offline_release_step(plan: Plan) -> ReleaseStep:
    """Return the only release step of an offline plan. Raises RefusedError for another plan."""
    if plan.lowering is not Lowering.OFFLINE or len(plan.release_steps) != 1:
        raise RefusedError(
            f"The plan of cluster {plan.cluster} is not an offline downgrade.",
            remedy="Start a downgrade with the action offline where Kafka refuses.",
        )
    return plan.release_steps[0]


def has_begun(run: Run, release_step: ReleaseStep, node_ids: Iterable[int], events: Sequence[Event]) -> bool:
    """Return whether one of the nodes is in its node step, by the history and by its process.

    A stop that only the history shows did not happen: the node runs as before. It excuses nothing, because a user who
    can write the history could claim it.
    """
    for node_id in node_ids:
        if is_in_node_step(events, release_step.key, (node_id,)):
            node = run.cluster.node(node_id)
            is_down = running_release(run.ports, node) is None
            if is_down or node_step_state(NodeRun(run, release_step, node)) is NodeStepState.RUNS_TARGET:
                return True
    return False


def stop_is_under_way(at: NodeRun) -> bool:
    """Return whether the process for which the run requested the stop still runs, and is going down.

    A node that was started again since has another process, and its next stop is a new one. A runtime that cannot see
    whether a process goes down shows it by the time since the request.
    """
    before, last = (
        at.history.load_before_stop(at.key, at.node_id),
        last_act_on_node(at.history.events(), at.key, at.node_id),
    )
    if before is None or not isinstance(last, Stopping):
        return False
    process = at.ports.runtime.process(at.node)
    if process.pid is None or not before.is_of(process):
        return False
    if process.is_stopping is not None:
        return process.is_stopping
    return at.ports.clock.now() - last.at < STOP_UNDER_WAY_S


def is_rollback_step(plan: Plan, release_step: ReleaseStep) -> bool:
    """Return whether a release step is the reverse of one of the plan's."""
    return release_step.key not in {planned.key for planned in plan.release_steps}


def rollback_release_steps(plan: Plan) -> tuple[ReleaseStep, ...]:
    """Return the release steps of the rollback in their order: the last release step first, each reversed.

    A restart on the same release is not rolled back.
    """
    return tuple(one.reversed() for one in reversed(plan.release_steps) if not one.restarts)


def later_release_steps(plan: Plan, release_step: ReleaseStep) -> tuple[ReleaseStep, ...]:
    """Return the release step and those after it, in its own direction."""
    way = rollback_release_steps(plan) if is_rollback_step(plan, release_step) else plan.release_steps
    keys = [one.key for one in way]
    return way[keys.index(release_step.key) :]


def observe_before_stop(at: NodeRun, state: ClusterState) -> BeforeStop:
    """Return the state to store before the node stops. `state`: observed now."""
    return state_before_stop(
        state,
        at.node_id,
        at.release_step.from_release,
        at.ports.clock.now(),
        _coordinated_by(at.ports, state, at.node),
        installation=at.ports.runtime.installation(at.node),
    )


def _coordinated_by(ports: ReadPorts, state: ClusterState, node: NodeSpec) -> CoordinatorAnswers | None:
    """Return what a node coordinates before its stop; None for a node without a broker, or one that does not respond.

    Raises RefusedError for a missing right: the gate after the start needs it too.
    """
    if not node.is_broker:
        return None
    try:
        return ports.admin.coordinators(node, state.partitions)
    except TransientError:
        return None


def check_coordinators(
    ports: ReadPorts,
    state: ClusterState,
    node: NodeSpec,
    before: BeforeStop | None,
    *,
    log: SeenLog | None,
    accepted: Mapping[str, str] | None = None,
    needed: Collection[str] | None = None,
) -> GateCondition:
    """Check a broker whose leaderships are back.

    `state`: with the metrics of the node. `log`: of its process. `accepted`: doubt → who accepted it. `needed`: as in
    coordinators_condition.
    """
    try:
        answers = ports.admin.coordinators(node, state.partitions)
    except TransientError as error:
        return GateCondition(name=CONDITION, is_met=False, evidence=error.sentence)
    observed = state.nodes.get(node.node_id)
    counters = observed.metrics.counters if observed and observed.metrics else {}
    return coordinators_condition(
        state.partitions,
        node.node_id,
        answers,
        before,
        log,
        counters=counters,
        accepted=accepted,
        brokers=_brokers(ports),
        shares=_has_share_coordinator(ports, state, node),
        needed=needed,
    )


def _has_share_coordinator(ports: ReadPorts, state: ClusterState, node: NodeSpec) -> bool:
    """Return whether the process can have one. The file is read only for a preview: of a host, by SSH."""
    if not any(partition.topic == SHARE_TOPIC for partition in led_partitions(state.partitions, node.node_id)):
        return True
    observed = state.nodes.get(node.node_id)
    release = None if observed is None else observed.release
    if release is None or release not in ports.catalogue:
        return True
    try:
        return starts_share_coordinator(ports.catalogue.get(release), partial(ports.runtime.config, node))
    except NotObservableError:
        return True


def check_written_lines(
    at: NodeRun, state: ClusterState, before: BeforeStop | None, read_config: Callable[[], Mapping[str, str]]
) -> tuple[GateCondition, ...]:
    """Check that the node uses what the run has written into its file; empty if the run has written nothing.

    `state`: with the node. `before`: None if the run has not stopped the node, so that it has changed no file. Its
    restarts on one release keep the lines of this release. `read_config`: reads the configuration of the node.
    """
    lines: dict[str, str | None] = {}
    if before is not None and at.plan.changes_release:
        release, path = at.release_step.to_release, at.plan.path
        # A line stays, also one that the file had already. Back on the source, there are only the values of before.
        for one in path[1 : path.index(release) + 1]:
            wanted = changes_of_overrides(at.run.cluster, at.node, [one])
            lines |= changed_lines(at.node, one, (*wanted, *at.plan.config_changes))
        if release == path[0]:
            lines = changed_lines(at.node, release, at.plan.config_changes)
    if not lines:
        return ()
    file, in_use = read_config(), None
    if state.nodes[at.node_id].features is not None:
        with suppress(NotObservableError):
            in_use = at.ports.admin.settings_in_use(at.node, lines.keys())
    return (written_lines_condition(at.node, lines, file, in_use),)


def _brokers(ports: ReadPorts) -> tuple[int, ...]:
    return tuple(sorted(node.node_id for node in ports.cluster.brokers))


def check_remote_storage(
    ports: ReadPorts,
    state: ClusterState,
    node: NodeSpec,
    release: Release,
    *,
    config: Mapping[str, str],
    unchecked: Unchecked,
    log: SeenLog | None,
    accepted: Mapping[str, str] | None = None,
) -> tuple[GateCondition, ...]:
    """Check a broker of `release` with tiered storage; empty for a broker without it.

    `state`: with the metrics of the node. `config`: of the node. `unchecked`: as in Plan. `log`, `accepted`: as in
    check_coordinators.
    """
    if not uses_tiered_storage(config):
        return ()
    initialised = check_tiered_storage(node, config, release, log, accepted, brokers=_brokers(ports))
    requests = check_remote_requests(node, config, release, state, unchecked)
    return tuple(condition for condition in (initialised, requests) if condition is not None)
