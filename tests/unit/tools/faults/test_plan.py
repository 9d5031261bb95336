"""The plan of a campaign is a function of its seed, and its faults hit moments that its runs have."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from itertools import islice

import pytest

from tests.paths import ROOT
from tools.faults.kinds import FACTS, HOSTS, LOCAL, RUNTIMES, Kind, kinds_of
from tools.faults.plan import (
    COMBINED,
    SEPARATE,
    Procedure,
    Round,
    Stand,
    is_of_node,
    make_round,
    moments_of,
    rounds,
)

SEEDS = range(60)


def planned(seed: int, runtime: str = LOCAL, number: int = 1, density: float = 0.8) -> Round:
    return make_round(seed, runtime, number, kinds_of(runtime), density)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_seed_repeats_its_plan_and_another_seed_has_another(runtime: str) -> None:
    first = list(islice(rounds(7, runtime, kinds_of(runtime), 0.8), 5))
    assert first == list(islice(rounds(7, runtime, kinds_of(runtime), 0.8), 5))
    assert first != list(islice(rounds(8, runtime, kinds_of(runtime), 0.8), 5))
    assert len({str(each.scenarios) for each in first}) == 5, "the rounds of a seed differ"


def test_a_later_round_is_planned_without_the_ones_before_it() -> None:
    listed = list(islice(rounds(3, LOCAL, kinds_of(LOCAL), 0.8), 4))
    assert next(rounds(3, LOCAL, kinds_of(LOCAL), 0.8, first=4)) == listed[3]


def test_another_process_plans_the_same() -> None:
    code = (
        "from tools.faults.plan import make_round; from tools.faults.kinds import kinds_of\n"
        "print(repr(make_round(5, 'hosts', 2, kinds_of('hosts'), 1.0)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'plugins'}", "PYTHONHASHSEED": "5"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == repr(make_round(5, HOSTS, 2, kinds_of(HOSTS), 1.0))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_each_scenario_begins_where_the_one_before_ended(runtime: str) -> None:
    for seed in SEEDS:
        stand = Stand.OLD
        for scenario in planned(seed, runtime).scenarios:
            assert scenario.begins is stand
            stand = scenario.ends


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_faults_are_of_their_runtime_last_a_bounded_time_and_have_a_moment_of_their_run(runtime: str) -> None:
    seen: Counter[Kind] = Counter()
    for seed in SEEDS:
        of = planned(seed, runtime)
        for scenario in of.scenarios:
            moments = moments_of(scenario.procedure, of.layout, scenario.turns_after)
            for fault in scenario.faults:
                shortest, longest = FACTS[fault.kind].seconds
                assert runtime in FACTS[fault.kind].runtimes
                assert shortest <= fault.for_s <= longest <= 60
                assert 0 <= fault.delay_s <= 5
                assert fault.at in moments
                assert (fault.shift_s != 0) == (fault.kind is Kind.TURN_CLOCK)
                seen[fault.kind] += 1
    assert set(seen) == set(kinds_of(runtime))


def test_every_procedure_is_planned_and_only_where_it_is_possible() -> None:
    seen = set()
    for seed in SEEDS:
        of = planned(seed)
        seen |= {scenario.procedure for scenario in of.scenarios}
        live = of.layout == SEPARATE and of.older != "3.9.1"
        assert live or all(one.procedure is not Procedure.LIVE_DOWNGRADE for one in of.scenarios)
        assert not live or all(one.procedure is not Procedure.OFFLINE_DOWNGRADE for one in of.scenarios)
    assert seen == set(Procedure)


def test_a_higher_density_plans_more_faults_and_zero_none() -> None:
    def total(density: float) -> int:
        return sum(planned(seed, density=density).faults for seed in SEEDS)

    assert total(0) == 0 < total(0.3) < total(1.0)


def test_a_campaign_of_some_kinds_has_no_others() -> None:
    only = (Kind.KILL_TOOL, Kind.PAUSE_NODE)
    found = {fault.kind for seed in SEEDS for one in make_round(seed, LOCAL, 1, only, 1.0).scenarios
             for fault in one.faults}  # fmt: skip
    assert found == set(only)


def test_without_namespaces_a_local_campaign_keeps_its_nodes_on_the_network() -> None:
    kept = kinds_of(LOCAL, isolated=False)
    assert not {Kind.CUT_BROKER, Kind.PARTITION_CONTROLLER, Kind.FILL_DISK} & set(kept)
    assert Kind.KILL_NODE in kept
    assert kinds_of(HOSTS, isolated=False) == kinds_of(HOSTS)


def test_a_rollback_has_the_moments_of_the_nodes_that_go_forth_and_back() -> None:
    moments = [str(one) for one in moments_of(Procedure.ROLL_BACK, COMBINED, 2)]
    assert moments.count("stopping 2") == 1
    assert "stopping 4" in moments
    assert "stopping 5" not in moments


def test_kinds_of_nodes_are_those_that_need_a_target() -> None:
    assert not is_of_node(Kind.KILL_TOOL)
    assert not is_of_node(Kind.STOP_DATABASE)
    assert is_of_node(Kind.CUT_SSH)
    assert json.loads(json.dumps(str(Kind.CUT_SSH))) == "cut-ssh"
