"""Features where those who are asked do not agree: nodes of different epochs, and a controller that looks at less."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.system.files import write_whole
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.gates.gate import Gate, GateKind
from kafka_rollout.nodes.runtimes.local_process import LocalProcessRuntime
from kafka_rollout.observation.run import Run
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.roll.gate_checks import check_gate
from tests.integration.conftest import MakeCluster
from tests.integration.harness.faults.cable import Cable
from tests.integration.harness.feature_harness import Command, codes, opened, planned
from tests.integration.harness.shell import APPROVED
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

YES = " ".join(word.replace(" ", "-") for word in APPROVED)


@pytest.fixture
def lagging(make_cluster: MakeCluster, release_cache: ReleaseCache) -> Iterator[tuple[LocalCluster, Cable]]:
    """Two brokers and a controller of 3.4.1; broker 2 hears of the controller through a cable."""
    made = make_cluster("3.4.1", name="lagging", layout="separate", size=2, metadata_version="3.3-IV3", start=False)
    spec = replace(made.spec, nodes=tuple(node for node in made.spec.nodes if node.node_id != 102))
    controller = str(spec.node(101).controller_address)
    cable = Cable(controller)
    for node in spec.nodes:
        path = Path(str(node.directory)) / "server.properties"
        voter = f"101@{cable.address if node.node_id == 2 else controller}"
        path.write_text(f"{path.read_text()}\ncontroller.quorum.voters={voter}\n")
    write_whole(made.inventory_path, dump_cluster(spec).encode(), mode=0o644)
    cluster = replace(made, spec=spec, runtime=LocalProcessRuntime(spec, release_cache))
    cluster.start()
    yield cluster, cable
    cable.close()


def test_the_higher_epoch_wins_while_a_broker_has_not_heard_of_the_level(
    lagging: tuple[LocalCluster, Cable], command: Command, tmp_path: Path
) -> None:
    cluster, cable = lagging
    cable.cut()

    code, told, error = command(cluster, f"features set --upgrade {METADATA_VERSION}:8 {YES}")

    assert (code, "ExistingFinalizedMaxVersion: 7   NewFinalizedMaxVersion: 8   Result: OK" in told) == (0, True), error
    code, told, _ = command(cluster, "features describe --json")
    described = json.loads(told)
    newer, older = described["nodes"]["1"], described["nodes"]["2"]
    assert (newer["finalized"], older["finalized"]) == ({METADATA_VERSION: 8}, {METADATA_VERSION: 7})
    assert described["nodes"]["101"]["epoch"] is None, "controllers before 3.5 tell none: the oldest"
    assert older["epoch"] < newer["epoch"] == described["epoch"]
    assert (code, described["finalized"]) == (0, {METADATA_VERSION: 8})
    _, told, _ = command(cluster, "features describe")
    assert f"Node 2 reports {METADATA_VERSION} 7 instead of 8 (epoch {older['epoch']})" in told
    # The older answer would have it sent once more, and the gate waits for that broker by its name.
    code, told, _ = command(cluster, f"features set --upgrade {METADATA_VERSION}:8 {YES}")
    assert (code, "Result: OK (already there)" in told) == (0, True)
    with opened(cluster, tmp_path / "gate") as ports:
        plan = planned(ports, up=f"{METADATA_VERSION}:8")
        waits = check_gate(Run(ports, plan), Gate(kind=GateKind.FINALIZED))
        assert not waits.passes
        assert "node 2" in waits.waits_for

        cable.mend()

        wait_until(lambda: check_gate(Run(ports, plan), Gate(kind=GateKind.FINALIZED)).passes, 240)
    _, told, _ = command(cluster, "features describe")
    assert "instead of" not in told


@pytest.fixture(scope="module", params=["3.9.1", "4.0.1"])
def dynamic(make_shared_cluster: MakeCluster, request: pytest.FixtureRequest) -> LocalCluster:
    """kraft.version 1 needs metadata.version 21, by these releases' own word."""
    return make_shared_cluster(request.param, name="needed", size=1, quorum="dynamic", metadata_version="3.9-IV0")


def test_a_feature_that_no_binary_knows_could_be_taken_away_up_to_39_and_never_set(
    dynamic: LocalCluster, tmp_path: Path
) -> None:
    with opened(dynamic, tmp_path / "home") as ports:
        (deleted,) = ports.admin.update_features({"no.such.version": 0}, validate_only=True)
        (raised,) = ports.admin.update_features({"no.such.version": 1}, validate_only=True)
        runs = ports.runtime.process(dynamic.spec.nodes[0]).installed
    assert deleted.accepted == (runs == Release(3, 9, 1)), deleted
    assert deleted.accepted or "Feature no.such.version not found" in deleted.message
    assert raised.error == "INVALID_UPDATE_VERSION"


def test_a_finalized_feature_outside_the_request_keeps_what_it_needs_which_the_controller_would_take_away(
    dynamic: LocalCluster, command: Command, tmp_path: Path
) -> None:
    code, told, error = command(dynamic, f"features set --downgrade {METADATA_VERSION}:20 --dry-run")

    assert code == 3, (told, error)
    assert f"kraft.version 1 stays finalized and requires {METADATA_VERSION} 21." in told
    assert f"Keep {METADATA_VERSION} at 21 or higher" in told
    with opened(dynamic, tmp_path / "home2") as ports:
        plan = planned(ports, down=f"{METADATA_VERSION}:20")
        assert {"FEATURE-DEPENDENCY", "CONTROLLER-WOULD-ACCEPT"} <= codes(plan)
        ports.lock.acquire(ports.cluster.name, ports.run_id, "a test", for_s=300)
        with ports.lock.acting(ports.cluster.name, ports.run_id, "Lowering a level"):
            (answer,) = ports.admin.update_features({METADATA_VERSION: 20}, validate_only=False)
        ports.lock.release(ports.cluster.name, ports.run_id)
        assert answer.accepted, "the real controller looks at the request only"
        wait_until(lambda: ports.admin.features(dynamic.spec.nodes[0]).finalized[METADATA_VERSION] == 20, 120)
        assert ports.admin.features(dynamic.spec.nodes[0]).finalized["kraft.version"] == 1
