"""The decision to stop a node, with what must be done and recorded before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from kafka_rollout.base.errors import RefusedError, RolloutError, TransientError
from kafka_rollout.base.findings import Checked, Finding, Severity, UnknownValue, all_findings, unknown_by
from kafka_rollout.base.time_limits import SAFE_AGAIN_WITHIN_S
from kafka_rollout.control.holds import refuse_held, refuse_unproved_pause, refuse_unsafe_stop
from kafka_rollout.coordinator_logs.findings import (
    find_unread_replicas,
    unread_logs_sentence,
    unread_replica_sentences,
    unread_replicas_error,
)
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.feature_updates.levels import pending_changes
from kafka_rollout.features.requests import range_findings
from kafka_rollout.gates.gate import Gate, GateCheck, GateKind
from kafka_rollout.model.configs import NodeConfigs
from kafka_rollout.model.plan import Lowering, ReleaseStep
from kafka_rollout.model.run_of import ROLLBACK, SIGNED
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import (
    ClusterPorts,
    observe_some,
    observe_without_groups,
    until,
)
from kafka_rollout.observation.node_steps import (
    is_rollback_step,
    led_back,
    observe_before_stop,
    run_commands_before_stop,
    stop_is_under_way,
)
from kafka_rollout.observation.planned_coordinators import planned_group_coordinator
from kafka_rollout.observation.run import NodeRun, ReadRun, Run
from kafka_rollout.planning.batches import split_batch
from kafka_rollout.planning.findings.downgrade_scans import lacking_settings, settings_findings
from kafka_rollout.planning.findings.pending import APPROVE
from kafka_rollout.planning.findings.releases import ClosingRecord, find_closing_records
from kafka_rollout.preparation.acl_meaning import unkept_acls
from kafka_rollout.preparation.changes_on_disk import unapproved_changes
from kafka_rollout.preparation.frozen_plan import refuse_new_blockers, refuse_new_in_logs, scan_before_roll
from kafka_rollout.preparation.lost_metadata import refuse_new_in_metadata, refuse_new_losses
from kafka_rollout.preparation.node_checks import (
    check_java,
    check_log_folders_again,
    check_rollback_on_host,
    file_of,
    readable_configs,
    recheck_agreement,
    recheck_dynamic_configs,
)
from kafka_rollout.preparation.replayed_metadata import unkept_metadata
from kafka_rollout.releases.facts import SHARE_VERSION, enables_share_groups
from kafka_rollout.roll.gate_checks import check_gate, check_stop_is_safe, check_stops_are_safe, observe_all
from kafka_rollout.roll.log_starts import note_moved_starts
from kafka_rollout.roll.metadata_logs import refuse_unreadable, starts_older_release
from kafka_rollout.roll.moved_coordinators import StopObservation
from kafka_rollout.run.events import RollbackClosed, RollbackUnread, events_of
from kafka_rollout.run.projections.approvals import find_unaccepted_of_rollback
from kafka_rollout.run.projections.nodes import (
    has_stopped_in_step,
    started_release_steps,
    stop_is_prepared,
    stop_is_unfinished,
)
from kafka_rollout.run.step_events import Stopping

ReadFiles = Callable[[], tuple[dict[int, Mapping[str, str]], tuple[UnknownValue, ...]]]
"""Returns the files of all nodes, as `readable_configs`: a stop, or the first checks of a batch, read them once."""
Shared = tuple[Callable[[], ClusterState], Callable[[], StopObservation], ReadFiles]
"""Observations that the nodes of a batch share: of the whole cluster for findings, what gates need, and the files."""


def files_once(run: ReadRun) -> ReadFiles:
    """Return what reads the configuration of all nodes at its first call."""
    return cache(partial(readable_configs, run.ports, run.cluster.nodes))


# What closes a rollback, or would be lost, is read again at the first stop after a pause of this length.
_CHECKED_S = 3600.0
_SCANNED = "scan/in-rollback.json"
_EARLIER_LINE = "No approval of a rollback covers it: write the earlier line into the file, then repeat the rollback."


def find_parts(run: Run, nodes: Sequence[NodeSpec]) -> tuple[tuple[tuple[int, ...], ...], str]:
    """Return the parts of a batch that can be stopped together with the placement and the ISRs of now, and the reason.

    The first part passes the gates of all its nodes, or every part is one node, whose gate waits.
    """
    alone = tuple((node.node_id,) for node in nodes)
    try:
        state = observe_some(run.ports, run.cluster.nodes, metrics=False)
        batches = split_batch([node.node_id for node in nodes], state.partitions, run.plan.accept_unavailable)
        first = [run.cluster.node(node_id) for node_id in batches[0].node_ids]
        checks = check_stops_are_safe(run, first, state)
    except TransientError as error:
        return alone, error.sentence
    if len(first) > 1 and (waits := [seen.waits_for for seen in checks if not seen.passes]):
        return alone, waits[0]
    return tuple(one.node_ids for one in batches), batches[0].ends


def prepare_stop(
    at: NodeRun,
    together: tuple[NodeSpec, ...] = (),
    *,
    has_begun: bool = False,
    read: Callable[[ReadFiles], None] | None = None,
    shared: Shared | None = None,
) -> bool:
    """Check findings and gate, record the node's state and run the operator's commands before a stop.

    Return whether it has commands. They can take an hour, so findings, gate and state are those after them. `together`:
    the other nodes that stop at the same time; `has_begun`: the commands of one of them have run. `read`: the one
    `refuse_unread` of a batch; `shared`: for its first checks. `check_batch` makes them again before a node stops.
    Raises TransientError if the gate does not pass; a repeated call runs the commands again.
    """
    if stop_is_under_way(at):
        # A killed call decided and recorded the stop, so the state of the half-stopped node does not count. The other
        # nodes must still be able to spare it.
        refuse_unsafe_node_stop(at, check_stop_is_safe(at.run, at.node, together))
        return False
    if not is_rollback_step(at.plan, at.release_step):
        refuse_unproved_pause(at.run)
    gate = Gate(
        kind=GateKind.BEFORE_STOP, release_step=at.release_step, node=at.node, together=together, has_begun=has_begun
    )
    read = read or partial(refuse_unread, at.run, at.release_step, (at.node,))
    _record_before_stop(at, _check_stop(at.run, gate, read, shared=shared))
    has_commands = run_commands_before_stop(at)
    if has_commands:
        gate = replace(gate, has_begun=bool(together), is_prepared=True)  # check_batch checks a batch again
        state = _check_stop(at.run, gate, read, within_s=SAFE_AGAIN_WITHIN_S)
        _record_before_stop(at, state)
    return has_commands


def refuse_unread(run: Run, release_step: ReleaseStep, nodes: Sequence[NodeSpec], files: ReadFiles) -> None:
    """Raise RefusedError if the logs or the metadata have now what closes a rollback or what no approver has read.

    Before the first stop of the release step, after a long pause, and before each controller. `nodes`: those that stop
    next; one reading serves all of them. `files`: of all nodes, for a rollback.
    """
    events, key = run.history.events(), release_step.key
    is_first = not has_stopped_in_step(events, key, since=run.ports.clock.now() - _CHECKED_S)
    # The active controller accepts metadata of the newer release until the last one of that release stops.
    reads_again = is_first or any(node.is_controller for node in nodes)
    if is_rollback_step(run.plan, release_step):
        refuse_closed(run, release_step, files, reads_again=reads_again)
        return
    if not has_stopped_in_step(events, key):  # later the upgraded brokers write records of the new release
        refuse_new_in_logs(run, release_step)
    if reads_again:
        refuse_new_losses(run)
    if is_first:
        refuse_new_in_metadata(run)
        note_moved_starts(run)


def _check_stop(
    run: Run,
    gate: Gate,
    read: Callable[[ReadFiles], None],
    *,
    within_s: float = 0.0,
    shared: Shared | None = None,
) -> ClusterState:
    """Return the state in which the node can be stopped now; raise if it cannot. `within_s`: seconds in which the gate
    must pass; `read`, `shared`: as in `prepare_stop`."""
    release_step, node = gate.subject
    whole, observed, files = shared or (None, None, files_once(run))
    at, is_rollback = NodeRun(run, release_step, node), is_rollback_step(run.plan, release_step)
    if is_rollback:
        read(files)
        _refuse_disagreement(at, files)
    else:
        refuse_new_blockers(run, (release_step, node), state=whole() if whole else None)
        refuse_unready(at)
        read(files)
    # A rollback must not wait for the package of the release that it leaves.
    back = None if is_rollback else release_step.from_release
    found = led_back(at, release_step.to_release)
    if run.ports.runtime.bring(found, release_step.to_release, back=back):
        # What a start reads there was expected before, and is seen now.
        if is_rollback:
            _refuse_disagreement(at, files)
        else:
            refuse_new_blockers(run, (release_step, node))
    given: list[StopObservation] = []
    began = run.ports.clock.now()  # a value from outside of an earlier gate does not count

    def observe_again() -> StopObservation:
        given.append(observed() if observed and not given else StopObservation(observe_all(run.ports)))
        return given[-1]

    seen = until(
        run.ports.clock,
        lambda: check_gate(run, gate, observe_again, not_before=began),
        lambda seen: seen.passes or seen.is_held,
        for_s=within_s,
    )
    refuse_unsafe_node_stop(NodeRun(run, release_step, node), seen)
    return (given[-1] if given else observe_again()).state


def check_batch(
    run: Run,
    release_step: ReleaseStep,
    nodes: Sequence[NodeSpec],
    stopping: Sequence[NodeSpec],
    *,
    has_begun: bool = False,
) -> None:
    """Check right before the stops that the nodes of a batch can be stopped together, and record the states of now.

    The first checks of its nodes can be many minutes old: each brings a release to its host. `stopping`: the nodes that
    run; `has_begun`: commands of a node have run, which can take hours. Raises RefusedError for a new blocker,
    TransientError if a stop is not safe, HeldError if something holds it.
    """
    prepared = [node for node in stopping if not stop_is_under_way(NodeRun(run, release_step, node))]
    if prepared and not is_rollback_step(run.plan, release_step):
        refuse_new_blockers(run)
    if prepared and has_begun:
        refuse_unread(run, release_step, prepared, files_once(run))
    state = observe_all(run.ports)
    for node, seen in zip(nodes, check_stops_are_safe(run, nodes, state), strict=True):
        refuse_unsafe_node_stop(NodeRun(run, release_step, node), seen)
    if prepared:
        gate = Gate(kind=GateKind.BEFORE_STOP, release_step=release_step, node=prepared[0])
        refuse_held(run, gate, "The stop of this batch", is_prepared=True)
    for node in prepared:
        _record_before_stop(NodeRun(run, release_step, node), state)


def refuse_unsafe_node_stop(at: NodeRun, seen: GateCheck) -> None:
    """Raise TransientError or HeldError, as `refuse_unsafe_stop`, unless the gate before its stop passes."""
    gate = Gate(kind=GateKind.BEFORE_STOP, release_step=at.release_step, node=at.node)
    refuse_unsafe_stop(at.ports, gate, seen, f"Node {at.node_id} cannot be stopped safely")


def _record_before_stop(at: NodeRun, state: ClusterState) -> None:
    seen = observe_before_stop(at, state)
    known, events = at.history.load_before_stop(at.key, at.node_id), at.history.events()
    # What an earlier request of the stop recorded counts too: the node may have left its ISRs since.
    if known is not None and any(one(events, at.key, at.node_id) for one in (stop_is_prepared, stop_is_unfinished)):
        seen = seen.joined(known)
    at.history.save_before_stop(at.key, seen, replace=True)


def refuse_closed(run: Run, release_step: ReleaseStep, files: ReadFiles, *, reads_again: bool) -> None:
    """Raise RefusedError if the older release cannot run the cluster, or would lose metadata.

    `files`: of all nodes; read only where they are needed.

    `reads_again`: before the first stop of the release step, after a long pause and before each controller. Then
    settings are read and validated. The coordinator logs are read before each stop, if a release that this run started
    writes records that the older release cannot load: the brokers that still run it can write one at any time.
    """
    levels = range_findings(run.ports.catalogue, observe_without_groups(run.ports), release_step.to_release)
    if not levels.ok:
        raise RefusedError(
            f"{release_step.to_release} can no longer run this cluster: "
            f"{'; '.join(finding.sentence for finding in levels.blockers)}",
            remedy=" ".join(dict.fromkeys(finding.remedy for finding in levels.blockers)),
        )
    if reads_again:
        with run.ports.classes.keep_processes():
            _refuse_unkept(run, release_step, files)
    if closing := _closing(run, release_step, files):
        _refuse_unloadable(run, release_step, closing)


def _refuse_unkept(run: Run, release_step: ReleaseStep, read_files: ReadFiles) -> None:
    """Refuse what the older release would not load, or would lose, as it is now."""
    _refuse_settings(run.ports, release_step)
    files, unread = read_files()
    unkept = [compare() for compare in _compare_metadata(run, release_step, files)]
    _refuse_found(run.ports, release_step, all_findings(unkept))
    _record_unread(run, release_step, _sentences((*unread, *(what for one in unkept for what in one.unknown))))
    java = check_java(run.ports, release_step.to_release, files)
    configs = recheck_dynamic_configs(run, release_step.to_release, files=files, state=None)
    _refuse_found(run.ports, release_step, [found for found in (*java, *configs) if found.severity is Severity.BLOCKER])


def _refuse_disagreement(at: NodeRun, read_files: ReadFiles) -> None:
    """Raise RefusedError if a changed file lets the node start in another quorum, delete data, or not start at all."""
    state = observe_without_groups(at.ports)
    known, unread = read_files()
    # The others can be lost, but not the host of this one. In a batch, they were read minutes ago.
    files = {**known, at.node_id: at.ports.runtime.config(at.node)}
    unread = tuple(one for one in unread if one.subject != file_of(at.node_id))
    compared = [compare() for compare in _compare_node(at.run, at.release_step, at.node, state, files)]
    found = (
        *recheck_agreement(at.run, state, at.release_step.to_release, at.node, files=files),
        *all_findings(compared),
        *check_rollback_on_host(at.run, at.release_step.to_release, led_back(at, at.release_step.to_release)),
    )
    # A node that hangs on the newer release can be rolled back.
    _record_unread(at.run, at.release_step, _sentences((*unread, *(what for one in compared for what in one.unknown))))
    if blockers := [one for one in found if one.severity is Severity.BLOCKER]:
        raise RefusedError(
            f"Node {at.node_id} cannot be rolled back now. "
            f"{' '.join(f'{one.code}: {one.sentence}' for one in blockers)}",
            remedy=" ".join(dict.fromkeys(one.remedy.replace(APPROVE, _EARLIER_LINE) for one in blockers)),
        )


def _compare_metadata(run: ReadRun, release_step: ReleaseStep, files: NodeConfigs) -> tuple[Callable[[], Checked], ...]:
    """Return what a rollback compares of the cluster, as far as it can."""
    source, target = release_step.from_release, release_step.to_release
    return partial(unkept_acls, run.ports, source, target, files), partial(unkept_metadata, run, release_step)


def _compare_node(
    run: ReadRun, release_step: ReleaseStep, node: NodeSpec, state: ClusterState, files: NodeConfigs
) -> tuple[Callable[[], Checked], ...]:
    """Return what a rollback compares of a node, as far as it can."""
    return partial(unapproved_changes, run, [node], state, files), partial(
        check_log_folders_again, run.ports, release_step, node, files
    )


def _record_unread(run: Run, release_step: ReleaseStep, unread: Sequence[str]) -> None:
    """Record what a rollback could not compare, once: it goes on without it, because it must stay possible."""
    known = {what for event in events_of(run.history.events(), RollbackUnread) for what in event.sentences}
    new = [sentence for sentence in unread if sentence not in known]
    if new:
        run.history.record(RollbackUnread(release_step=release_step.key, sentences=tuple(dict.fromkeys(new))))


def unread_of_rollback(run: ReadRun) -> tuple[str, ...]:
    """Return what a rollback of the nodes that were stopped could not compare now, as sentences for its approver.

    It only reads, and raises nothing of the tool. The rollback reads again, and records what it did not compare.
    """
    stopped = events_of(run.history.events(), Stopping)
    steps = [one for one in run.plan.release_steps if any(each.release_step == one.key for each in stopped)]
    if not steps or run.plan.lowering is Lowering.OFFLINE:
        return ()
    read_files = files_once(run)
    files, unread = read_files()
    found = [*unread]
    comparisons = [one for step in steps for one in _compare_metadata(run, step.reversed(), files)]
    try:
        state = observe_without_groups(run.ports)
        for step in steps:
            for node_id in dict.fromkeys(each.node_id for each in stopped if each.release_step == step.key):
                comparisons += _compare_node(run, step.reversed(), run.cluster.node(node_id), state, files)
    except RolloutError as error:
        found += unknown_by(error, "rollback")
    for compare in comparisons:
        try:
            found += compare().unknown
        except RolloutError as error:
            found += unknown_by(error, "rollback")
    return tuple(dict.fromkeys((*_sentences(found), *_unread_logs(run, steps, read_files))))


def _sentences(unknown: Sequence[UnknownValue]) -> tuple[str, ...]:
    return tuple(one.sentence for one in unknown)


def _unread_logs(run: ReadRun, steps: Sequence[ReleaseStep], files: ReadFiles) -> tuple[str, ...]:
    """Return what a rollback to a release that cannot load some records cannot read of the coordinator logs now."""
    found: tuple[str, ...] = ()
    for step in steps:
        back = step.reversed()
        try:
            if _closing(run, back, files):
                found += unread_replica_sentences(run.ports.logs.unread_replicas(), back.to_release)
        except RolloutError:
            found += (unread_logs_sentence(back.to_release),)
    return found


def _refuse_settings(ports: ClusterPorts, release_step: ReleaseStep) -> None:
    """Refuse settings, created since the upgrade, that the older release does not support.

    Its next metadata snapshot would make them unreadable for every release.
    """
    lacking = lacking_settings(ports.catalogue, [release_step.to_release])
    if not lacking:
        return
    _refuse_found(
        ports, release_step, settings_findings(lacking, ports.admin.settings(), accepted=False, acceptable=False)
    )


def _refuse_found(ports: ClusterPorts, release_step: ReleaseStep, found: Sequence[Finding]) -> None:
    if not found:
        return
    listed = " ".join(f"{finding.code}: {finding.sentence}" for finding in found)
    sentence = f"A rollback to {release_step.to_release} is not possible now. {listed}"
    ports.run.record(RollbackClosed(release_step=release_step.key, sentence=sentence))
    raise RefusedError(sentence, remedy=f"{found[0].remedy} Then roll back again.")


def _closing(run: ReadRun, release_step: ReleaseStep, files: ReadFiles) -> tuple[ClosingRecord, ...]:
    """Return the records that releases of this run write and the older one cannot load; usually none (KIP-915).

    The files are read only where they decide.
    """
    begun = started_release_steps(run.history.events())

    def find(levels: Mapping[str, int]) -> tuple[ClosingRecord, ...]:
        return tuple(
            record
            for rolled in run.plan.release_steps
            if rolled.key in begun
            for record in find_closing_records(run.ports.catalogue, release_step.to_release, rolled.to_release, levels)
        )

    # Without a quorum, too: no level changes then, and a rollback must stay possible.
    levels = observe_some(run.ports, run.cluster.nodes, metrics=False, brokers=False).finalized.known()
    closing = find(levels)
    with_share = find({**levels, SHARE_VERSION: max(1, levels.get(SHARE_VERSION, 0))})
    if with_share == closing:
        return closing
    known = files()[0]  # 4.1 writes records of share groups without the level
    configs = [known.get(node.node_id) for node in run.cluster.brokers]
    return with_share if any(one is None or enables_share_groups(one) for one in configs) else closing


def _refuse_unloadable(run: Run, release_step: ReleaseStep, closing: tuple[ClosingRecord, ...]) -> None:
    scanned: ScanResult | None = run.history.attachment(_SCANNED, ScanResult) or scan_before_roll(run.ports)
    older = release_step.to_release
    if scanned is None:
        why = f"{closing[0].record} records of {run.plan.target} stop it, and no scan shows whether such records exist"
    else:
        planned = planned_group_coordinator(run.ports, [release_step.to_release])
        try:
            scan = run.ports.logs.scan_new_records(scanned, planned=planned)
        except TransientError as error:
            _refuse_unread_logs(run, release_step, [unread_logs_sentence(older)], error)
            return
        if scan.is_proved_loadable(release_step.to_release):
            run.history.attach(_SCANNED, scan)  # the next stop reads what is new since
            return
        unread, waits = find_unread_replicas(scan, older), unread_replicas_error(scan, older)
        if unread and waits is not None:
            _refuse_unread_logs(run, release_step, unread_replica_sentences(unread, older), waits)
            return
        if failing := scan.failing(release_step.to_release):
            first = failing[0]
            reason = f": {first.first_failure.reason}" if first.first_failure is not None else ""
            why = f"it can no longer load {len(failing)} partition(s) of the logs; first {first.place}{reason}"
        elif waits is not None:
            raise waits
        else:
            reason = "they were not read completely" if scan.damage else "the scan did not evaluate this release"
            why = f"it is unknown whether it can load the coordinator logs, because {reason}"
    sentence = f"A rollback to {release_step.to_release} is not possible: {why}."
    run.history.record(RollbackClosed(release_step=release_step.key, sentence=sentence))
    raise RefusedError(
        sentence,
        remedy=f"Keep {release_step.from_release}, which can load the logs, and run kafka_downgrade from there: "
        "it scans the logs and shows the groups to convert and the time to wait.",
    )


def _refuse_unread_logs(run: Run, release_step: ReleaseStep, sentences: Sequence[str], error: TransientError) -> None:
    """Raise the error again unless the approver of the rollback has accepted the sentences. A broker that fails on the
    newer release may return its replicas only after the rollback.
    """
    if find_unaccepted_of_rollback(run.history.events(), run.plan.hash, sentences):
        raise TransientError(
            error.sentence,
            remedy=f"{error.remedy} Or approve the rollback again: the request lists what could not be read, and its "
            f"approval accepts it (kafka-rollout {ROLLBACK} --cluster {run.plan.cluster} --run {run.ports.run.number} "
            f"{SIGNED}; a run of a DAG needs --take-over, too).",
        ) from error
    _record_unread(run, release_step, sentences)


def refuse_unready(at: NodeRun) -> None:
    """Raise if an older release cannot start with the current levels, or with this node's metadata log."""
    if not starts_older_release(at.plan, at.release_step):
        return
    if left := pending_changes(at.run):
        raise RefusedError(
            f"Node {at.node_id} cannot move to {at.release_step.to_release} yet: "
            f"{', '.join(f'{c.feature} is not at {c.target}' for c in left)}.",
            remedy="Lower the levels first (in a DAG: clear lower_features and all downstream tasks).",
        )
    refuse_unreadable(at.run, at.release_step, at.node)
