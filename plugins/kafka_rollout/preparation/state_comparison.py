"""The state of a cluster before the first change of a run, and its comparison after the roll and after the levels.

Differences that the plan does not name need an approver. The approval accepts exactly the listed differences. What only
clients change does not count, except after an offline downgrade: no client acts while all nodes are stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kafka_rollout.base.errors import RefusedError, RolloutError, SkippedStepError
from kafka_rollout.base.wording import few, few_sentences
from kafka_rollout.control.approval import accepted_doubts, refuse_unproved
from kafka_rollout.model.broker_views import find_disagreements
from kafka_rollout.model.configs import ExpectedConfigs
from kafka_rollout.model.contents import (
    PARTS,
    ClusterInventory,
    Difference,
    compare_inventories,
    compare_states,
    digest,
    find_unserved_types,
    in_order,
    list_uncompared,
    new_settings,
)
from kafka_rollout.model.plan import Lowering
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, levels_now, until
from kafka_rollout.observation.run import ReadRun, Run
from kafka_rollout.planning.findings.configuration import find_expected_configs
from kafka_rollout.preparation.acl_meaning import access_differences
from kafka_rollout.preparation.node_checks import dropped_settings, node_configs
from kafka_rollout.rehearsal.result import read_inventory
from kafka_rollout.run.events import ApprovalOf, Decision, has
from kafka_rollout.run.projections.approvals import (
    newest_comparison,
    newest_decision,
)
from kafka_rollout.run.projections.nodes import cover_node_steps
from kafka_rollout.run.projections.runs import has_acted, run_of
from kafka_rollout.run.step_events import ComparedAfter, ContentsCompared, ContentsTaken, TrafficChecked
from kafka_rollout.run.traffic import OF_TRAFFIC, CoveredVerdict
from kafka_rollout.run.view import RunView

BEFORE = "state/before.json"
COMPARED = {
    ComparedAfter.ROLL: "state/after-roll.json",
    ComparedAfter.APPROVAL: "state/after-approval.json",
    ComparedAfter.LEVELS: "state/after-levels.json",
    ComparedAfter.DOWNGRADE: "state/after-downgrade.json",
    ComparedAfter.ROLLBACK: "state/after-rollback.json",
}
STATE_LOST = Difference(
    kind="state before the run",
    subject="cluster",
    sentence="The stored state of the cluster before the first change of the run is lost, so it is unknown what the "
    "run changed.",
)
NOT_COMPARED = (
    f"{OF_TRAFFIC}its records so far were not compared, so it is unknown whether any is lost. The line "
    "'test traffic so far' of the run history has the cause."
)
NOTHING_TO_ACCEPT = "The comparison found no difference that needs an approver."
_PATIENCE_S, _PAUSE_S = 8.0, 2.0  # a broker that was just unfenced, or applies a dynamic value
_NEXT_RECORD_S = 30.0  # to each broker, every ten seconds; a client reconnects within ten more, and clocks differ
_RECORDED = 20


def record_state(ports: ClusterPorts, *, leaderless: bool = True) -> ClusterInventory:
    """Store configuration, contents and ACLs. After the first change or comparison of the run, the first state stays
    as the base: a later one lacks what was lost since. `leaderless`: also without the offsets of partitions without a
    leader.

    Raises SkippedStepError if the run has changed or compared the cluster and the stored state is lost: the state of
    now is not that of before.
    """
    kept: ClusterInventory | None = ports.run.attachment(BEFORE, ClusterInventory)
    events = ports.run.events()
    if has_acted(events) or has(events, ContentsCompared):
        if kept is None:
            raise SkippedStepError(STATE_LOST.sentence)
        return kept
    inventory = read_inventory(ports.admin, ports.clock, ports.cluster.brokers, leaderless=leaderless, kept=True)
    ports.run.attach(BEFORE, inventory)
    ports.run.record(ContentsTaken(counts=inventory.counts))
    return inventory


def load_state_before(ports: ReadPorts) -> ClusterInventory | None:
    """Return the state before the first change of the run; None if none is stored."""
    kept: ClusterInventory | None = ports.run.attachment(BEFORE, ClusterInventory)
    return kept


def compare_with_state(run: Run, after: ComparedAfter) -> tuple[Difference, ...]:
    """Return and record every difference. Those that an approver accepted after the roll are accepted later too.

    After an approval the test traffic is not compared: `refuse_unproved_traffic` does that. After a rollback neither is
    the traffic, which ends then, nor the meaning of the ACLs: the source runs again, so nothing of the target is
    expected. A stored state that is lost is a difference: what changed is unknown.
    """
    before = load_state_before(run.ports)
    doubts = accepted_doubts(run)
    is_first = after in (ComparedAfter.ROLL, ComparedAfter.DOWNGRADE)
    accepted = frozenset[str]() if is_first else accepted_differences(run)
    is_downgrade, is_rollback = after is ComparedAfter.DOWNGRADE, after is ComparedAfter.ROLLBACK
    dropped = dropped_settings(run.ports)
    expected = replace(find_expected_configs(run.plan, run.ports.catalogue), dropped=dropped)
    if is_rollback:
        expected = ExpectedConfigs(dynamic=expected.dynamic, dropped=dropped)
    lowers = is_downgrade or is_rollback  # a downgrade that is rolled back leaves its levels lowered
    unserved = find_unserved_types(levels_now(run.ports).finalized.known()) if lowers else frozenset[str]()

    def differences_of(before: ClusterInventory, now: ClusterInventory) -> tuple[Difference, ...]:
        if is_downgrade and run.plan.lowering is Lowering.OFFLINE:
            return compare_inventories(before, now, unserved=unserved, dropped=dropped)
        return compare_states(before, now, expected, unserved=unserved)

    def compare() -> tuple[ClusterInventory, tuple[Difference, ...]]:
        now = read_inventory(
            run.ports.admin,
            run.ports.clock,
            run.cluster.brokers,
            configured_groups=before.group_configs if before is not None else (),
            leaderless=not is_downgrade,
        )
        differences = (STATE_LOST,) if before is None else differences_of(before, now)
        differences = (*_disagreements(run.ports, before, now), *differences)
        return now, tuple(
            replace(difference, accepted=difference.fails and difference.sentence in accepted)
            for difference in differences
        )

    now, differences = until(
        run.ports.clock,
        compare,
        lambda seen: before is None or not digest(seen[1]),
        for_s=_PATIENCE_S,
        every_s=_PAUSE_S,
    )
    access = () if is_rollback else _access(run, now)
    traffic = () if after in (ComparedAfter.APPROVAL, ComparedAfter.ROLLBACK) else record_traffic_so_far(run)
    differences = in_order(
        (
            *differences,
            *(replace(difference, accepted=difference.sentence in accepted) for difference in access),
            *(
                Difference("test traffic", "cluster", sentence, accepted=sentence in accepted or sentence in doubts)
                for sentence in traffic
            ),
        )
    )
    unread = {**(before.unasked if before is not None else {}), **now.unasked}
    unasked = {PARTS.get(part, part): why for part, why in unread.items()}
    run.history.attach(
        COMPARED[after],
        {
            "before": before.counts if before is not None else {},
            "after_counts": now.counts,
            "unasked": unasked,
            "new_settings": new_settings(differences),
            "digest": digest(differences),
            "differences": differences,
        },
    )
    failing = [difference.sentence for difference in differences if difference.fails]
    run.history.record(
        ContentsCompared(
            counts=now.counts,
            differences=len(differences),
            after=after,
            failing=len(failing),
            first=tuple(failing[:_RECORDED]),
            digest=digest(differences),
            uncompared=list_uncompared(unasked),
        )
    )
    return differences


def has_traffic(run: ReadRun) -> bool:
    """Return whether the run was started with test traffic. A change of levels alone has none."""
    return run.plan.terms is not None and run.plan.terms.traffic and run_of(run.history.events()) is not RunOf.FEATURES


def record_traffic_so_far(run: Run) -> tuple[str, ...]:
    """Compare the test traffic so far, while it goes on. Record and return what is lost or unknown, as sentences.

    Nothing for a run without traffic. An approver accepts a sentence by name, so an unknown result has the same one
    each time: its cause, which can contain times, is in the event.
    """
    if not has_traffic(run):
        return ()
    unproved, why = _unproved_traffic(run)
    run.history.record(TrafficChecked(unproved=unproved, why=why))
    return unproved


def _unproved_traffic(run: Run) -> tuple[tuple[str, ...], str]:
    events, brokers = run.history.events(), {broker.node_id for broker in run.cluster.brokers}

    def check() -> CoveredVerdict | None:
        verdict = run.ports.traffic.check()
        return None if verdict is None else cover_node_steps(verdict, events, brokers, planned=True)

    try:
        covered = until(
            run.ports.clock,
            check,
            lambda seen: seen is None or not seen.uncovered,
            for_s=_NEXT_RECORD_S,
            every_s=_PAUSE_S,
        )
    except RolloutError as error:
        return (NOT_COMPARED,), error.sentence
    if covered is None:
        return (f"{OF_TRAFFIC}the run was started with it, and none has run.",), ""
    return covered.unproved, ""


def _disagreements(ports: ReadPorts, before: ClusterInventory | None, now: ClusterInventory) -> tuple[Difference, ...]:
    """Return what not all brokers have the same of.

    A release reads a topic's setting that it does not have as nothing from 4.2 on (KAFKA-19851). Only those of one of
    the two releases are queried: a broker builds all settings of a topic to report one.
    """
    known = before or now
    one_sided = known.effective.topics.names ^ now.effective.topics.names
    views = ports.admin.views(groups=known.group_configs, topic_settings=one_sided)
    return tuple(
        Difference("metadata of a broker", subject, f"{sentence} Set it again: the new record reaches every broker.")
        for subject, sentence in find_disagreements(views).items()
    )


def _access(run: ReadRun, now: ClusterInventory) -> tuple[Difference, ...]:
    """Return what equal ACLs allow or deny otherwise, on the release that runs now."""
    return access_differences(run, now.acls, node_configs(run.ports)) if now.acls else ()


def accepted_differences(run: ReadRun) -> frozenset[str]:
    """Return the sentences of the differences after the roll that an approver accepted."""
    compared = run.history.attachment(COMPARED[ComparedAfter.ROLL])
    if compared is None or compared["digest"] not in RunView.of(run.history.events()).accepted_digests(run.plan.hash):
        return frozenset()
    return frozenset(difference["sentence"] for difference in compared["differences"] if counts(difference))


def counts(difference: Mapping[str, Any]) -> bool:
    """Return whether a stored difference needs an approver."""
    return not (difference["foretold"] or difference["by_clients"] or difference["accepted"])


def needs_no_acceptance(run: ReadRun, after: ComparedAfter) -> str | None:
    """Return why no approver is needed; None if the newest comparison found a difference that counts."""
    events = run.history.events()
    compared = newest_comparison(events, after)
    if compared is None or not compared.digest:
        return NOTHING_TO_ACCEPT
    if compared.digest in RunView.of(events).accepted_digests(run.plan.hash):
        return "An approver has accepted exactly these differences in this run."
    return None


def refuse_new_differences(run: Run) -> None:
    """Compare again before levels are raised: an answer can take days, and what is lost since then is lost one step
    before the rollback ends. Raise RefusedError for what no approver accepted.
    """
    found = [one.sentence for one in compare_with_state(run, ComparedAfter.APPROVAL) if one.fails]
    if found:
        raise RefusedError(
            f"No level is raised: the cluster differs from its state before the run: {few_sentences(found, limit=4)}",
            remedy="Correct the cause and repeat the command of the run (in a DAG: clear compare_after_roll with all "
            "downstream tasks): it compares again, and an approver accepts or rejects the differences. A run that "
            "replaces no node only compares again. For it, start a new run, whose approval of the levels lists them.",
        )


def refuse_unaccepted_differences(run: Run) -> None:
    """Raise RefusedError if the newest comparison found differences that no approver accepted. One right before the
    levels are raised is made again each time.

    The approver and the channel of the answer are checked again, as for every approval before an action.
    """
    events = [
        event
        for event in run.history.events()
        if not (isinstance(event, ContentsCompared) and event.after is ComparedAfter.APPROVAL)
    ]
    given = newest_decision(events, ApprovalOf.DIFFERENCES, run.plan.hash)
    if given is not None and given.decision == Decision.APPROVED:
        refuse_unproved(run.ports, given)
    if unaccepted := RunView.of(events).unaccepted(run.plan.hash):
        raise RefusedError(
            f"The cluster differs from its state before the run: {few(unaccepted.first)}",
            remedy="Correct the cause and repeat the comparison, or ask an approver to accept the differences.",
        )
