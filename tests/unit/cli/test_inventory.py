"""The commands of `inventory`: the files and commands that they print."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.cli.app import run_main
from kafka_rollout.cli.commands import inventory
from kafka_rollout.cli.commands.inventory import RightsFor
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.model.rights import RIGHTS, RightsOf
from kafka_rollout.model.topology import NodeSpec, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.rights import HostRights, RehearsalRights, sudoers_file

DATA = "/var/lib/kafka/data"
HOSTS = """
name: orders
runtime: ssh_service
nodes:
- {id: 1, name: broker-1, roles: [broker], broker_address: "kafka-1:9092", host: kafka-1}
- {id: 2, name: broker-2, roles: [broker], broker_address: "kafka-2:9092", host: kafka-2}
- {id: 101, name: controller-101, roles: [controller], controller_address: "kafka-2:9093", host: kafka-2,
   service: {unit: controller, symlink: /opt/controller, configuration_file: /etc/kafka/controller.properties}}
"""
LOCAL = """
name: laptop
runtime: none
nodes:
- {id: 1, name: broker-1, roles: [broker], broker_address: "127.0.0.1:9092"}
"""


@pytest.fixture(autouse=True)
def _clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("orders", HOSTS), ("laptop", LOCAL)):
        (tmp_path / f"{name}.yaml").write_text(text)
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path))


def sudoers(*words: str, cluster: str = "orders") -> int:
    of_hosts = [] if "--host" in words else ["--of", "hosts"]
    return run_main(["inventory", "rights", *of_hosts, "--cluster", cluster, *words])


def test_each_different_file_is_printed_once_with_its_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    assert sudoers("--log-dir", DATA) == 0
    copies = RehearsalRights("kafka", DATA).all()
    broker = [*HostRights(ServiceSpec(host="kafka-1")).all(DATA), *copies]
    controller = ServiceSpec(
        host="kafka-2",
        unit="controller.service",
        symlink="/opt/controller",
        configuration_file="/etc/kafka/controller.properties",
    )
    both = sudoers_file("rollout", [*broker, *HostRights(controller).all(DATA), *copies])
    assert capsys.readouterr().out == f"# kafka-1\n{sudoers_file('rollout', broker)}\n# kafka-2\n{both}\n"
    assert both.count("systemctl stop") == 2
    assert len(set(both.splitlines())) == len(both.splitlines())


def test_one_host_with_its_own_directories_and_user(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--log-dir", "/data/a, /data/b", "--metadata-log-dir", "/meta", "--host", "kafka-1", "--user", "deploy")
    assert sudoers(*words) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# kafka-1\nDefaults:deploy secure_path=")
    assert "kafka-2" not in printed
    for directory in ("/data/a", "/data/b"):
        assert f"deploy ALL=(kafka) NOPASSWD: /usr/bin/dd if\\={directory}/meta.properties iflag\\=" in printed
    assert "/meta/__cluster_metadata-0" in printed


@pytest.mark.parametrize(
    ("cluster", "words", "said"),
    [
        ("laptop", ["--log-dir", DATA], "Cluster laptop has the runtime none, which uses no sudo."),
        ("orders", ["--log-dir", "data"], "'data' is not an absolute path"),
        ("orders", ["--log-dir", f"{DATA},"], "'' is not an absolute path"),
        ("orders", ["--log-dir", f"{DATA}\nALL ALL=(ALL) ALL"], "is not an absolute path"),
        ("orders", ["--log-dir", DATA, "--metadata-log-dir", "/m*"], "'/m*' is not an absolute path"),
        ("orders", ["--log-dir", DATA, "--user", "a ALL=(ALL) ALL #"], "is not the name of a user."),
        ("orders", ["--log-dir", DATA, "--host", "kafka-9"], "Cluster orders has no host kafka-9."),
    ],
)
def test_what_a_sudoers_file_cannot_have_is_refused(
    cluster: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sudoers(*words, cluster=cluster) == UserError.exit_code
    output = capsys.readouterr()
    assert said in " ".join(output.err.split())
    assert output.out == ""


DIRECTORIES = {1: "/data/one", 2: "/data/two", 101: "/data/controller"}


def open_fake(monkeypatch: pytest.MonkeyPatch, config: Any, node_config: Any) -> None:
    """Nodes whose configurations are read by `config` (SSH) and `node_config` (Kafka)."""

    @contextmanager
    def opened(cluster: str, *_: object) -> Iterator[object]:
        runtime, admin = SimpleNamespace(config=config), SimpleNamespace(node_config=node_config)
        yield SimpleNamespace(cluster=get_cluster(cluster), runtime=runtime, admin=admin), None, None

    monkeypatch.setattr(inventory, "open_ports", opened)


def refuses(node: NodeSpec) -> dict[str, str]:
    raise RefusedError(f"sudo refuses cat for node {node.node_id}.")


def reports(node: NodeSpec) -> dict[str, str]:
    return {"log.dirs": f"{DIRECTORIES[node.node_id]},/data/shared", "node.id": str(node.node_id)}


@pytest.mark.parametrize(("config", "node_config"), [(reports, refuses), (refuses, reports)])
def test_each_node_has_its_own_directories(
    config: Any, node_config: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_fake(monkeypatch, config, node_config)
    assert sudoers() == 0
    one, two = capsys.readouterr().out.split("# kafka-2\n")
    assert "/data/one/__cluster_metadata-0" in one
    assert "/data/two" not in one
    assert "dd if\\=/data/shared/meta.properties iflag" in one
    for directory in ("/data/two", "/data/controller"):
        assert f"{directory}/__cluster_metadata-0" in two


def test_directories_that_no_node_reports_are_named_with_the_way_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_fake(monkeypatch, refuses, refuses)
    assert sudoers() == RefusedError.exit_code
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("The log.dirs of nodes 1, 2, 101 are unknown. sudo refuses cat for node 1.")
    assert said.endswith("with --log-dir. For the rights in Kafka alone, add --of kafka.")


def test_the_commands_of_each_user_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["inventory", "rights", "--cluster", "laptop", "--principal", "User:rollout"]
    assert run_main(words) == 0
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line.startswith("# ")] == [
        f"# {one.value}: {one.users}" + (" (the commands above grant its rights)" if one == "controllers" else "")
        for one in RightsOf
    ]
    begin = "kafka-acls.sh --bootstrap-server 127.0.0.1:9092 --command-config ADMIN.properties --add"
    assert f"{begin} --allow-principal 'User:rollout' --operation Alter --cluster\n" in printed
    commands = [line for line in printed.splitlines() if line.startswith("kafka-acls.sh")]
    assert len(commands) == len(set(commands)) == 12
    operations = {(right.operation, right.resource, right.name) for rights in RIGHTS.values() for right in rights}
    assert sum(line.count("--operation") for line in commands) == len(operations)
    assert run_main([*words, "--of", "traffic", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["commands"]) == ["traffic"]
    assert run_main([*words, "--of", "kafka"]) == 0
    assert capsys.readouterr().out == printed, "a cluster without hosts"


def test_the_rights_on_the_hosts_and_in_kafka_are_printed_together(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["inventory", "rights", "--cluster", "orders", "--log-dir", DATA]
    printed = []
    for of in ([], ["--of", "hosts"], ["--of", "kafka"]):
        assert run_main([*words, *of]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] + printed[2]
    assert run_main([*words, "--host", "kafka-1", "--of", "kafka"]) == 2
    assert "--host prints the file of one host, and nothing else." in capsys.readouterr().err
    assert run_main(["inventory", "rights", "--bootstrap-server", "kafka-1:9092", "--of", "hosts"]) == 2
    assert "needs the inventory of its cluster" in capsys.readouterr().err
    assert run_main(["inventory", "rights", "--bootstrap-server", "kafka-1:9092"]) == 0
    assert "# read-only: " in capsys.readouterr().out
    assert {*RightsFor} - {RightsFor.HOSTS, RightsFor.KAFKA} == {RightsFor(one.value) for one in RightsOf}
