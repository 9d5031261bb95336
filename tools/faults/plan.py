"""The plan of a campaign: rounds, scenarios and faults as a pure function of the seed.

A round is one cluster. Its scenarios follow each other: each begins in the state in which the one before ends. A fault
happens a given time after a moment of the run, such as the second stop of a node, so that a repeated campaign hits the
same place on a slower machine too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tools.faults.kinds import FACTS, HOSTS, Hits, Kind

SEPARATE, COMBINED = "separate", "combined"
SQLITE, POSTGRES = "sqlite", "postgres"
_PAIRS = (("4.2.1", "4.3.1"), ("4.2.1", "4.3.1"), ("3.9.1", "4.3.1"))  # older, newer; by weight
SCENARIOS_IN_A_ROUND = 5
_NODES = {SEPARATE: 6, COMBINED: 3}
_LATEST_S = 5.0  # of a fault after its moment


class Procedure(StrEnum):
    UPGRADE = "upgrade"
    UPGRADE_AND_FINALIZE = "upgrade-and-finalize"
    ROLL_BACK = "roll-back"
    DOWNGRADE = "downgrade"
    LIVE_DOWNGRADE = "live-downgrade"
    OFFLINE_DOWNGRADE = "offline-downgrade"
    RAISE_LEVELS = "raise-levels"
    LOWER_FEATURE = "lower-feature"
    RAISE_FEATURE = "raise-feature"


class Stand(StrEnum):
    """What the cluster runs between two scenarios."""

    OLD = "old"  # the older release
    ROLLED = "rolled"  # the newer release at the levels of the older one
    FINALIZED = "finalized"  # the newer release at its own levels
    LOWERED = "lowered"  # as FINALIZED, without the feature that RAISE_FEATURE raises


# Stand → procedure → next stand.
_NEXT = {
    Stand.OLD: {
        Procedure.UPGRADE: Stand.ROLLED,
        Procedure.UPGRADE_AND_FINALIZE: Stand.FINALIZED,
        Procedure.ROLL_BACK: Stand.OLD,
    },
    Stand.ROLLED: {Procedure.DOWNGRADE: Stand.OLD, Procedure.RAISE_LEVELS: Stand.FINALIZED},
    Stand.FINALIZED: {
        Procedure.LOWER_FEATURE: Stand.LOWERED,
        Procedure.LIVE_DOWNGRADE: Stand.OLD,
        Procedure.OFFLINE_DOWNGRADE: Stand.OLD,
    },
    Stand.LOWERED: {Procedure.RAISE_FEATURE: Stand.FINALIZED},
}
_NODE_EVENTS = ("stopping", "stopped", "started", "passed")
_LEVELS = (("finalizing", 1), ("finalized", 1))
_SNAPSHOT = (("offline-stopping", 1), ("offline-chosen", 1), ("offline-snapshot", 1))


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Moment:
    """The `nth` event of a kind in a run; events of different nodes are different events, a repetition is none."""

    event: str
    nth: int

    def __str__(self) -> str:
        return f"{self.event} {self.nth}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`elsewhere`: not the node of the moment. `pick` chooses among the possible nodes. `shift_s`: of a clock."""

    number: int
    kind: Kind
    at: Moment
    delay_s: float
    for_s: float
    elsewhere: bool
    pick: int
    shift_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """`turns_after`: nodes that start before a run turns back (ROLL_BACK). `traffic`: also the tool's test traffic."""

    number: int
    procedure: Procedure
    begins: Stand
    ends: Stand
    traffic: bool
    turns_after: int
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    number: int
    layout: str
    older: str
    newer: str
    database: str
    scenarios: tuple[Scenario, ...]

    @property
    def faults(self) -> int:
        return sum(len(scenario.faults) for scenario in self.scenarios)


def rounds(seed: int, runtime: str, kinds: Sequence[Kind], density: float, *, first: int = 1) -> Iterator[Round]:
    """All rounds of a campaign, without an end. `density`: mean number of faults for each moment of a run."""
    number = first
    while True:
        yield make_round(seed, runtime, number, kinds, density)
        number += 1


def make_round(seed: int, runtime: str, number: int, kinds: Sequence[Kind], density: float) -> Round:
    source = random.Random(f"{seed} {runtime} {number}")
    layout = source.choice((SEPARATE, SEPARATE, COMBINED))
    older, newer = source.choice(_PAIRS)
    database = source.choice((SQLITE, POSTGRES))
    stand, scenarios = Stand.OLD, []
    for scenario in range(1, SCENARIOS_IN_A_ROUND + 1):
        possible = [each for each in _NEXT[stand] if _fits(each, layout, older)]
        procedure = source.choice(possible)
        ends = _NEXT[stand][procedure]
        turns_after = source.randint(1, _NODES[layout])
        moments = moments_of(procedure, layout, turns_after)
        scenarios.append(
            Scenario(
                number=scenario,
                procedure=procedure,
                begins=stand,
                ends=ends,
                traffic=source.random() < 0.3,
                turns_after=turns_after,
                faults=tuple(_faults(source, moments, kinds, density)),
            )
        )
        stand = ends
    return Round(number=number, layout=layout, older=older, newer=newer, database=database, scenarios=tuple(scenarios))


def _fits(procedure: Procedure, layout: str, older: str) -> bool:
    """A live downgrade needs controllers of their own, and a release without level changes in between is too old."""
    live = layout == SEPARATE and older != "3.9.1"
    return (procedure is not Procedure.LIVE_DOWNGRADE or live) and (
        procedure is not Procedure.OFFLINE_DOWNGRADE or not live
    )


def moments_of(procedure: Procedure, layout: str, turns_after: int = 0) -> tuple[Moment, ...]:
    """The moments that a run without faults has, in their order."""
    nodes = _NODES[layout]
    rolled = [(event, nth) for nth in range(1, nodes + 1) for event in _NODE_EVENTS]
    plan = [("plan", 1), ("approval", 1)]
    match procedure:
        case Procedure.UPGRADE | Procedure.DOWNGRADE:
            listed = [*plan, *rolled]
        case Procedure.UPGRADE_AND_FINALIZE:
            listed = [*plan, *rolled, *_LEVELS]
        case Procedure.ROLL_BACK:
            forth = rolled[: turns_after * len(_NODE_EVENTS)]
            # The nodes that go back are counted on.
            back = [(event, turns_after + nth) for nth in range(1, turns_after + 1) for event in _NODE_EVENTS]
            listed = [*plan, *forth, *back]
        case Procedure.LIVE_DOWNGRADE:
            installed = [("offline-installed", nth) for nth in range(1, nodes // 2 + 1)]
            listed = [*plan, *_SNAPSHOT, *installed, ("live-lowered", 1), *rolled]
        case Procedure.OFFLINE_DOWNGRADE:
            installed = [("offline-installed", nth) for nth in range(1, nodes + 1)]
            listed = [*plan, *_SNAPSHOT, *installed, ("offline-no-return", 1)]
        case _:
            listed = [("plan", 1), ("approval", 1), *_LEVELS]
    return tuple(Moment(event=event, nth=nth) for event, nth in listed)


def _faults(source: random.Random, moments: Sequence[Moment], kinds: Sequence[Kind], density: float) -> Iterator[Fault]:
    number = 0
    for moment in moments:
        expected = density
        while source.random() < expected:
            number += 1
            yield _fault(source, number, moment, kinds)
            expected /= 2


def _fault(source: random.Random, number: int, moment: Moment, kinds: Sequence[Kind]) -> Fault:
    kind = source.choices(kinds, [FACTS[each].weight for each in kinds])[0]
    shortest, longest = FACTS[kind].seconds
    shift = source.choice((-1, 1)) * source.randint(60, 3000)
    return Fault(
        number=number,
        kind=kind,
        at=moment,
        delay_s=round(source.uniform(0, _LATEST_S), 2),
        for_s=round(source.uniform(shortest, longest), 1),
        elsewhere=moment.event == "passed" or source.random() < 0.35,
        pick=source.randrange(1000),
        shift_s=shift if kind is Kind.TURN_CLOCK else 0,
    )


def hosts_of(layout: str) -> int:
    return _NODES[layout]


def is_of_node(kind: Kind) -> bool:
    return FACTS[kind].hits not in (Hits.TOOL, Hits.DATABASE)


def needs_hosts(kind: Kind) -> bool:
    return FACTS[kind].runtimes == (HOSTS,)
