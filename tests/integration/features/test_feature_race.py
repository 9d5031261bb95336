"""KIP-584's race on real brokers: one with a narrower range comes after, and stands by while, a level is finalized."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.feature_updates.levels import check_for_narrower_nodes
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.releases.facts import Release
from tests.fakes.clock import FakeClock
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.dag_in_process import ProcessRuns
from tests.integration.harness.feature_harness import Command, meanwhile, opened
from tests.integration.harness.shell import APPROVED
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

NEW = Release(4, 3, 1)
REFUSED = "UNSUPPORTED_VERSION"


def set_levels(ports: ClusterPorts, **levels: int) -> dict[str, str]:
    """Asked of the controller as it is, none of our own checks before it; its error and message by feature."""
    targets = {name.replace("_", "."): level for name, level in levels.items()}
    ports.lock.acquire(ports.cluster.name, ports.run_id, "Set levels.", for_s=60)
    with ports.lock.acting(ports.cluster.name, ports.run_id, "Setting levels"):
        answers = ports.admin.update_features(targets, validate_only=False)
    ports.lock.release(ports.cluster.name, ports.run_id)
    return {answer.feature: f"{answer.error} {answer.message}".strip() for answer in answers}


def all_but_the_late_one_are_there(ports: ClusterPorts) -> bool:
    try:
        registered = ports.admin.registered()
    except TransientError:
        return False
    return (registered.brokers, registered.fenced, registered.controllers) == ({1}, set(), {101, 102})


def said(cluster: LocalCluster, node_id: int) -> str:
    return "\n".join(cluster.runtime.log_tail(cluster.spec.node(node_id), lines=400))


def test_a_broker_that_supports_less_is_kept_out_and_named_with_a_remedy_that_brings_it_back(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(str(NEW), layout="separate", size=2, metadata_version="3.9-IV0", start=False)
    late = cluster.spec.node(2)
    for node in cluster.spec.controllers_first:
        if node != late:
            cluster.runtime.start(node)
    with opened(cluster, tmp_path / "home") as ports:
        wait_until(lambda: all_but_the_late_one_are_there(ports), 240)
        assert set(set_levels(ports, group_version=1, share_version=1).values()) == {"NONE"}

        # Broker 2 comes now: 3.9.1 knows neither feature, 4.0.1 only one of them.
        for release, lacks in (("3.9.1", "group.version 1, share.version 1"), ("4.0.1", "share.version 1")):
            cluster.runtime.install(late, Release.parse(release))
            cluster.runtime.start(late)
            wait_until(lambda: REFUSED in said(cluster, 2) or cluster.runtime.process(late).pid is None, 240)
            (found,) = check_for_narrower_nodes(replace(ports, clock=FakeClock())).blockers
            assert (found.code, found.subject) == ("NODE-GONE-AFTER-FINALIZING", "node 2")
            assert f"its installed release {release} does not support {lacks}: " in found.sentence
            assert REFUSED in found.sentence, "the last words of its log"
            assert "upgrade it to a release that supports the level. Or lower the level" in found.remedy
            cluster.runtime.stop(late, deadline_s=0, force=True)
            (Path(str(late.directory)) / "logs" / "server.log").unlink()

        # The level taken back, it may join; it blocks the level from then on, also while it is down.
        assert set_levels(ports, share_version=0) == {"share.version": "NONE"}
        cluster.runtime.start(late)
        cluster.wait_until_ready()
        assert check_for_narrower_nodes(ports).ok
        for stopped in (False, True):
            if stopped:
                cluster.runtime.stop(late, deadline_s=60, force=True)
            told = set_levels(ports, share_version=1)["share.version"]
            assert told.startswith("INVALID_UPDATE_VERSION")
            assert "roker 2 does not support this feature" in told

        # Or it is brought to a release that supports it.
        cluster.runtime.install(late, NEW)
        cluster.runtime.start(late)
        cluster.wait_until_ready()
        assert set_levels(ports, share_version=1) == {"share.version": "NONE"}
        assert check_for_narrower_nodes(ports).ok


def becomes(cluster: LocalCluster, node_id: int, release: str) -> None:
    """Its process ends, and one of another release starts in its place."""
    node = cluster.spec.node(node_id)
    cluster.runtime.stop(node, deadline_s=60, force=True)
    cluster.runtime.install(node, Release.parse(release))
    (Path(str(node.directory)) / "logs" / "server.log").unlink(missing_ok=True)
    cluster.runtime.start(node)


def is_kept_out(cluster: LocalCluster, node_id: int) -> None:
    wait_until(
        lambda: REFUSED in said(cluster, node_id) or cluster.runtime.process(cluster.spec.node(node_id)).pid is None,
        240,
    )


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_the_race_is_lost_by_the_narrower_broker_and_told_by_the_command_and_by_the_dag(
    make_cluster: MakeCluster, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(str(NEW), layout="separate", size=2, metadata_version="3.9-IV0")
    delete, add = "features set --downgrade share.version:0", "features set --upgrade share.version:1"
    approved = " ".join(word.replace(" ", "-") for word in APPROVED)

    def joins_as_401() -> None:
        becomes(cluster, 2, "4.0.1")
        cluster.wait_until_ready()

    def comes_as_401() -> None:
        becomes(cluster, 2, "4.0.1")
        is_kept_out(cluster, 2)

    # It is there first: our checks saw 4.3.1, the controller sees 4.0.1, and nothing is changed.
    with monkeypatch.context() as patched:
        meanwhile(patched, before=joins_as_401)
        code, told, _ = command(cluster, f"{add} {approved}")
    assert "Result: FAILED: The controller rejected share.version 1: INVALID_UPDATE_VERSION" in told, (code, told)
    assert code == 3
    assert "roker 2 does not support this feature" in told
    assert "share.version" not in json.loads(command(cluster, "features describe --json")[1])["finalized"]
    becomes(cluster, 2, "4.3.1")
    cluster.wait_until_ready()

    # It comes too late, for the command …
    with monkeypatch.context() as patched:
        meanwhile(patched, after=comes_as_401)
        code, told, error = command(cluster, f"{add} {approved} --json")
    answer = json.loads(told)
    assert (code, answer["exit_code"], answer["results"][0]["result"]) == (1, 1, "OK"), error
    (found,) = [finding for finding in answer["findings"] if finding["code"] == "NODE-GONE-AFTER-FINALIZING"]
    assert "its installed release 4.0.1 does not support share.version 1: " in found["sentence"]
    assert "`features set` with --downgrade share.version:LEVEL or --downgrade share.version:0" in found["remedy"]
    # … whose remedy lets it in: the level taken back, though a node that is kept out does not answer.
    code, told, error = command(cluster, f"{delete} {approved}")
    assert "Result: OK" in told, (told, error)
    joins_as_401()
    becomes(cluster, 2, "4.3.1")
    cluster.wait_until_ready()

    # … and for the DAG.
    runs = ProcessRuns.open(tmp_path, monkeypatch)
    with monkeypatch.context() as patched:
        meanwhile(patched, after=comes_as_401)
        state, states, record = runs.run(cluster, "kafka_features", action="update", upgrade=["share.version:1"])
    assert (state, states["update"], states["look_again"]) == ("failed", "success", "failed"), states
    report = record.attachment("report.json")
    assert report["outcome"] == "stopped"
    assert (
        "Node 2 does not respond after finalizing, and its installed release 4.0.1 does not support"
        in report["sentence"]
    )
    assert report["results"]["results"] == {"share.version": "OK"}
    becomes(cluster, 2, "4.3.1")
    cluster.wait_until_ready()
    state, states, _ = runs.run(cluster, "kafka_features", action="update", upgrade=["share.version:1"])
    assert (state, states["approve"]) == ("success", "skipped"), states
