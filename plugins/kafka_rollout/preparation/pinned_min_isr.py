"""min.insync.replicas while eligible.leader.replicas.version is raised: planned, checked again, and pinned before.

features/min_isr.py describes what Kafka does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from kafka_rollout.base.errors import NotObservableError, RefusedError, RolloutError, TransientError
from kafka_rollout.base.findings import Severity
from kafka_rollout.control import lock
from kafka_rollout.control.approval import refuse_blockers, require_approval
from kafka_rollout.features.min_isr import (
    MIN_ISR,
    MinIsr,
    MinIsrEffects,
    find_min_isr_effects,
    pin_refused,
    raises_elr,
    value_of_file,
)
from kafka_rollout.model.configs import SettingValues
from kafka_rollout.model.plan import DefaultChange, FeatureChange
from kafka_rollout.model.state import PartitionState
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, levels_now, until
from kafka_rollout.observation.run import ReadRun, Run
from kafka_rollout.preparation.frozen_plan import check_run, refuse_as_invalid
from kafka_rollout.preparation.proved_roll import refuse_unproved_nodes
from kafka_rollout.run.events import ApprovalOf
from kafka_rollout.run.step_events import DefaultSet

_PATIENCE_S = 30.0  # a broker applies a new default some milliseconds after the controller's response


def plan_min_isr(
    ports: ClusterPorts,
    changes: Iterable[FeatureChange],
    partitions: Sequence[PartitionState],
    *,
    pin: bool,
    configs: Mapping[int, Mapping[str, str]] | None = None,
) -> MinIsrEffects:
    """Return what raising ELR changes besides the level. Nothing is read if no change raises it.

    `pin`: the run sets the default first; the controller validates this request. `configs`: configuration of the next
    start by node id, if nodes restart. A value that cannot be read is a blocker.
    """
    if not raises_elr(changes):
        return MinIsrEffects()
    try:
        found = observe_min_isr(ports, partitions, configs or {})
    except (TransientError, RefusedError) as error:
        found = MinIsr(values=SettingValues(), unknown=(error.sentence,))
    effects = find_min_isr_effects(found, pin=pin, bootstrap_servers=ports.cluster.bootstrap_servers)
    try:
        for change in effects.changes:
            if change.by_run and change.after is not None:
                ports.admin.set_default_config(change.key, change.after, validate_only=True)
    except RolloutError as error:
        return MinIsrEffects(findings=(pin_refused(error.sentence, error.remedy),))
    return effects


def observe_min_isr(
    ports: ReadPorts, partitions: Sequence[PartitionState], configs: Mapping[int, Mapping[str, str]]
) -> MinIsr:
    """Return min.insync.replicas of brokers, topics and controllers.

    The files of controllers count only without a cluster-wide default. Raises TransientError where a broker does not
    respond, RefusedError without the right.
    """
    values = ports.admin.setting(MIN_ISR)
    replicas: dict[str, set[int]] = {}
    for partition in partitions:
        if partition.topic not in values.topics:
            replicas.setdefault(partition.topic, set()).update(partition.replicas)
    missing = sorted({node.node_id for node in ports.cluster.brokers} - values.brokers.keys())
    found = MinIsr(
        values=values,
        topics=replicas,
        unknown=tuple(f"Broker {node_id} did not report its {MIN_ISR}." for node_id in missing),
    )
    return found if values.default is not None else _with_files(ports, found, configs)


def _with_files(ports: ReadPorts, found: MinIsr, configs: Mapping[int, Mapping[str, str]]) -> MinIsr:
    files: dict[int, set[str]] = {}
    unread: list[str] = []
    for node in ports.cluster.controllers:
        seen = files.setdefault(node.node_id, set())
        if node.node_id in configs:  # the process that becomes the active controller reads this file
            seen.add(value_of_file(configs[node.node_id]))
        try:
            seen.add(value_of_file(ports.admin.node_config(node)))
        except (NotObservableError, TransientError, RefusedError) as error:
            if not seen:
                unread.append(f"The {MIN_ISR} of controller {node.node_id} is unknown: {error.sentence}")
    return replace(found, files={i: frozenset(seen) for i, seen in files.items() if seen}, unread=tuple(unread))


def refuse_changed_min_isr(run: Run, *, before_pin: bool = False) -> None:
    """Check before a request that raising ELR changes no effective value of min.insync.replicas.

    `before_pin`: the run still sets the planned default. Does nothing if ELR is not raised any more. Raises
    TransientError if a value cannot be read, RefusedError if a value would change: the approval is then invalid.
    """
    if not raises_elr(_pending(run)):
        return
    found = observe_min_isr(run.ports, run.ports.admin.partitions(), {})
    pin = before_pin and bool(run.plan.pinned_defaults)
    effects = find_min_isr_effects(found, pin=pin, bootstrap_servers=run.cluster.bootstrap_servers)
    if blockers := [finding for finding in effects.findings if finding.severity is Severity.BLOCKER]:
        refuse_as_invalid(run, blockers)


def pin_min_isr(run: Run, *, needs_approval: bool = True) -> tuple[DefaultChange, ...]:
    """Set the planned cluster-wide default, and wait until every broker reports it. Return the changes.

    A repeated call reads the value first. Raises RefusedError without an approval, or if the default or a value of a
    broker changed since the plan; TransientError if a broker does not report the value yet.
    """
    run = check_run(run)
    if not run.plan.pinned_defaults or not raises_elr(_pending(run)):
        return ()
    refuse_blockers(run.plan)
    refuse_unproved_nodes(run)
    if needs_approval:
        require_approval(run, ApprovalOf.FINALIZE)
    lock.acquire_lock(run.ports, f"Pin {MIN_ISR}.")
    with run.ports.lock.acting(run.cluster.name, run.ports.run_id, f"Pinning {MIN_ISR}"):
        for change in run.plan.pinned_defaults:
            _pin(run, change)
    return run.plan.pinned_defaults


def _pin(run: Run, change: DefaultChange) -> None:
    value = str(change.after)
    now = run.ports.admin.setting(change.key)
    if now.default != value:
        if now.default != change.before:
            raise RefusedError(
                f"The cluster-wide default of {change.key} is {now.default or 'not set'}. When the plan was made, it "
                f"was {change.before or 'not set'}: another client changed it.",
                remedy="Start a new run: it plans from the current state.",
            )
        refuse_changed_min_isr(run, before_pin=True)
        if set(now.brokers.values()) != {value}:
            raise RefusedError(
                f"The brokers do not all have {change.key} = {value} any more: {_listed(now)}.",
                remedy="Start a new run: it plans from the current state.",
            )
        run.ports.admin.set_default_config(change.key, value, validate_only=False)
    seen = until(
        run.ports.clock,
        partial(run.ports.admin.setting, change.key),
        lambda one: _applies(one, value),
        for_s=_PATIENCE_S,
    )
    if not _applies(seen, value):
        raise TransientError(f"The brokers do not report the default {change.key} = {value} yet: {_listed(seen)}.")
    run.history.record(DefaultSet(key=change.key, value=value, before=change.before))


def _applies(seen: SettingValues, value: str) -> bool:
    return seen.default == value and set(seen.brokers.values()) == {value}


def _listed(seen: SettingValues) -> str:
    return ", ".join(f"broker {node_id}: {value}" for node_id, value in sorted(seen.brokers.items()))


def _pending(run: ReadRun) -> tuple[FeatureChange, ...]:
    pending = levels_now(run.ports).finalized.lacking(run.plan.levels)
    return tuple(change for change in run.plan.feature_changes if change.feature in pending)
