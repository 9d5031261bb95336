"""Request: what an operator asked a run to do, the same from the DAG's form and from the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.internal_topics import METADATA_TOPIC
from kafka_rollout.features.requests import FeatureAction, FeatureOrder, parse_requests
from kafka_rollout.gates.control import CONDITION_NAME, check_pause_after, refuse_unknown_names
from kafka_rollout.model.pace import PACES, Pace, PaceNumbers
from kafka_rollout.model.plan import Lowering, Plan, RunTerms, accepted_topics
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import ALWAYS, ClusterSpec
from kafka_rollout.planning.fields import AS_REQUESTED, declared, declared_fields, fields_of
from kafka_rollout.releases.facts import Release


class FinalizePolicy(StrEnum):
    """When an upgrade finalizes feature levels."""

    LATER = "later"
    AFTER_APPROVAL = "after-approval"


class DowngradeType(StrEnum):
    """KIP-1155: whether a level is lowered although metadata or records are lost."""

    SAFE = "SAFE"
    UNSAFE = "UNSAFE"


SELDOM = "Seldom needed"
"""The section of the forms that is folded, and of the help of the commands."""
_UPGRADE = frozenset({RunOf.UPGRADE})
_DOWNGRADE = frozenset({RunOf.DOWNGRADE})
_FEATURES = frozenset({RunOf.FEATURES})
_RESTART = frozenset({RunOf.RESTART})
_CHANGES_RELEASE = _UPGRADE | _DOWNGRADE
_ROLLS = _CHANGES_RELEASE | _RESTART
_ALL = frozenset(RunOf)
_FEATURE = r"^[A-Za-z][A-Za-z0-9._-]*"
_LEVEL = "[:=]-?[0-9]{1,5}$"
_ONLY_SINGLE = "Used only if the action changes single features."
_PACES = "; ".join(f"{pace}: {numbers.text}" for pace, numbers in PACES.items()) + "."
_seldom = partial(declared, of=_ROLLS, section=SELDOM)
_single_feature = partial(declared, (), of=_FEATURES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Input of one run; what a procedure does not use keeps its default.

    A field with a declaration is in the forms, the commands, the rehearsal and `docs/parameters.md`. The fields
    without one are internal. What belongs to the cluster, and not to one run, is in its inventory.
    """

    target: Release | None = declared(
        None,
        form="target_release",
        option="--to",
        title="Target release",
        text="Release that all nodes run after the change. The plan shows the running release, and an intermediate "
        "one where the path needs it (KIP-915).",
        of=_CHANGES_RELEASE,
        in_plan=True,
        required=True,
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
    pin_min_isr: bool = declared(
        False,
        form="pin_min_insync_replicas",
        option="--pin-min-insync-replicas/--no-pin-min-insync-replicas",
        title="Pin min.insync.replicas",
        text="Before the run raises eligible.leader.replicas.version, it sets the cluster-wide default of "
        "min.insync.replicas to the value that all brokers have now. Without it, the active controller writes the "
        "value of its own file, and a plan that would change a topic has a blocker.",
        of=_UPGRADE | _FEATURES,
        section=SELDOM,
        in_plan=True,
    )
    downgrade_type: DowngradeType = declared(
        DowngradeType.SAFE,
        option="--unsafe/--safe",
        title="Downgrade type",
        text="For levels that are lowered or deleted (KIP-1155): SAFE refuses if metadata would be lost, UNSAFE "
        "lists the losses and continues.",
        of=_DOWNGRADE | _FEATURES,
        section=SELDOM,
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
        section=SELDOM,
    )
    rehearse: bool = declared(
        True,
        option="--rehearse/--no-rehearse",
        title="Rehearsal",
        text="First tries the change on a copy of the cluster, if this machine can read the nodes' files and has "
        "enough memory. A failure blocks the plan.",
        of=_CHANGES_RELEASE,
        section=SELDOM,
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
    max_batch_size: int = _seldom(
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
    pause_after: str = declared(
        "",
        of=_ROLLS,
        in_plan=True,
        title="Pause after",
        text="first-node or first-batch (of several brokers): after it the run pauses once, and asks an approver to "
        "continue or to roll back. node, rack or a number of nodes: after each of them. A batch is not divided. Empty: "
        "no pause.",
        on_copy="",
    )
    pace: Pace = declared(
        Pace.NORMAL,
        of=_ROLLS,
        title="Pace",
        text=f"How long a node is watched after its start before the next node is stopped. {_PACES} The inventory can "
        "set other numbers for its cluster (paces).",
        labels={pace: pace.value for pace in Pace},
        labels_of=lambda cluster: {pace: f"{pace}: {cluster.pace(pace).text}" for pace in Pace},
        on_copy=Pace.FAST,
    )
    skip_conditions: tuple[str, ...] = _seldom(
        (),
        option="--skip-condition",
        title="Skipped conditions",
        text="Names of conditions from outside, of the inventory, that this run does not check. The approval lists "
        "them.",
        in_plan=True,
        pattern=CONDITION_NAME,
        on_copy=(),
    )
    accept_unavailable: tuple[str, ...] = _seldom(
        (),
        title="Topics that can be unavailable",
        text="Names or patterns (tmp-*) of topics that can be unavailable while nodes restart. These topics do not "
        "block the run, and the gates before the stops do not check them. The approval lists them. A wildcard does "
        "not match internal topics, unless the pattern begins with __. "
        f"{METADATA_TOPIC} is the metadata quorum: name it to restart one or two controllers.",
        in_plan=True,
        pattern=r"^[A-Za-z0-9._*?\[\]!-]+$",
    )
    traffic: bool = _seldom(
        False,
        option="--traffic/--no-traffic",
        title="Test traffic",
        text="Produces and consumes test records in separate topics during the run, then compares acknowledged "
        "with consumed records.",
        on_copy=False,
    )
    waits: bool = True
    """False: the run refuses where it would wait for a gate."""
    plans_features: bool = True
    """The upgrade's plan contains feature levels."""
    may_lower: bool = True
    """False: the levels of a release raise only."""

    def __post_init__(self) -> None:
        """Raise UserError for invalid pauses before anything is observed."""
        check_pause_after(self.pause_after)

    def finalizes(self, *, rolls: bool) -> bool:
        """Return whether the run finalizes levels. `rolls`: its plan replaces nodes."""
        return self.plans_features and (self.finalize is FinalizePolicy.AFTER_APPROVAL or not rolls)

    def gates(self, cluster: ClusterSpec, terms: RunTerms | None = None) -> PaceNumbers:
        """Return the numbers of the pace in this cluster, at least those of an approved plan."""
        numbers = cluster.pace(self.pace)
        return numbers if terms is None else numbers.at_least(terms.numbers)

    def terms(self, cluster: ClusterSpec) -> RunTerms:
        """Return how the run carries out its plan. Raises UserError for conditions that the inventory does not have."""
        refuse_unknown_names(self.skip_conditions, cluster.conditions)
        return RunTerms(
            pace=self.pace,
            **asdict(self.gates(cluster)),
            gate_timeout_s=cluster.gate_timeout_s,
            rehearse=self.rehearse,
            traffic=self.traffic,
            every_change=self.action is None or cluster.feature_approval == ALWAYS,
            max_under_replicated=cluster.max_under_replicated,
            pause_after=self.pause_after,
            window=cluster.window,
            freeze_days=cluster.freeze_days,
            skip_conditions=self.skip_conditions,
        )

    def feature_order(self) -> FeatureOrder:
        """Return the requested feature levels. Raises UserError for an invalid request."""
        named = parse_requests(self.upgrade, self.downgrade)
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
