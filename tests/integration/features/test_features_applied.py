"""Whole changes of features on one real cluster: everything down to a release and up again, two at once."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.protocol.admin import UpdateFeaturesRequest

from kafka_rollout.client.requests import ClusterConnections, error_name
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import Finalizing
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.dag_in_process import ProcessRuns
from tests.integration.harness.feature_harness import Command, has_groups, meanwhile, opened
from tests.integration.harness.shell import APPROVED, Shell
from tests.records import change_lock, run_history, run_ids
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

BEFORE = {
    METADATA_VERSION: 29,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
OF_401 = {METADATA_VERSION: 25, "eligible.leader.replicas.version": 1, "group.version": 1, "transaction.version": 2}
YES = " ".join(word if " " not in word else "test" for word in APPROVED)


@pytest.fixture(scope="module")
def cluster(make_shared_cluster: MakeCluster) -> LocalCluster:
    """A broker and a controller of 4.3.1 below the level that Kafka does not take back."""
    return make_shared_cluster("4.3.1", name="applied", size=1, metadata_version="4.2-IV1")


def levels_by_node(cluster: LocalCluster, home: Path) -> dict[int, dict[str, int]]:
    with opened(cluster, home) as ports:
        return {node.node_id: dict(ports.admin.features(node).finalized) for node in cluster.spec.nodes}


def everywhere(cluster: LocalCluster, levels: Mapping[str, int]) -> dict[int, dict[str, int]]:
    return {node.node_id: dict(levels) for node in cluster.spec.nodes}


def lines(told: str) -> dict[str, tuple[str, str, str, str]]:
    """By feature: action, existing and new level, result, as in KIP-584."""
    found = {}
    for line in told.splitlines():
        if "Feature:" not in line:
            continue
        action, _, rest = line.strip().partition(" Feature: ")
        name, _, rest = rest.partition("ExistingFinalizedMaxVersion: ")
        existing, _, rest = rest.partition("NewFinalizedMaxVersion: ")
        new, _, result = rest.partition("Result: ")
        found[name.strip()] = (action, existing.strip(), new.strip(), result.strip())
    return found


def requests_of(home: Path) -> list[dict[str, int]]:
    """What was sent to the controller, run after run."""
    runs = [run_history(home, "applied", run_id) for run_id in run_ids(home, "applied")]
    sent = [event for run in runs for event in events_of(run.events(), Finalizing)]
    return [dict(event.levels) for event in sorted(sent, key=lambda event: event.at)]


def test_everything_goes_down_to_a_release_which_deletes_what_it_does_not_know_and_up_again(
    cluster: LocalCluster, command: Command, tmp_path: Path
) -> None:
    down = "features set --action downgrade-all --release-version 4.0.1"
    expected = {
        METADATA_VERSION: ("[Downgrade]", "29", "25"),
        "share.version": ("[Delete]", "1", "-"),
        "streams.version": ("[Delete]", "1", "-"),
    }
    assert levels_by_node(cluster, tmp_path) == everywhere(cluster, BEFORE)

    code, told, error = command(cluster, f"{down} --dry-run")
    assert (code, lines(told)) == (0, {f: (*e, "OK (dry run)") for f, e in expected.items()}), error
    assert levels_by_node(cluster, tmp_path) == everywhere(cluster, BEFORE)

    code, told, error = command(cluster, f"{down} {YES}")
    assert (code, lines(told)) == (0, {f: (*e, "OK") for f, e in expected.items()}), error
    # The controller answers before the broker has heard of it; the command returned after every node had.
    assert levels_by_node(cluster, tmp_path) == everywhere(cluster, OF_401)
    code, told, _ = command(cluster, "features describe --json")
    described = json.loads(told)
    assert described["finalized"] == OF_401
    assert {node["release"] for node in described["nodes"].values()} == {"4.3.1"}
    assert len({node["epoch"] for node in described["nodes"].values()} | {described["epoch"]}) <= 2

    code, told, _ = command(cluster, f"{down} {YES}")
    assert (code, told.splitlines()[0]) == (0, "No change needed.")

    code, told, error = command(cluster, f"features set --action upgrade-all {YES}")
    assert (code, lines(told)) == (
        0,
        {
            METADATA_VERSION: ("[Upgrade]", "25", "30", "OK"),
            "share.version": ("[Add]", "-", "1", "OK"),
            "streams.version": ("[Add]", "-", "1", "OK"),
        },
    ), error
    assert levels_by_node(cluster, tmp_path) == everywhere(cluster, {**BEFORE, METADATA_VERSION: 30})

    assert requests_of(tmp_path / "home") == [
        {"share.version": 0, "streams.version": 0},
        {METADATA_VERSION: 25},
        {METADATA_VERSION: 30},
        {"share.version": 1, "streams.version": 1},
    ]

    # Level 30 changed metadata: from here released Kafka does not go back, and nothing else of the request is sent.
    code, told, _ = command(cluster, f"{down} {YES}")
    assert (
        code,
        lines(told)[METADATA_VERSION][3].startswith(
            "FAILED: The controller cannot lower metadata.version from 30 to 25"
        ),
    ) == (
        3,
        True,
    )
    assert lines(told)["share.version"][3].startswith(
        "NOT SENT: The controller cannot lower metadata.version from 30 to 25"
    )
    assert levels_by_node(cluster, tmp_path) == everywhere(cluster, {**BEFORE, METADATA_VERSION: 30})


# A command that has its cluster in hand and does not come to its end; a short lease, which it renews as long as it
# lives.
_IN_FLIGHT = """
import time
from pathlib import Path
from kafka_rollout.feature_updates import update as feature_update
from kafka_rollout.control import lock
lock.acquire_lock.__kwdefaults__["for_s"] = 15.0
def never_ends(bench, *_, **__):
    while True:
        lock.acquire_lock(bench, "Set streams.version 0.")
        Path({here!r}).touch()
        time.sleep(0.2)
feature_update.ensure_levels = never_ends
"""


@pytest.mark.full
def test_one_update_is_in_flight_and_a_killed_one_blocks_the_next_no_longer_than_its_lease(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, cluster)
    streams, share = (
        ("features", "set", "-c", "applied", "--downgrade", f"{name}.version:0", *APPROVED)
        for name in ("streams", "share")
    )
    before = levels_by_node(cluster, tmp_path)
    first = shell.start(*streams, beforehand=_IN_FLIGHT.format(here=str(tmp_path / "in-flight")))
    try:
        wait_until((tmp_path / "in-flight").exists, 180)
        first_run = shell.newest_run()
        held_by = str(first_run.number)
        second = shell(*share)
        assert second.returncode == 4, second.stderr
        said = " ".join(second.stderr.split())
        assert f"Run {held_by} holds the lock of cluster applied (Set streams.version 0). Its lease expires at" in said
        assert "Traceback" not in said
        assert f"Lock: run {held_by} until " in shell("status", "-c", "applied").stdout
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait(30)
    assert levels_by_node(cluster, tmp_path) == before, "nothing was sent by either"

    # Another run waits for the lease and no longer; the killed one goes on under its own name.
    deadline = time.monotonic() + 180
    while (next_one := shell(*share)).returncode == 4 and time.monotonic() < deadline:
        time.sleep(0.5)
    assert (next_one.returncode, "Result: OK" in next_one.stdout) == (0, True), next_one.stderr
    assert any(entry.get("taken_from") == first_run.run_id for entry in change_lock(shell.home).history("applied"))
    for result in ("Result: OK", "Result: OK (already there)"):
        resumed = shell("features", "set", "-c", "applied", "--run", held_by)
        assert (resumed.returncode, result in resumed.stdout) == (0, True), resumed.stderr
    assert not {"share.version", "streams.version"} & levels_by_node(cluster, tmp_path)[1].keys()


def test_bad_input_is_one_sentence_that_names_it_and_leaves_nothing_behind(
    cluster: LocalCluster, command: Command, tmp_path: Path
) -> None:
    before = levels_by_node(cluster, tmp_path)
    for words, said in (
        ("set --upgrade no.such.version:1", "Feature no.such.version does not exist"),
        ("set --downgrade no.such.version:1", "Feature no.such.version does not exist"),
        ("set --upgrade group.version:99", "group.version 99 does not exist"),
        (f"set --downgrade {METADATA_VERSION}:99 --unsafe", f"{METADATA_VERSION} 99 does not exist"),
        ("set --upgrade group.version:1 --downgrade group.version:0", "There are two requests for group.version"),
        ("set --upgrade group.version:1 --downgrade group.version:0", "There are two requests for group.version"),
        ("set --upgrade group.version", "'group.version' is not in the form feature=level"),
        ("set --upgrade group.version:99999", "'group.version:99999' has a level above 32767"),
        ("set --downgrade group:0,9.version:1", "'9.version' is not a feature name"),
        ("set", "The request must contain either features or a release"),
        (
            "set --release-version 4.2.1 --downgrade group.version:0",
            "The request must contain either features or a release",
        ),
        ("set --release-version 9.9.9 --safe", "9.9.9"),
        ("set --action downgrade-all --release-version 9.9.9", "9.9.9"),
        ("set --action downgrade-all --release-version latest", "latest"),
    ):
        code, told, error = command(cluster, f"features {words} {YES}")
        assert (code, told) == (2, ""), (words, code, told, error)
        assert said in " ".join(error.split()), (words, error)
        assert "Traceback" not in error
    assert "Lock: no run holds it" in command(cluster, "status")[1]
    assert requests_of(tmp_path / "home") == []
    assert levels_by_node(cluster, tmp_path) == before


@pytest.mark.full
def test_safe_keeps_a_level_that_a_group_lives_on_and_unsafe_takes_it_and_names_the_group(
    cluster: LocalCluster, command: Command, tmp_path: Path
) -> None:
    servers = {"bootstrap.servers": cluster.spec.bootstrap_servers}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(60)
    delete = f"features set --downgrade group.version:0 {YES}"
    consumer = Consumer({**servers, "group.id": "billing", "group.protocol": "consumer"})
    consumer.subscribe(["orders"])

    def polled() -> bool:
        consumer.poll(0.2)
        return bool(consumer.assignment())

    try:
        wait_until(polled, 180)
        with opened(cluster, tmp_path) as ports:
            wait_until(lambda: has_groups(ports, billing=("Stable", 1)), 180)
        code, told, error = command(cluster, delete)
        assert (
            code,
            lines(told)["group.version"][3].startswith(
                "FAILED: Without group.version, brokers serve no consumer group"
            ),
        ) == (
            3,
            True,
        )
        assert "billing (1 member)" in told
        assert levels_by_node(cluster, tmp_path)[1]["group.version"] == 1

        code, told, error = command(cluster, f"{delete} --unsafe")
        assert (code, lines(told)["group.version"][3]) == (0, "OK"), (told, error)
        assert "billing (1 member)" in " ".join((told + error).split()), "named all the same"
        assert all("group.version" not in levels for levels in levels_by_node(cluster, tmp_path).values())
    finally:
        consumer.close()
    assert command(cluster, f"features set --upgrade group.version:1 {YES}")[0] == 0


@pytest.mark.full
def test_a_command_is_told_which_run_of_the_dag_changes_the_cluster(
    cluster: LocalCluster, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finalized = levels_by_node(cluster, tmp_path)[1].keys() & {"share.version", "streams.version"}
    if delete := ",".join(f"{name}:0" for name in sorted(finalized)):
        code, said, error = command(cluster, f"features set --downgrade {delete} {YES}")
        assert code == 0, (said, error)
    runs = ProcessRuns.open(tmp_path, monkeypatch)
    add = f"features set --upgrade streams.version:1 {YES}"
    told: list[tuple[int, str, str]] = []

    with monkeypatch.context() as patched:
        meanwhile(patched, before=lambda: told.append(command(cluster, add)))
        state, states, record = runs.run(cluster, "kafka_features", action="update", upgrade=["share.version:1"])

    assert state == "success", states
    ((code, _, error),) = told
    assert code == 4
    assert f"Run {record.number} holds the lock of cluster {cluster.spec.name} (Set share.version 1)." in " ".join(
        error.split()
    )
    assert {levels["share.version"] for levels in levels_by_node(cluster, tmp_path).values()} == {1}
    code, said, error = command(cluster, add)
    assert (code, lines(said)["streams.version"][3]) == (0, "OK"), error


def test_whatever_is_wrong_with_a_request_a_controller_in_kraft_mode_has_one_error_for_it(
    cluster: LocalCluster,
) -> None:
    """INVALID_REQUEST and FEATURE_UPDATE_FAILED are answers of controllers in ZooKeeper mode."""
    connections = ClusterConnections(cluster.spec, ClientSecurity(), timeout_s=30)

    def asked(*updates: tuple[str, int, int]) -> Any:
        update = UpdateFeaturesRequest.FeatureUpdateKey
        request = UpdateFeaturesRequest(
            timeout_ms=30_000,
            feature_updates=[
                update(feature=f, max_version_level=level, upgrade_type=kind) for f, level, kind in updates
            ],
            validate_only=True,
            min_version=1,
        )
        return connections.ask(connections.brokers[0], request)

    try:
        for wrong in (
            [("group.version", 1, 0)],
            [("group.version", 1, 9)],
            [("group.version", -1, 2)],
            [("group.version", 0, 1)],
            [("", 1, 1)],
            [(METADATA_VERSION, 99, 1)],
            [(METADATA_VERSION, 1, 3)],
            [(METADATA_VERSION, 0, 3)],
            [("kraft.version", 1, 0)],
            [("transaction.version", 2, 1), ("group.version", 1, 0)],
        ):
            answer = asked(*wrong)
            assert error_name(answer.error_code) == "INVALID_UPDATE_VERSION", (wrong, answer)
        assert asked(("transaction.version", 1, 2), ("transaction.version", 2, 1)).error_code == 0, (
            "the last one counts"
        )
    finally:
        connections.close()
