"""Files of nodes on real brokers: the plan's prediction compared with a real start on another release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_rollout.base.findings import Finding
from kafka_rollout.formats.files import server_properties
from kafka_rollout.releases.facts import Release
from tests.integration.conftest import MakeCluster
from tests.integration.harness.feature_harness import opened
from tests.integration.harness.planted_configs import restart_on
from tests.plans import plan_downgrade, plan_upgrade
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]

VOTERS, BOOTSTRAP = "controller.quorum.voters", "controller.quorum.bootstrap.servers"
CODES = {"CONFIG-REJECTED", "CONFIG-UNKNOWN-TO-TARGET", "QUORUM-VOTERS-MISSING"}
MISSING = "com.example.Missing"
Lines = dict[str, str]
Case = Callable[[Lines], Mapping[str, str | None]]
"""The lines of a node's file → settings that the file gets, None to remove one."""


def controller_of(lines: Lines) -> str:
    (listener,) = (one for one in lines["listeners"].split(",") if one.startswith("CONTROLLER://"))
    return listener.removeprefix("CONTROLLER://")


def only_bootstrap(lines: Lines) -> Mapping[str, str | None]:
    return {VOTERS: None, BOOTSTRAP: controller_of(lines)}


def another_id(lines: Lines) -> Mapping[str, str | None]:
    return {"node.id": "7", VOTERS: f"7@{controller_of(lines)}"}


def new_folder(key: str) -> Case:
    def changed_lines(lines: Lines) -> Mapping[str, str | None]:
        new = Path(lines["log.dirs"]).with_name(f"new-{key}")
        new.mkdir(exist_ok=True)
        return {key: f"{lines[key]},{new}" if key in lines else str(new)}

    return changed_lines


def always(**lines: str) -> Case:
    return lambda _: {name.replace("_", "."): value for name, value in lines.items()}


FILES: Mapping[str, Case] = {
    "as it is": always(),
    "bootstrap servers only": only_bootstrap,
    "voters and bootstrap servers": lambda lines: {BOOTSTRAP: controller_of(lines)},
    "missing reporter": always(metric_reporters=MISSING),
    "missing metrics reporter": always(kafka_metrics_reporters=MISSING),
    "missing authorizer": always(authorizer_class_name=MISSING),
    "missing replica selector": always(replica_selector_class=MISSING),
    "missing policy": always(create_topic_policy_class_name=MISSING),
    "old versions": always(inter_broker_protocol_version="3.4", log_message_format_version="2.8"),
    "newer protocol": always(inter_broker_protocol_version="3.9"),
    "newer format": always(log_message_format_version="3.9"),
    "another node id": another_id,
    "another directory": new_folder("log.dirs"),
    "another directory of metadata": new_folder("metadata.log.dir"),
}


@dataclass(frozen=True, kw_only=True)
class Move:
    source: str
    target: str
    level: str | None = None
    quorum: str = "static"
    files: Mapping[str, Case]
    refused: frozenset[str]

    def __str__(self) -> str:
        return f"{self.source}-{self.target}-{self.quorum}"


# What every release refuses: a missing class, a directory that belongs to another node, and one that is not formatted
# (KafkaRaftServer.initializeLogDirs: every directory needs meta.properties).
REFUSED = frozenset(
    {
        "bootstrap servers only",
        "missing reporter",
        "missing metrics reporter",
        "missing authorizer",
        "missing replica selector",
        "missing policy",
        "another node id",
        "another directory",
        "another directory of metadata",
    }
)
OF_4 = {**FILES, "authorizer of ZooKeeper": always(authorizer_class_name="kafka.security.authorizer.AclAuthorizer")}
DYNAMIC: Mapping[str, Case] = {
    "as it is": always(),
    "voters only": lambda lines: {VOTERS: f"{lines['node.id']}@{controller_of(lines)}", BOOTSTRAP: None},
}
WITH_BOOTSTRAP = Release.parse("3.9.0")  # KIP-853
MOVES = (
    *(
        Move(source=source, target=target, files=OF_4, refused=REFUSED | {"authorizer of ZooKeeper"})
        for source, target in (("3.4.1", "4.3.1"), ("3.7.2", "4.1.1"), ("3.9.1", "4.3.1"))
    ),
    Move(
        source="3.9.1",
        target="3.4.1",
        level="3.4-IV0",
        files=FILES,
        refused=REFUSED | {"newer protocol", "newer format"},
    ),
    Move(source="4.3.1", target="3.9.1", level="3.9-IV0", files=FILES, refused=REFUSED),
    Move(source="3.9.1", target="4.3.1", quorum="dynamic", files=DYNAMIC, refused=frozenset()),
)


@pytest.mark.parametrize("move", MOVES, ids=str)
def test_a_node_starts_with_its_file_exactly_if_the_plan_does_not_refuse_it(
    make_cluster: MakeCluster, tmp_path: Path, move: Move
) -> None:
    cluster = make_cluster(move.source, layout="combined", size=1, quorum=move.quorum, metadata_version=move.level)
    source, target = Release.parse(move.source), Release.parse(move.target)
    (node,) = cluster.spec.nodes
    path = Path(str(node.directory)) / "server.properties"
    own = dict(server_properties.parse(path.read_bytes()))
    written: dict[str, str] = {}
    predicted: dict[str, tuple[Finding, ...]] = {}
    for name, case in move.files.items():
        lines: dict[str, str | None] = {**own, **case(own)}
        written[name] = "".join(f"{key}={value}\n" for key, value in lines.items() if value is not None)
        path.write_text(written[name])
        predicted[name] = findings(cluster, target, tmp_path / f"home-{len(written)}", up=source < target)
    starts: dict[str, bool] = {}
    for name, text in written.items():
        path.write_text(text)
        refused = any(one.severity == "blocker" for one in predicted[name])
        starts[name] = restart_on(cluster, target, within_s=40 if refused else 180).runs
    refused_by_plan = {name for name, found in predicted.items() if any(one.severity == "blocker" for one in found)}
    assert refused_by_plan == {name for name, runs in starts.items() if not runs}, predicted
    assert refused_by_plan == move.refused, predicted
    unknown = {name for name, found in predicted.items() if any("UNKNOWN" in one.code for one in found)}
    without_versions = source.major < 4 <= target.major  # 4.0 has no inter.broker.protocol.version
    left_over = {"old versions", "newer protocol", "newer format"} if without_versions else set()
    too_new = {"voters and bootstrap servers", "bootstrap servers only"} if target < WITH_BOOTSTRAP else set()
    assert unknown == (left_over | too_new) & move.files.keys(), predicted


def findings(cluster: LocalCluster, target: Release, home: Path, *, up: bool) -> tuple[Finding, ...]:
    with opened(cluster, home) as ports:
        plan = plan_upgrade(ports, target, finalize=False) if up else plan_downgrade(ports, target)
    return tuple(one for one in plan.findings if one.code in CODES)
