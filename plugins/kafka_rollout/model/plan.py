"""The plan: the ordered steps from the observed to the planned state. It is frozen and identified by a hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property

from kafka_rollout.base.errors import UserError, result_code
from kafka_rollout.base.findings import (
    CHECK_FAILED,
    NOT_OBSERVABLE,
    Checked,
    CheckResult,
    Finding,
    Need,
    UnknownKind,
    UnknownValue,
    all_findings,
    codes_of,
    results_of,
)
from kafka_rollout.base.internal_topics import METADATA_TOPIC
from kafka_rollout.model.pace import Pace, PaceNumbers
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.releases.facts import METADATA_VERSION, Release


class Direction(StrEnum):
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    RESTART = "restart"  # on the release that the nodes run


class Undo(StrEnum):
    """Whether today's Kafka releases can return a feature to its previous level."""

    POSSIBLE = "possible"
    IMPOSSIBLE = "impossible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStep:
    """The replacement of one node in a release step."""

    node_id: int
    name: str
    section: str
    """`controllers` (combined nodes included) or `brokers`."""
    active_controller: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Nodes that are restarted together."""

    node_ids: tuple[int, ...]
    ends: str
    """Why the batch has no further node, as a clause."""
    rack: str = ""
    """broker.rack of the nodes; empty if they have none, or if the batch ignores racks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseStep:
    """All nodes from one release to the next."""

    from_release: Release
    to_release: Release
    reason: str
    """Why the plan needs this release step."""
    order: tuple[NodeStep, ...]
    batches: tuple[Batch, ...] = ()
    """The nodes of `order` in the same order; empty: one node at a time."""

    @property
    def key(self) -> str:
        """Key of the release step in the run history: `3.9.1-to-4.3.1`."""
        return f"{self.from_release}-to-{self.to_release}"

    @property
    def restarts(self) -> bool:
        """Whether the nodes are restarted on the release that they run."""
        return self.from_release == self.to_release

    @property
    def starts_older(self) -> bool:
        """Whether the nodes get an older release: of a rollback of an upgrade, or of a downgrade."""
        return self.to_release < self.from_release

    def reversed(self) -> ReleaseStep:
        """The rollback of this release step: same gates, nodes and batches in reverse order."""
        return ReleaseStep(
            from_release=self.to_release,
            to_release=self.from_release,
            reason=f"Roll back to {self.from_release}.",
            order=tuple(reversed(self.order)),
            batches=tuple(
                replace(one, node_ids=one.node_ids[::-1], ends="the rollback keeps the batches of the plan")
                for one in reversed(self.batches)
            ),
        )

    @property
    def first_batch(self) -> int | None:
        """The place of the first batch of several nodes in `batches`; None if there is none."""
        return next((at for at, batch in enumerate(self.batches) if len(batch.node_ids) > 1), None)

    @property
    def node_ids_together(self) -> tuple[tuple[int, ...], ...]:
        """The nodes of each batch in their order; each node alone if the step has no batches."""
        return tuple(one.node_ids for one in self.batches) or tuple((one.node_id,) for one in self.order)

    def batch_of(self, node_id: int) -> tuple[int, ...]:
        """Return the nodes of the batch of a node; the node alone if the step has no batches."""
        return next((one.node_ids for one in self.batches if node_id in one.node_ids), (node_id,))

    def node_step(self, node_id: int) -> NodeStep | None:
        return next((node_step for node_step in self.order if node_step.node_id == node_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStep:
    """The nodes of a release step that restart together; one node is a batch of one. The unit of a roll."""

    release_step: ReleaseStep
    """A release step of the plan, or the reverse of one in a rollback."""
    node_ids: tuple[int, ...]
    """In the order of the release step."""
    index: int
    """The place among all batches of the roll, or of the rollback, from 0."""

    @property
    def key(self) -> tuple[tuple[str, int], ...]:
        """The node steps (release step, node id) of the batch, as the run history names them."""
        return tuple((self.release_step.key, node_id) for node_id in self.node_ids)


def reversed_key(release_step: str) -> str:
    """Return the key of the rollback of the release step with this key."""
    source, _, target = release_step.partition("-to-")
    return f"{target}-to-{source}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureChange:
    """One feature to finalize."""

    feature: str
    current: int
    """0 if it is not finalized."""
    target: int
    undo: Undo
    undo_source: str
    """The source of `undo`."""
    loss: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One line of a node's configuration that the run sets, or removes (`value` None), with a release."""

    node_id: int
    release: Release
    key: str
    value: str | None
    reason: str


def changed_lines(node: NodeSpec, release: Release, changes: Iterable[ConfigChange]) -> dict[str, str | None]:
    """Return the lines of `changes` for this node and release (None: removed).

    They are all that an installation changes: `config_changes` has those of the inventory's release_overrides already.
    """
    return {
        change.key: change.value for change in changes if change.node_id == node.node_id and change.release == release
    }


def changes_of_overrides(cluster: ClusterSpec, node: NodeSpec, releases: Iterable[Release]) -> list[ConfigChange]:
    """Return the lines of release_overrides for these releases, as a plan to them has them."""
    return [
        ConfigChange(node_id=node.node_id, release=release, key=key, value=value, reason="")
        for release in releases
        for key, value in cluster.release_overrides.get(str(release), {}).items()
    ]


def overridden_lines(cluster: ClusterSpec, path: Iterable[Release]) -> dict[Release, dict[str, str]]:
    """Return the lines of release_overrides in a node's file on each release of `path`, in its order.

    A line stays on the releases after it.
    """
    lines: dict[str, str] = {}
    found: dict[Release, dict[str, str]] = {}
    for release in path:
        lines = found[release] = lines | dict(cluster.release_overrides.get(str(release), {}))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultChange:
    """One change of the dynamic configuration that comes with a raised feature level."""

    key: str
    node_id: int | None = None
    """None for the cluster-wide default of all brokers."""
    before: str | None
    """None if it is not set."""
    after: str | None
    """None if it is not set."""
    by_run: bool
    """The run sets it before it raises the level; otherwise the active controller writes it together with the level."""

    @property
    def resource(self) -> str:
        """Name of the resource, as in ClusterInventory.configs."""
        return "brokers" if self.node_id is None else f"broker {self.node_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms:
    """How the run carries out its plan, as its starter chose it and the approver sees it."""

    pace: Pace
    soak_s: float
    """As in PaceNumbers, as the cluster had them for the pace when the plan was made."""
    checks: int
    """As in PaceNumbers."""
    interval_s: float
    """As in PaceNumbers."""
    gate_timeout_s: float
    rehearse: bool
    """The change was tried on a copy first."""
    traffic: bool
    every_change: bool
    """A feature change needs an approval also if it raises a level that Kafka can lower again."""
    max_under_replicated: int | None = None
    """Partitions of other nodes at a stop; None without a limit."""
    pause_after: str = ""
    """The first node or batch, each node or rack, or a number of nodes."""
    window: str = ""
    """When nodes can be stopped, as in `base/maintenance.py`."""
    freeze_days: tuple[str, ...] = ()
    """When nodes can be stopped, as in `base/maintenance.py`."""
    skip_conditions: tuple[str, ...] = ()
    """Conditions from outside that the gates do not check."""

    @property
    def numbers(self) -> PaceNumbers:
        """The numbers of the pace that were approved."""
        return PaceNumbers(soak_s=self.soak_s, checks=self.checks, interval_s=self.interval_s)


class Lowering(StrEnum):
    """How a run lowers metadata.version, the least disruptive way first.

    Both ways of stopping replace the metadata log by a snapshot at the lower level.
    """

    ONLINE = "online"
    """The controller lowers it while all nodes serve."""
    LIVE = "live"
    """While only the controllers are stopped; then the nodes are rolled."""
    OFFLINE = "offline"
    """While all nodes are stopped, with the binary."""


@dataclass(frozen=True, kw_only=True)  # no slots: it keeps its hash
class Plan:
    """The plan of a run, frozen by its first task. `release_steps` is empty if every node already runs the target."""

    cluster: str
    cluster_id: str
    direction: Direction
    source: Release
    target: Release
    release_steps: tuple[ReleaseStep, ...]
    feature_changes: tuple[FeatureChange, ...]
    config_changes: tuple[ConfigChange, ...]
    findings: tuple[Finding, ...]
    unsafe: bool = False
    """Levels are lowered with UNSAFE_DOWNGRADE (KIP-1155), which accepts the loss of metadata."""
    lowering: Lowering = Lowering.ONLINE
    """How the run lowers metadata.version."""
    accept_unavailable: tuple[str, ...] = ()
    """Names and patterns of the topics that can be unavailable while nodes restart."""
    default_changes: tuple[DefaultChange, ...] = ()
    """Dynamic configuration that changes with the feature levels."""
    unchecked: Mapping[str, tuple[int, ...]] | None = None
    """Counter of Kafka → nodes whose agents did not export it, so that the gates do not wait for it; None if no plan
    was made of a cluster."""
    other_claims: tuple[str, ...] = ()
    """Nonces of the claims that runs of other databases had left when the plan was made, and that had ended."""
    terms: RunTerms | None = None
    """None before the run begins."""
    checks: tuple[CheckResult, ...] = ()
    """What was checked, in its order."""

    @property
    def unknown_checks(self) -> tuple[CheckResult, ...]:
        """The checks that could not observe everything. That they find nothing is no evidence."""
        return tuple(one for one in self.checks if one.unknowns)

    @property
    def unknowns(self) -> Mapping[str, UnknownValue]:
        """Everything that the approvers read as unknown, by `check=subject`."""
        return {what.name(one.id): what for one in self.checks for what in one.unknowns}

    @property
    def hidden(self) -> Mapping[str, str]:
        """What can hide a blocker, as `check=subject` → why it is unknown. An approver accepts it with the plan."""
        return {
            what.name(one.id): what.sentence
            for one in self.checks
            if one.can_block
            for what in one.unknowns
            if what.kind is UnknownKind.HIDDEN
        }

    @property
    def exit_code(self) -> int:
        """Exit code of a command that shows the plan and changes nothing."""
        return result_code(blocks=bool(self.blockers), can_hide=any(one.can_hide_a_blocker for one in self.checks))

    def with_checked(self, checked: Iterable[Checked], unknown: Mapping[Need, str] | None = None) -> Plan:
        """Return the plan with these checks, and without the findings and results that they had before.

        `unknown`: as in `Checked.result`. Findings and results are not part of the plan's hash.
        """
        ran = tuple(checked)
        codes = codes_of(one.check for one in ran) - {NOT_OBSERVABLE.code}  # it belongs to several checks
        titles = {one.check.title for one in ran}
        before = [f for f in self.findings if f.code not in codes | {CHECK_FAILED.code}]
        checks = (*(c for c in self.checks if c.check not in titles), *results_of(ran, unknown or {}))
        failed = [
            CHECK_FAILED.found(f"{one.id}, {what.subject}", what.sentence, what.remedy or None)
            for one in checks
            if one.can_block
            for what in one.unknowns
            if what.kind is UnknownKind.FAILED
        ]
        return replace(self, findings=(*before, *all_findings(ran), *failed), checks=checks)

    @cached_property
    def hash(self) -> str:
        """SHA-256 (hex) of the planned changes, without observations: findings, `checks`, `unchecked` and
        `other_claims`."""
        planned = replace(self, findings=(), checks=(), unchecked=None)  # a plan has more observations than changes
        observed = {"findings", "checks", "unchecked", "other_claims"}
        what = {key: value for key, value in asdict(planned).items() if key not in observed}
        for step in what["release_steps"]:
            # Why a batch ends is an observation.
            step["batches"] = [one["node_ids"] for one in step["batches"]]
        return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()

    @property
    def restarts(self) -> bool:
        """Whether the run was started to restart nodes on their own release."""
        return self.direction is Direction.RESTART

    @property
    def changes_release(self) -> bool:
        """Whether a node moves to another release."""
        return any(not release_step.restarts for release_step in self.release_steps)

    @property
    def only_stops(self) -> frozenset[int] | None:
        """The only nodes that the run can stop; None: every node, because a rollback can stop it."""
        if self.changes_release:
            return None
        return frozenset(step.node_id for release_step in self.release_steps for step in release_step.order)

    @property
    def registration_step(self) -> ReleaseStep | None:
        """The restart of nodes that must register again before levels are raised (KAFKA-17492); None without one."""
        last = self.release_steps[-1] if self.release_steps and not self.restarts else None
        return last if last is not None and last.restarts else None

    @property
    def path(self) -> tuple[Release, ...]:
        """The releases on which the nodes start one after the other, the source first."""
        return (self.source, *dict.fromkeys(release_step.to_release for release_step in self.release_steps))

    @property
    def batch_steps(self) -> tuple[BatchStep, ...]:
        """The batches of all release steps, in the order in which they restart.

        A node stands in it once for each release step, and once more if it must register again.
        """
        found = [(step, node_ids) for step in self.release_steps for node_ids in step.node_ids_together]
        return tuple(
            BatchStep(release_step=step, node_ids=node_ids, index=index) for index, (step, node_ids) in enumerate(found)
        )

    @property
    def has_batches(self) -> bool:
        """Whether several nodes restart together."""
        return any(step.first_batch is not None for step in self.release_steps)

    @property
    def pinned_defaults(self) -> tuple[DefaultChange, ...]:
        """The cluster-wide defaults that the run sets before it raises a level."""
        return tuple(change for change in self.default_changes if change.by_run)

    @property
    def online_changes(self) -> tuple[FeatureChange, ...]:
        """The changes that the run requests from the controller; without metadata.version if a snapshot lowers it."""
        return tuple(
            c for c in self.feature_changes if self.lowering is Lowering.ONLINE or c.feature != METADATA_VERSION
        )

    @property
    def snapshot_changes(self) -> tuple[FeatureChange, ...]:
        """The changes that the run makes by a snapshot, while all nodes or all controllers are stopped."""
        return tuple(change for change in self.feature_changes if change not in self.online_changes)

    @property
    def way(self) -> str:
        """Source and target release, as a short text."""
        if self.restarts:
            return f"all nodes stay on {self.target}"
        return f"{self.source} → {self.target}" if self.source != self.target else f"features, on {self.target}"

    @property
    def lowered(self) -> dict[str, int]:
        """The planned level of every feature that the run lowers."""
        return {change.feature: change.target for change in self.feature_changes if change.target < change.current}

    @property
    def batches(self) -> tuple[tuple[int, ...], ...]:
        """The nodes of each batch of several nodes, in the order of the plan."""
        found = (ids for step in self.release_steps for ids in step.node_ids_together if len(ids) > 1)
        return tuple(dict.fromkeys(found))

    @property
    def levels(self) -> dict[str, int]:
        """The planned level of every changed feature."""
        return {change.feature: change.target for change in self.feature_changes}

    def config_changes_of(self, node_id: int, release: Release) -> tuple[ConfigChange, ...]:
        """Return what the run changes in the configuration of a node when it installs the release."""
        return tuple(c for c in self.config_changes if (c.node_id, c.release) == (node_id, release))

    @property
    def blockers(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity == "blocker")

    def release_step(self, key: str) -> ReleaseStep:
        """Return a release step, or the rollback of one, by its key. Raises UserError for an unknown key."""
        for release_step in self.release_steps:
            if release_step.key == key:
                return release_step
            if release_step.reversed().key == key:
                return release_step.reversed()
        raise UserError(
            f"The plan has no release step {key}.",
            remedy=f"It has {', '.join(h.key for h in self.release_steps) or 'none'}.",
        )


_INTERNAL = "__"
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-*?[]!")


def accepted_topics(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns sorted and without repetitions. Raises UserError for a pattern that no topic can have."""
    found = tuple(sorted(dict.fromkeys(pattern.strip() for pattern in patterns if pattern.strip())))
    for pattern in found:
        if not _LEGAL.issuperset(pattern):
            raise UserError(
                f"{pattern!r} is not the name or pattern of a topic.",
                remedy="Use letters, digits, '.', '_' and '-', and the wildcards '*', '?' and '[…]'.",
            )
    return found


def find_acceptance(patterns: Iterable[str], topic: str) -> str:
    """Return the first pattern that contains the topic; empty if none does.

    A wildcard does not match internal topics such as `__consumer_offsets`, unless its pattern begins with `__` too.
    """
    for pattern in patterns:
        if topic.startswith(_INTERNAL) and not pattern.startswith(_INTERNAL):
            continue
        if fnmatchcase(topic, pattern):
            return pattern
    return ""


def accepts_no_quorum(patterns: Iterable[str]) -> bool:
    """Return whether the metadata quorum can be unavailable: only its own name says so, no wildcard."""
    return METADATA_TOPIC in patterns
