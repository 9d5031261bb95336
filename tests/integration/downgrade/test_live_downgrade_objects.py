"""Live downgrades with real objects: what the lower level drops, open transactions, groups of every type."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import Gate, GateKind
from kafka_rollout.lowering import live
from kafka_rollout.metadata_log.changes.places import temporary_copy
from kafka_rollout.metadata_log.classes.replay import load_log
from kafka_rollout.metadata_log.classes.snapshot import StoredRecords
from kafka_rollout.metadata_log.disk.folder import open_folder
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.jvm import run_jvm
from kafka_rollout.roll.gate_checks import wait_for_gate
from kafka_rollout.run.events import ApprovalOf, Decision, events_of, has, newest
from kafka_rollout.run.step_events import LiveLowered, OfflineLogChosen, Stopping
from tests.integration.conftest import MakeCluster
from tests.integration.downgrade.test_dag_downgrade_offline import cordon_a_second_directory
from tests.integration.downgrade.test_live_downgrade import GATE, levels
from tests.integration.harness.airflow.server import all_run, finalized
from tests.integration.harness.cluster_contents import WITH_ACLS, assert_clients_data_is_kept, contents, fill
from tests.integration.harness.feature_harness import opened
from tests.integration.harness.groups.applications import application_libs, streams_application
from tests.integration.harness.groups.gated_groups import CONSUMER, TOPIC, members_of, shared
from tests.integration.harness.logs.many_records import many_records
from tests.integration.harness.shell import APPROVED as ANSWERS
from tests.integration.harness.shell import QUICK, Shell
from tests.plans import plan_downgrade
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]

SNAPSHOTS = {"metadata.log.max.snapshot.interval.ms": "3000"}
GROUPS = {"classic", "consumer", "share", "streams"}


@pytest.mark.parametrize(
    ("releases", "from_level", "level"),
    [
        (("4.4.0", "4.3.1"), None, 30),
        (("4.4.0", "4.3.1"), None, 31),
        (("4.3.1", "4.2.1"), None, 29),
        (("4.3.1", "4.0.1"), "4.0-IV3", 22),
    ],
    ids=["33 to 30", "33 to 31", "30 to 29", "25 to 22"],
)
def test_running_brokers_hold_the_same_metadata_as_a_broker_that_starts_from_the_snapshot(
    releases: tuple[str, str], from_level: str | None, level: int, make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """A broker writes its snapshots from the metadata in its memory. They are compared with those of a started one."""
    release, target = releases
    cluster = make_cluster(
        release, layout="separate", metadata_version=from_level, extra_config={**WITH_ACLS, **SNAPSHOTS}, start=False
    )
    if from_level is None:
        cordon_a_second_directory(cluster, cluster.spec.brokers[0])
    cluster.start()
    fill(cluster)
    before = contents(cluster.spec)
    running, started, other = cluster.spec.brokers
    with opened(cluster, tmp_path / "home") as ports:
        plan = plan_downgrade(ports, Release.parse(target), lowering=Lowering.LIVE, level=min(level, 30), unsafe=True)
        assert plan.lowering is Lowering.LIVE
        if level == 31:
            plan = at_a_level_of_its_release(ports, plan, level)
        record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a test")
        lowered = {name: to for name, to in plan.levels.items() if name != METADATA_VERSION}
        with KafkaAdmin(cluster.spec) as admin:
            assert all(one.accepted for one in admin.update_features(lowered, validate_only=False))
        wait_for_gate(Run(ports, plan), Gate(kind=GateKind.CONTROLLERS_STOP), GATE)
        print(live.lower_live(Run(ports, plan)))
        wait_for_gate(Run(ports, plan), Gate(kind=GateKind.METADATA_VERSION), GATE)
        cluster.runtime.stop(started, deadline_s=60)
        cluster.runtime.start(started)
        wait_until(lambda: set(levels(ports).values()) == {level}, 120)
        wait_until(lambda: all(len(one.isr) == len(one.replicas) for one in ports.admin.partitions()), 120)
        chosen = newest(ports.run.events(), OfflineLogChosen)
        assert chosen is not None
        end = ports.admin.quorum().high_watermark
        for node in (running, started, other):
            wait_until(lambda node=node: own_snapshot_end(ports, node) > end, 60)  # type: ignore[misc]
        images = [image(ports, node, cluster.runtime.cache, Release.parse(release)) for node in cluster.spec.brokers]
        assert images[0] == images[1] == images[2]
        assert len(images[0]) > 20
        assert_clients_data_is_kept(cluster.spec, before)


def at_a_level_of_its_release(ports: ClusterPorts, plan: Plan, level: int) -> Plan:
    """A plan that no user gets: only the running release supports the level, and a downgrade has an older release."""
    changes = (replace(c, target=level) if c.feature == METADATA_VERSION else c for c in plan.feature_changes)
    plan = replace(plan, target=plan.source, feature_changes=tuple(changes))
    ports.run.save_plan(plan)
    return plan


def own_snapshot_end(ports: ClusterPorts, node: NodeSpec) -> int:
    return max((one.end_offset for one in ports.runtime.checkpoints(node)), default=0)


def image(ports: ClusterPorts, node: NodeSpec, cache: ReleaseCache, release: Release) -> list[str]:
    """The records of the metadata in a node's newest snapshot and the log after it."""
    directory = ports.runtime.metadata_log_dir(node)
    assert directory is not None
    with (
        temporary_copy(open_folder(directory)) as folder,
        tempfile.TemporaryDirectory() as name,
        load_log(folder, cache, release, Path(name)) as loaded,
    ):
        out = Path(name) / "image.checkpoint"
        loaded.classes.write_records(loaded.image, out, level=loaded.level)
        return sorted(map(repr, StoredRecords.read(out, release).decoded(cache)))


def test_open_transactions_groups_of_every_type_and_an_accepted_loss(
    make_cluster: MakeCluster, release_cache: ReleaseCache, tmp_path: Path
) -> None:
    """A cordoned directory is lost at level 29: SAFE stops before any change, UNSAFE continues to 4.2.1."""
    cluster = make_cluster("4.3.1", name="objects", layout="separate", extra_config=WITH_ACLS, start=False)
    cordon_a_second_directory(cluster, cluster.spec.brokers[0])
    cluster.start()
    servers = cluster.spec.bootstrap_servers
    shell = Shell(tmp_path, cluster)
    down = ("downgrade", "--cluster", "objects", "--to", "4.2.1", "--lowering", "live", *QUICK, *ANSWERS)
    with (
        every_group(cluster, application_libs(release_cache), tmp_path),
        many_records(cluster.spec),
        opened(cluster, tmp_path / "watch", "watch") as ports,
    ):
        wait_until(lambda: stable_groups(ports) == GROUPS, 120)
        transaction = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": "open",
                "transaction.timeout.ms": 900_000,
                "log_level": 0,
            }
        )
        transaction.init_transactions(60)
        transaction.begin_transaction()
        transaction.produce(TOPIC, b"in an open transaction")
        assert transaction.flush(60) == 0

        refused = shell(*down)
        assert refused.returncode == RefusedError.exit_code, refused.stderr
        assert not has(shell.events(shell.newest_run()), Stopping)
        assert {finalized(cluster, node)["metadata.version"] for node in cluster.spec.nodes} == {30}

        done = shell(*down, "--unsafe")
        assert done.returncode == 0, done.stderr
        transaction.produce(TOPIC, b"in the same transaction")
        transaction.commit_transaction(60)
        wait_until(lambda: stable_groups(ports) == GROUPS, 120)
    all_run(cluster, "4.2.1")
    assert {finalized(cluster, node)["metadata.version"] for node in cluster.spec.nodes} == {29}
    (lowered,) = events_of(shell.events(shell.newest_run()), LiveLowered)
    print(lowered.sentence)


@contextmanager
def every_group(cluster: LocalCluster, libs: Path, folder: Path) -> Iterator[None]:
    servers = cluster.spec.bootstrap_servers
    with ExitStack() as opened_:
        members = opened_.enter_context(members_of(cluster))
        members.join_group("classic", 2)
        members.join_group("consumer", 2, **CONSUMER)
        opened_.enter_context(shared(servers, "share"))
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("copies", 2, 3)])["copies"].result(60)
        jvm = opened_.enter_context(run_jvm(libs))
        streams = streams_application(
            jvm, servers, "streams", folder / "state", protocol="streams", source=TOPIC, sink="copies"
        )
        opened_.enter_context(streams)
        yield


def stable_groups(ports: ClusterPorts) -> set[str]:
    try:
        return {one.group_id for one in ports.admin.groups() if one.state.lower() == "stable" and one.members}
    except TransientError:  # a coordinator loads
        return set()
