"""A run that ends early has no outcome of a later step, also if the cluster looks as at the end of the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.features.requests import FeatureAction
from kafka_rollout.gates.gate import GateKind
from kafka_rollout.model.pace import Pace
from kafka_rollout.model.plan import Lowering
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import CheckpointFile
from kafka_rollout.observation.cluster_ports import observe
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import FinalizePolicy, Request
from kafka_rollout.procedure.kinds import KINDS, build_report_of_run
from kafka_rollout.procedure.rehearsal import RehearsalServices, SaysLines
from kafka_rollout.procedure.runner import Runner
from kafka_rollout.releases.facts import KRAFT_VERSION, Release
from kafka_rollout.report.builders import record_traffic
from kafka_rollout.report.run_report import Outcome
from kafka_rollout.run.events import Event
from kafka_rollout.run.step_events import ContentsCompared, GatePassed, RollbackPlanned, Started, TrafficCompared
from kafka_rollout.run.view import CHANGES
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.integration.harness.faults.without_live import stage_no_live
from tests.traffic import has_traffic, traffic_of_run
from tests.unit.preparation.test_state_comparison import Approver

QUICK: dict[str, Any] = {"rehearse": False, "pace": Pace.FAST}
PROOFS = (GatePassed, ContentsCompared, TrafficCompared)
TELLS_AN_END = {Outcome.FINISHED, Outcome.ROLLED_NOT_FINALIZED, Outcome.ROLLED_BACK}


@dataclass(frozen=True, kw_only=True)
class Golden:
    """A run with its end. `of`: its procedure."""

    name: str
    of: RunOf
    request: Request
    outcome: Outcome
    release: Release = R391
    finalized: dict[str, int] | None = None
    turns_back: bool = False
    changes_levels: bool = True
    lowering: Lowering = Lowering.ONLINE


R421, R401 = Release(4, 2, 1), Release(4, 0, 1)
DEFAULT_LEVELS = {
    name: one.default_level
    for name, one in FakeCluster(R431).catalogue.get(R431).features.items()
    if name != KRAFT_VERSION
}
LEVELS = {"metadata.version": 29, "share.version": 1}
LATER = Request(target=R431, finalize=FinalizePolicy.LATER, **QUICK)
GOLDEN = (
    Golden(
        name="an upgrade with its levels",
        of=RunOf.UPGRADE,
        request=replace(LATER, finalize=FinalizePolicy.AFTER_APPROVAL),
        outcome=Outcome.FINISHED,
    ),
    Golden(
        name="an upgrade without its levels",
        of=RunOf.UPGRADE,
        request=LATER,
        changes_levels=False,
        outcome=Outcome.ROLLED_NOT_FINALIZED,
    ),
    Golden(
        name="a patch release with test traffic",
        of=RunOf.UPGRADE,
        request=replace(LATER, traffic=True),
        changes_levels=False,
        outcome=Outcome.FINISHED,
        release=Release(4, 3, 0),
        finalized=dict(DEFAULT_LEVELS),
    ),
    Golden(
        name="a rollback",
        of=RunOf.UPGRADE,
        request=LATER,
        outcome=Outcome.ROLLED_BACK,
        turns_back=True,
    ),
    Golden(
        name="an online downgrade",
        of=RunOf.DOWNGRADE,
        request=Request(target=R401, level=23, **QUICK),
        outcome=Outcome.FINISHED,
        release=R431,
        finalized=LEVELS,
    ),
    Golden(
        name="a live downgrade",
        of=RunOf.DOWNGRADE,
        request=Request(target=R421, lowering=Lowering.LIVE, **QUICK),
        outcome=Outcome.FINISHED,
        release=R431,
        finalized={"metadata.version": 30},
        lowering=Lowering.LIVE,
    ),
    Golden(
        name="an offline downgrade",
        of=RunOf.DOWNGRADE,
        request=Request(target=R421, lowering=Lowering.OFFLINE, **QUICK),
        outcome=Outcome.FINISHED,
        release=R431,
        finalized={"metadata.version": 30},
        lowering=Lowering.OFFLINE,
    ),
    Golden(
        name="a change of levels",
        of=RunOf.FEATURES,
        request=Request(action=FeatureAction.UPGRADE_ALL, **QUICK),
        outcome=Outcome.FINISHED,
        release=R431,
        finalized={"metadata.version": 25},
    ),
    Golden(
        name="a change of levels that waits for no node",
        of=RunOf.FEATURES,
        request=Request(action=FeatureAction.UPGRADE_ALL, waits=False, **QUICK),
        outcome=Outcome.FINISHED,
        release=R431,
        finalized={"metadata.version": 25},
    ),
    Golden(
        name="a restart",
        of=RunOf.RESTART,
        request=Request(**QUICK),
        changes_levels=False,
        outcome=Outcome.FINISHED,
    ),
)
NAMES = [one.name for one in GOLDEN]


def test_each_kind_of_run_has_a_golden_run() -> None:
    assert {one.of for one in GOLDEN} == set(KINDS)


class Services(RehearsalServices):
    """Test traffic that lost nothing."""

    def stop(self) -> None:
        if has_traffic(self.ports.run.events()):
            record_traffic(self.ports, traffic_of_run(self.ports.run.events()))


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A golden run at its end. `outcome`: with other events, and the cluster and the documents of the end."""

    events: tuple[Event, ...]
    outcome: Callable[[tuple[Event, ...]], Outcome]


RunToEnd = Callable[[Golden], Ended]


@dataclass(frozen=True)
class OtherEvents:
    """The history of a run with other events. Documents are those of the end."""

    store: Any
    of: tuple[Event, ...]
    attachment: Callable[..., Any]

    def events(self) -> tuple[Event, ...]:
        return self.of

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@pytest.fixture
def run_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunToEnd:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)

    def run(golden: Golden) -> Ended:
        if golden.lowering is Lowering.OFFLINE:
            stage_no_live(monkeypatch)
        cluster = FakeCluster(golden.release, finalized=golden.finalized)
        cluster.java = 17
        for node in cluster.nodes.values():  # written after the run has changed the levels
            node.checkpoints.append(
                CheckpointFile(node_id=0, path="x", end_offset=500, epoch=3, size=1, modified_at=4e9)
            )
        ports = fake_ports(cluster, tmp_path)
        runner = partial(
            Runner,
            ports=ports,
            procedure=KINDS[golden.of].procedure,
            request=golden.request,
            answers=Approver(),
            services=Services(ports),
            progress=SaysLines(lambda line: None),
        )
        assert runner().run()
        if golden.turns_back:
            assert runner().roll_back("Errors of clients.")
        assert ports.run.load_plan().lowering is golden.lowering
        state, plan, events = observe(ports), ports.run.load_plan(), ports.run.events()
        monkeypatch.setattr("kafka_rollout.report.builders.observe", lambda ports: state)
        attachment, procedure = cache(ports.run.attachment), KINDS[golden.of].procedure

        def outcome(of: tuple[Event, ...]) -> Outcome:
            told = replace(ports, run=OtherEvents(ports.run, of, attachment))
            return build_report_of_run(Run(told, plan), procedure=procedure).outcome

        return Ended(events=events, outcome=outcome)

    return run


@pytest.mark.parametrize("golden", GOLDEN, ids=NAMES)
def test_an_outcome_comes_after_all_of_its_proofs(golden: Golden, run_to_end: RunToEnd) -> None:
    ended = run_to_end(golden)
    events = ended.events
    outcomes = [ended.outcome(events[:number]) for number in range(len(events) + 1)]
    assert outcomes[-1] == golden.outcome
    proved = max(number for number, event in enumerate(events, start=1) if isinstance(event, PROOFS))
    early = {
        f"{outcome} after event {number} of {len(events)} ({events[number - 1].kind if number else 'none'})"
        for number, outcome in enumerate(outcomes[:proved])
        if outcome in TELLS_AN_END and (not golden.turns_back or outcome is golden.outcome)
    }
    assert not early
    changed = min(number for number, event in enumerate(events, start=1) if isinstance(event, (*CHANGES, Started)))
    assert Outcome.REFUSED not in outcomes[changed:], "it says that nothing was changed"
    assert not set(outcomes[:changed]) - {Outcome.REFUSED, Outcome.STOPPED}
    needed = [number for number, event in enumerate(events) if _is_needed(golden, event, events[number + 1 :])]
    assert len(needed) >= (6 if golden.of is not RunOf.FEATURES else 3 if golden.request.waits else 1)
    kept = {number: ended.outcome((*events[:number], *events[number + 1 :])) for number in needed}
    assert not {f"{events[number]}: {outcome}" for number, outcome in kept.items() if outcome in TELLS_AN_END}


def _is_needed(golden: Golden, event: Event, later: Sequence[Event]) -> bool:
    """Return whether the outcome of the run needs this proof: no later one can stand for it."""
    match event:
        case GatePassed(ref=ref):
            is_of_end = not golden.turns_back or not any(isinstance(one, RollbackPlanned) for one in later)
            proofs = () if golden.turns_back else KINDS[golden.of].procedure.proofs if golden.changes_levels else ()
            return ref.kind in proofs or (ref.kind is GateKind.AFTER_START and is_of_end)
        case ContentsCompared() | TrafficCompared():
            return not golden.turns_back and not any(isinstance(one, type(event)) for one in later)
    return False
