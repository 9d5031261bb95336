"""Request: what an operator asked a run to do, the same from the DAG's form and from the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import partial
from typing import Any

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.internal_topics import METADATA_TOPIC
from kafka_rollout.base.maintenance import parse_maintenance
from kafka_rollout.features.requests import FeatureAction, FeatureOrder, parse_requests
from kafka_rollout.gates.control import CONDITION_NAME, check_pause_after, refuse_unknown_names
from kafka_rollout.model.plan import Lowering, Plan, RunTerms, accepted_topics
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.fields import AS_REQUESTED, FieldUnit, declared, declared_fields, fields_of
from kafka_rollout.releases.facts import Release


class FinalizePolicy(StrEnum):
    """When an upgrade finalizes feature levels."""

    LATER = "later"
    AFTER_APPROVAL = "after-approval"


class DowngradeType(StrEnum):
    """KIP-1155: whether a level is lowered although metadata or records are lost."""

    SAFE = "SAFE"
    UNSAFE = "UNSAFE"


class ApprovalPolicy(StrEnum):
    """Which feature changes need an approval: all, or only those that lower, delete or cannot be undone."""

    ALWAYS = "always"
    WHERE_NEEDED = "where_needed"


GATES = "Gates"
APPROVALS = "Approvals"
_BATCHES = "Batches"
_CONTROL = "Pauses and maintenance windows"
_SINGLE_FEATURES = "Single features"
_UPGRADE = frozenset({RunOf.UPGRADE})
_DOWNGRADE = frozenset({RunOf.DOWNGRADE})
_FEATURES = frozenset({RunOf.FEATURES})
_RESTART = frozenset({RunOf.RESTART})
_CHANGES_RELEASE = _UPGRADE | _DOWNGRADE
_ROLLS = _CHANGES_RELEASE | _RESTART
_ALL = frozenset(RunOf)
_SECONDS = FieldUnit("seconds", 1)
_SECONDS_OF_MS = FieldUnit("seconds", 1000)
_MINUTES = FieldUnit("minutes", 60)
_WEEK_S = 7 * 24 * 3600
_FEATURE = r"^[A-Za-z][A-Za-z0-9._-]*"
_LEVEL = "[:=]-?[0-9]{1,5}$"
_ONLY_SINGLE = "Used only if the action changes single features."
_gate = partial(declared, of=_ROLLS, section=GATES)
_batch = partial(declared, of=_ROLLS, section=_BATCHES)
_control = partial(declared, of=_ROLLS, section=_CONTROL, in_plan=True)
_single_feature = partial(declared, (), of=_FEATURES, section=_SINGLE_FEATURES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Input of one run; what a procedure does not use keeps its default.

    A field with a declaration is in the forms, the commands, the rehearsal and `docs/parameters.md`. `soak_s`,
    `interval_s` and `gate_timeout_s` are seconds. The fields without one are internal.
    """

    target: Release | None = declared(
        None,
        form="target_release",
        option="--to",
        title="Target release",
        text="Release that all nodes run after the change. Some paths need an intermediate release "
        "(KIP-915); the plan shows it.",
        of=_CHANGES_RELEASE,
        in_plan=True,
        required=True,
        newest_of=_UPGRADE,
    )
    finalize: FinalizePolicy = declared(
        FinalizePolicy.LATER,
        title="Finalize features",
        text="After finalizing, a rollback is not possible, and undoing it needs a downgrade. The run finalizes "
        "after an approval, or a later run does.",
        of=_UPGRADE,
        in_plan=True,
        labels={
            FinalizePolicy.LATER: "no: start another run later to finalize",
            FinalizePolicy.AFTER_APPROVAL: "in this run, after an approval",
        },
    )
    level: int | None = declared(
        None,
        form="target_level",
        option="--to-level",
        title="Target metadata.version",
        text="Level as a number, for example 25 for 4.0-IV3; a command also accepts the name. Empty: the highest "
        "level that the target release supports, but not above the current level.",
        of=_DOWNGRADE,
        in_plan=True,
        least=1,
    )
    action: FeatureAction | None = declared(
        None,
        title="Feature action",
        text="kraft.version changes only if it is named as a single feature.",
        of=_FEATURES,
        labels={
            FeatureAction.UPGRADE_ALL: "raise all features to the default level of the release",
            FeatureAction.DOWNGRADE_ALL: "lower all features to the levels of a release",
            FeatureAction.UPDATE: "change single features, or set the levels of a release",
        },
    )
    release_version: Release | None = declared(
        None,
        title="Release",
        text="Release whose feature levels are set. Used by the actions that set the levels of a release.",
        of=_FEATURES,
    )
    upgrade: tuple[str, ...] = _single_feature(
        title="Levels to raise",
        text=f"feature=level to add or raise. {_ONLY_SINGLE}",
        pattern=f"{_FEATURE}{_LEVEL}",
    )
    downgrade: tuple[str, ...] = _single_feature(
        title="Levels to lower",
        text=f"feature=level to lower. A level below 1 deletes the feature. {_ONLY_SINGLE}",
        pattern=f"{_FEATURE}{_LEVEL}",
    )
    delete: tuple[str, ...] = _single_feature(
        title="Features to delete",
        text=f"Name of a feature whose finalized level is deleted. {_ONLY_SINGLE}",
        pattern=f"{_FEATURE}$",
    )
    pin_min_isr: bool = declared(
        False,
        form="pin_min_insync_replicas",
        option="--pin-min-insync-replicas/--no-pin-min-insync-replicas",
        title="Pin min.insync.replicas",
        text="Before the run raises eligible.leader.replicas.version, it sets the cluster-wide default of "
        "min.insync.replicas to the value that all brokers have now. Without it, the active controller writes the "
        "value of its own file, and a plan that would change a topic has a blocker.",
        of=_UPGRADE | _FEATURES,
        in_plan=True,
    )
    downgrade_type: DowngradeType = declared(
        DowngradeType.SAFE,
        option="--unsafe/--safe",
        title="Downgrade type",
        text="For levels that are lowered or deleted (KIP-1155): SAFE refuses if metadata would be lost, UNSAFE "
        "lists the losses and continues.",
        of=_DOWNGRADE | _FEATURES,
        in_plan=True,
        labels={
            DowngradeType.SAFE: "SAFE: refuse if data would be lost",
            DowngradeType.UNSAFE: "UNSAFE: accept the losses, and list them",
        },
        switch=DowngradeType.UNSAFE,
    )
    lowering: Lowering = declared(
        Lowering.ONLINE,
        title="Lowering",
        text="The most disruptive way in which metadata.version is lowered if Kafka refuses it, because a level in "
        "between changed the format of the metadata. online: stop before any change. live: stop only the controllers "
        "for some seconds. offline: live if possible, otherwise stop all nodes.",
        of=_DOWNGRADE,
        in_plan=True,
        labels={
            Lowering.ONLINE: "online: else stop before any change",
            Lowering.LIVE: "live: stop only the controllers (seconds), after an approval",
            Lowering.OFFLINE: "offline: stop only the controllers, or all nodes if needed, after an approval",
        },
    )
    nodes: tuple[str, ...] = declared(
        (),
        option="--node",
        title="Nodes",
        text="Names or ids of the nodes to restart. Empty: all nodes.",
        of=_RESTART,
        in_plan=True,
        pattern=r"^[A-Za-z0-9._-]+$",
    )
    scan: bool = declared(
        True,
        form="",
        option="--scan/--no-scan",
        title="Scan",
        text="Scan the coordinator logs before planning and before finalizing.",
        of=_UPGRADE,
    )
    rehearse: bool = declared(
        True,
        option="--rehearse/--no-rehearse",
        title="Rehearsal",
        text="First tries the change on a copy of the cluster, if this machine can read the nodes' files and has "
        "enough memory. A failure blocks the plan.",
        of=_CHANGES_RELEASE,
        on_copy=False,
    )
    dry_run: bool = declared(
        False,
        title="Dry run",
        text="The run ends with the plan and all findings. It changes nothing, but loads the packages of its path to "
        "hosts that install Kafka from a package.",
        of=_ALL,
        on_copy=False,
    )
    max_batch_size: int = _batch(
        1,
        title="Maximum batch size",
        text="Largest number of brokers that restart together. The placement of the replicas proves each batch: "
        "a partition with two or more of its brokers in a batch keeps min.insync.replicas and one more in sync. "
        "Controllers and the first broker restart alone.",
        in_plan=True,
        least=1,
        most=1_000,
        on_copy=1,
    )
    one_rack_at_a_time: bool = _batch(
        True,
        option="--one-rack-at-a-time/--across-racks",
        title="One rack at a time",
        text="All brokers of a batch are in one rack (broker.rack). If a broker has no rack, or the sizes of two "
        "racks differ by more than one broker, brokers restart one at a time.",
        in_plan=True,
    )
    pause_after: str = _control(
        "",
        title="Pause after",
        text="first-node or first-batch (of several brokers): after it the run pauses once, and asks an approver to "
        "continue or to roll back. node, rack or a number of nodes: after each of them. A batch is not divided. Empty: "
        "no pause.",
        on_copy="",
    )
    window: str = _control(
        "",
        title="Maintenance window",
        text="Nodes are stopped only in this time: cron expression of its begin, duration and time zone, for example "
        "0 22 * * Mon-Fri 6h Europe/Berlin; several windows are separated by ';'. The run pauses before the next node "
        "when the window ends, or when a node step no longer fits, keeps the lock, and continues in the next window. A "
        "rollback does not wait. Empty: always.",
        on_copy="",
    )
    freeze_days: tuple[str, ...] = _control(
        (),
        title="Freeze days",
        text="Days on which no node is stopped: a date such as 2026-12-24, or a range such as "
        "2026-12-20..2027-01-03, in the time zone of the window, or in UTC.",
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(\.\.[0-9]{4}-[0-9]{2}-[0-9]{2})?$",
        on_copy=(),
    )
    soak_s: float = _gate(
        60.0,
        form="soak_seconds",
        option="--soak",
        title="Soak",
        text="Time during which every check of a node's gate must pass before the next node is stopped.",
        least=0,
        most=_WEEK_S,
        form_unit=_SECONDS,
        option_unit=_SECONDS,
        on_copy=0.0,
    )
    checks: int = _gate(
        3,
        title="Consecutive checks",
        text="Number of consecutive checks that must pass after a node starts.",
        least=1,
        most=100,
        on_copy=1,
    )
    interval_s: float = _gate(
        1.0,
        form="",
        option="--interval",
        title="Interval",
        text="Time between two checks.",
        least=0,
        option_unit=_SECONDS,
        on_copy=0.5,
    )
    gate_timeout_s: float = declared(
        1800.0,
        form="gate_timeout_minutes",
        option="--gate-timeout",
        title="Gate timeout",
        text="If a gate has not passed by then, the run stops there: a DAG asks an approver how to continue, a "
        "command exits and can be continued.",
        of=_ALL,
        section=GATES,
        least=0.6,
        most=_WEEK_S,
        form_unit=_MINUTES,
        option_unit=_SECONDS,
    )
    snapshot_interval_ms: int | None = declared(
        None,
        form="snapshot_interval_seconds",
        option="--snapshot-interval",
        title="Snapshot interval",
        text="Lowers metadata.log.max.snapshot.interval.ms when each node restarts on the target release, so that "
        "Kafka writes a snapshot soon after finalizing. The value stays in the file until somebody removes it. "
        "Empty: the nodes keep their own interval.",
        of=_UPGRADE,
        in_plan=True,
        section=GATES,
        least=5_000,
        most=3_600_000,
        form_unit=_SECONDS_OF_MS,
        option_unit=_SECONDS_OF_MS,
    )
    max_under_replicated: int | None = _gate(
        None,
        title="Under-replicated partitions",
        text="A node is stopped only if at most this number of partitions lack a replica of another node. Empty: "
        "no limit; each partition of the node keeps min.insync.replicas in any case.",
        in_plan=True,
        least=0,
        on_copy=None,
    )
    skip_conditions: tuple[str, ...] = _gate(
        (),
        option="--skip-condition",
        title="Skipped conditions",
        text="Names of conditions from outside, of the inventory, that this run does not check. The approval lists "
        "them.",
        in_plan=True,
        pattern=CONDITION_NAME,
        on_copy=(),
    )
    accept_unavailable: tuple[str, ...] = _gate(
        (),
        title="Topics that can be unavailable",
        text="Names or patterns (tmp-*) of topics that can be unavailable while nodes restart. These topics do not "
        "block the run, and the gates before the stops do not check them. The approval lists them. A wildcard does "
        "not match internal topics, unless the pattern begins with __. "
        f"{METADATA_TOPIC} is the metadata quorum: name it to restart one or two controllers.",
        in_plan=True,
        pattern=r"^[A-Za-z0-9._*?\[\]!-]+$",
    )
    traffic: bool = _gate(
        False,
        option="--traffic/--no-traffic",
        title="Test traffic",
        text="Produces and consumes test records in separate topics during the run, then compares acknowledged "
        "with consumed records.",
        on_copy=False,
    )
    approval: ApprovalPolicy = declared(
        ApprovalPolicy.ALWAYS,
        option="",
        title="Approval",
        text="Which changes of features need an approval. The inventory can require it for every change.",
        of=_FEATURES,
        section=APPROVALS,
        labels={
            ApprovalPolicy.ALWAYS: "for every change",
            ApprovalPolicy.WHERE_NEEDED: "only if a level is lowered or deleted, or cannot be undone",
        },
    )
    waits: bool = True
    """False: the run refuses where it would wait for a gate."""
    plans_features: bool = True
    """The upgrade's plan contains feature levels."""
    may_lower: bool = True
    """False: the levels of a release raise only."""

    def __post_init__(self) -> None:
        """Raise UserError for invalid pauses, windows or freeze days, before anything is observed."""
        check_pause_after(self.pause_after)
        parse_maintenance(self.window, self.freeze_days)

    def finalizes(self, *, rolls: bool) -> bool:
        """Return whether the run finalizes levels. `rolls`: its plan replaces nodes."""
        return self.plans_features and (self.finalize is FinalizePolicy.AFTER_APPROVAL or not rolls)

    def at_least(self, cluster: ClusterSpec, terms: RunTerms | None = None) -> Request:
        """Return the request with the gates that the inventory requires, and those of an approved plan."""
        soaks = (self.soak_s, cluster.min_soak_seconds, terms.soak_s if terms is not None else 0.0)
        checks = (self.checks, cluster.min_checks, terms.checks if terms is not None else 1)
        return replace(self, soak_s=max(soaks), checks=max(checks))

    def terms(self, cluster: ClusterSpec) -> RunTerms:
        """Return how the run carries out its plan. Raises UserError if the inventory forbids it."""
        if not self.every_change and cluster.feature_approval == ApprovalPolicy.ALWAYS:
            raise UserError(
                f"The inventory of cluster {cluster.name} requires an approval of every feature change.",
                remedy=f"Choose the approval '{ApprovalPolicy.ALWAYS}'.",
            )
        refuse_unknown_names(self.skip_conditions, cluster.conditions)
        effective = self.at_least(cluster)
        return RunTerms(**{term.name: getattr(effective, term.name) for term in fields(RunTerms)})

    def feature_order(self) -> FeatureOrder:
        """Return the requested feature levels. Raises UserError for an invalid request."""
        named = parse_requests(self.upgrade, self.downgrade, self.delete)
        if self.action is None:
            raise UserError("The run names no feature levels.", remedy="Name the features, or a release.")
        if named and self.action is not FeatureAction.UPDATE:
            raise UserError(
                f"Single features can be named only for an update, not for {self.action.value}.",
                remedy="Empty the lists.",
            )
        return FeatureOrder(action=self.action, named=named, release=self.release_version, may_lower=self.may_lower)

    @property
    def accepted_topics(self) -> tuple[str, ...]:
        """The patterns of topics that can be unavailable, sorted. Raises UserError for an invalid pattern."""
        return accepted_topics(self.accept_unavailable)

    @property
    def every_change(self) -> bool:
        return self.approval is ApprovalPolicy.ALWAYS

    @property
    def unsafe(self) -> bool:
        return self.downgrade_type is DowngradeType.UNSAFE

    @property
    def target_release(self) -> Release:
        """The release to go to. Raises UserError if the run has none."""
        if self.target is None:
            raise UserError("The run has no target release.", remedy="Name the release to go to.")
        return self.target

    def releases_ahead(self, plan: Plan | None) -> tuple[Release, ...]:
        """Return the releases on which nodes start. A path that is not planned yet counts by its target alone."""
        if plan is None:
            return () if self.target is None else (self.target,)
        return plan.path[1:]


def request_of(params: Mapping[str, Any], kind: RunOf, request: type[Request] = Request) -> Request:
    """Return the request of a form of a kind of run. Raises UserError for an invalid value.

    A DAG of a user can have more parameters, and a form lacks the fields of which a plan-only run has no use.
    """
    shown = (one for one in fields_of(frozenset({kind}), request) if one.form in params)
    return request(**{one.name: one.from_form(params[one.form]) for one in shown})


def request_on_copy(request: Request, **of_copy: Any) -> Request:
    """Return the request of a rehearsal: the same change without what needs clients or approvers."""
    fixed = {one.name: one.on_copy for one in declared_fields(type(request)) if one.on_copy is not AS_REQUESTED}
    return replace(request, **{**fixed, **of_copy})
