"""The shell's roll on a real cluster: killed in the middle of node 2 and resumed, started once more, taken back."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import Started, Stopping
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import QUICK_SNAPSHOTS
from tests.integration.harness.cluster_contents import set_settings
from tests.integration.harness.faults.breaking import BREAKS_WHERE_A_FILE_IS_IN_THE_WAY
from tests.integration.harness.shell import APPROVED, DRY_RUN, QUICK, Shell, later_starts
from tests.releases import NEWEST
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

R340, R391 = Release(3, 4, 0), Release(3, 9, 1)


@pytest.fixture
def shell(make_cluster: MakeCluster, tmp_path: Path) -> Shell:
    return shell_on(R391, make_cluster, tmp_path)


@pytest.fixture
def old_shell(make_cluster: MakeCluster, tmp_path: Path) -> Shell:
    return shell_on(R340, make_cluster, tmp_path)


def shell_on(release: Release, make_cluster: MakeCluster, folder: Path) -> Shell:
    return Shell(folder, make_cluster(str(release), name="shell", layout="combined", extra_config=QUICK_SNAPSHOTS))


@pytest.mark.full
def test_a_roll_killed_in_node_two_is_resumed_and_finished(shell: Shell) -> None:
    roll = ("upgrade", "--cluster", "shell", "--to", "4.3.1", *QUICK, "--finalize", "after-approval", "--no-scan")
    process = shell.start(*roll, *APPROVED)
    try:
        wait_until(lambda: _stopped(shell) >= 2, 900, every_s=0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    run = shell.newest_run()
    first = events_of(shell.events(run), Started)[0].node_id

    again = shell(*roll, *APPROVED, "--traffic", "--run", run.run_id)

    assert again.returncode == 0, again.stderr
    report = json.loads(Path(again.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "finished", report["sentence"]
    assert later_starts(shell.cluster) == {1: ["4.3.1"], 2: ["4.3.1"], 3: ["4.3.1"]}
    assert [event.node_id for event in events_of(shell.events(run), Stopping)].count(first) == 1
    assert report["features"]["before"] == {"metadata.version": 21}
    assert report["features"]["after"]["metadata.version"] == 30
    assert {(seen["prometheus"], seen["jolokia"]) for seen in report["current_metadata_version"]} == {(30, 30)}
    assert all(gate["state"] == "passed" for gate in report["gates"]), report["gates"]
    assert report["snapshot"]["proved"]
    assert report["traffic"]["ok"]
    assert report["traffic"]["acknowledged"] > 0
    of_traffic = {each["group"].rsplit("-", 1)[-1]: each for each in report["groups"]["groups"] if each["partitions"]}
    assert of_traffic["classic"]["partitions"] == 12
    assert of_traffic["classic"]["watched_s"] > 0
    assert shell("verify", "--cluster", "shell").returncode == 0

    refused = shell("rollback", "--cluster", "shell", "--run", run.run_id, *APPROVED)
    assert refused.returncode == 3
    assert "3.9.1 can no longer run this cluster" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert later_starts(shell.cluster) == {1: ["4.3.1"], 2: ["4.3.1"], 3: ["4.3.1"]}


def _stopped(shell: Shell) -> int:
    return shell.count_events(Stopping)


@pytest.mark.full
def test_releases_that_the_catalogue_got_last_are_source_and_target(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """3.8.1 at 20 to NEWEST at 33, with the scan."""
    shell = Shell(tmp_path, make_cluster("3.8.1", name="shell", extra_config=QUICK_SNAPSHOTS))
    roll = ("upgrade", "--cluster", "shell", "--to", NEWEST, *QUICK, "--finalize", "after-approval", "--traffic")
    blocked = shell(*DRY_RUN, "--cluster", "shell", "--to", NEWEST)
    assert "ELR-CHANGES-MIN-ISR" in blocked.stdout, "the controllers' files do not have the brokers' value"

    rolled = shell(*roll, "--pin-min-insync-replicas", *APPROVED)

    assert rolled.returncode == 0, rolled.stderr
    report = json.loads(Path(rolled.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "finished", report["sentence"]
    assert set(map(tuple, later_starts(shell.cluster).values())) == {(NEWEST,)}
    assert report["features"]["before"] == {"metadata.version": 20}
    assert (report["features"]["after"]["metadata.version"], report["features"]["after"]["share.version"]) == (33, 2)
    assert report["snapshot"]["proved"]
    assert report["traffic"]["ok"]
    assert report["traffic"]["acknowledged"] > 0
    assert shell("verify", "--cluster", "shell").returncode == 0


@pytest.mark.full
def test_a_node_that_does_not_start_is_fixed_and_retried_and_the_roll_can_still_be_rolled_back(
    shell: Shell,
) -> None:
    spec = replace(shell.cluster.spec, release_overrides={"4.3.1": BREAKS_WHERE_A_FILE_IS_IN_THE_WAY})
    shell.cluster.inventory_path.write_text(dump_cluster(spec))
    plan = shell(*DRY_RUN, "--cluster", "shell", "--to", "4.3.1", "--json")
    assert plan.returncode == 0, plan.stderr
    made = json.loads(plan.stdout)
    second, third = (made["plan"]["release_steps"][0]["order"][place]["node_id"] for place in (1, 2))
    in_the_way = Path(spec.node(second).directory or "") / "figures"
    in_the_way.write_text("")
    this_run = ("-c", "shell", "--run", made["run"])

    rolled = shell("upgrade", *this_run, "--to", "4.3.1", *QUICK, *APPROVED, "--no-scan")

    assert rolled.returncode == 3, rolled.stderr
    assert f"after node {second} failed" in rolled.stderr
    assert f"kafka-rollout retry --cluster shell --run {shell.newest_run().number}" in rolled.stderr
    in_the_way.unlink()
    again = shell("retry", *this_run, *APPROVED)
    assert again.returncode == 0, again.stderr
    assert later_starts(shell.cluster)[second] == ["4.3.1", "4.3.1"]
    assert later_starts(shell.cluster)[third] == []
    back = shell("rollback", *this_run, *APPROVED)
    assert back.returncode == 0, back.stderr
    report = json.loads(Path(back.stdout.splitlines()[-1]).read_text())
    assert (report["outcome"], report["sentence"]) == ("rolled_back", "Every node runs 3.9.1 again.")
    assert later_starts(shell.cluster)[third] == []


@pytest.mark.full
def test_a_refused_roll_goes_on_with_its_own_command_after_the_remedies(shell: Shell) -> None:
    """One topic is deleted; that the other one is unavailable is accepted."""
    admin = AdminClient({"bootstrap.servers": shell.cluster.spec.bootstrap_servers})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in ("lonely", "tmp-1")]).values():
        made.result(60)
    roll = ("upgrade", "--cluster", "shell", "--to", "4.3.1", *QUICK, "--no-scan")

    refused = shell(*roll, *APPROVED)

    assert refused.returncode == 3, refused.stderr
    run = shell.newest_run().run_id
    shown = " ".join(refused.stderr.split())
    assert "RF-ONE-TOPIC" in shown
    assert "lonely" in shown
    assert f"plan again with: kafka-rollout upgrade --to 4.3.1 --cluster shell --run {run} --as" in shown
    for deleted in admin.delete_topics(["lonely"]).values():
        deleted.result(60)
    again = shell(*roll, *APPROVED, "--run", run, "--accept-unavailable", "tmp-*")
    assert again.returncode == 0, again.stderr
    report = json.loads(Path(again.stdout.splitlines()[-1]).read_text())
    assert (report["outcome"], report["accept_unavailable"]) == ("rolled_not_finalized", ["tmp-*"]), report["sentence"]
    found = {(finding["code"], finding["severity"], finding["subject"]) for finding in report["findings"]}
    assert ("RF-ONE-TOPIC", "warning", "topic tmp-1") in found
    assert later_starts(shell.cluster) == {1: ["4.3.1"], 2: ["4.3.1"], 3: ["4.3.1"]}


@pytest.mark.full
def test_a_configuration_that_is_broken_after_the_plan_is_found_before_the_node_goes_down(shell: Shell) -> None:
    """The process that runs never reads the file again: only the next one would die of it."""
    plan = shell(*DRY_RUN, "--cluster", "shell", "--to", "4.3.1", "--json")
    assert plan.returncode == 0, plan.stderr
    made = json.loads(plan.stdout)
    first = made["plan"]["release_steps"][0]["order"][0]["node_id"]
    properties = Path(shell.cluster.spec.node(first).directory or "") / "server.properties"
    properties.write_text(properties.read_text() + "\nnum.io.threads=nonsense\n")

    rolled = shell("upgrade", "-c", "shell", "--run", made["run"], "--to", "4.3.1", *QUICK, *APPROVED, "--no-scan")

    assert rolled.returncode == 3, rolled.stderr
    assert f"The approval is no longer valid. New findings since then: CONFIG-REJECTED node {first}" in (
        " ".join(rolled.stderr.split())
    )
    assert all(each == [] for each in later_starts(shell.cluster).values())


@pytest.mark.full
def test_a_roll_back_ends_on_the_release_that_loads_what_the_newest_one_wrote(old_shell: Shell) -> None:
    """4.3.1 commits offsets in a version that 3.4.0 stops at, whatever the feature levels."""
    rolled = old_shell("upgrade", "-c", "shell", "--to", "4.3.1", *QUICK, *APPROVED, "--traffic")
    assert rolled.returncode == 0, rolled.stderr
    back = old_shell("rollback", "-c", "shell", "--run", old_shell.newest_run().run_id, *APPROVED)
    assert back.returncode == 3, back.stderr
    said = " ".join(back.stderr.split())
    assert "A rollback to 3.4.0 is not possible" in said
    assert "Keep 3.4.1" in said
    assert later_starts(old_shell.cluster) == {node: ["3.4.1", "4.3.1", "3.4.1"] for node in (1, 2, 3)}
    report = json.loads(Path(back.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "stopped"
    assert "ROLLBACK-ENDS" in {finding["code"] for finding in report["findings"]}


@pytest.mark.full
def test_a_roll_back_is_refused_while_there_are_settings_that_the_older_release_makes_unreadable(shell: Shell) -> None:
    """3.9.1 knows subscriptions to client metrics, and no configuration of groups."""
    rolled = shell("upgrade", "-c", "shell", "--to", "4.3.1", *QUICK, *APPROVED, "--no-scan")
    assert rolled.returncode == 0, rolled.stderr
    set_settings(shell.cluster.spec)
    back = ("rollback", "-c", "shell", "--run", shell.newest_run().run_id, *APPROVED)

    refused = shell(*back)
    assert refused.returncode == 3, refused.stderr
    said = " ".join(refused.stderr.split())
    assert (
        "A rollback to 3.9.1 is not possible now. SETTINGS-NOT-KEPT: Kafka 3.9.1 does not support group configurations"
        in said
    )
    assert ": planned, shipping. Save these settings and delete them. Then roll back again." in said
    assert later_starts(shell.cluster) == {node: ["4.3.1"] for node in (1, 2, 3)}
    assert json.loads(Path(refused.stdout.splitlines()[-1]).read_text())["outcome"] == "stopped"

    set_settings(shell.cluster.spec, delete=True)
    gone_back = shell(*back)
    assert gone_back.returncode == 0, gone_back.stderr
    assert later_starts(shell.cluster) == {node: ["4.3.1", "3.9.1"] for node in (1, 2, 3)}
