"""The commands of `inventory` that contact no host."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.cli.app import run_main
from kafka_rollout.model.topology import ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.rights import Rights, sudoers_file

DATA = "/var/lib/kafka/data"
HOSTS = """
name: orders
runtime: ssh_service
nodes:
- {id: 1, name: broker-1, roles: [broker], broker_address: "kafka-1:9092", host: kafka-1}
- {id: 2, name: broker-2, roles: [broker], broker_address: "kafka-2:9092", host: kafka-2}
- {id: 101, name: controller-101, roles: [controller], controller_address: "kafka-2:9093", host: kafka-2,
   service: {unit: controller, configuration_file: /etc/kafka/controller.properties}}
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
    return run_main(["inventory", "sudoers", "--cluster", cluster, *words])


def test_each_different_file_is_printed_once_with_its_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    assert sudoers("--log-dir", DATA) == 0
    broker = Rights(ServiceSpec(host="kafka-1")).all(DATA)
    controller = ServiceSpec(
        host="kafka-2", unit="controller.service", configuration_file="/etc/kafka/controller.properties"
    )
    both = sudoers_file("rollout", [*broker, *Rights(controller).all(DATA)])
    assert capsys.readouterr().out == f"# kafka-1\n{sudoers_file('rollout', broker)}\n# kafka-2\n{both}\n"
    assert both.count("systemctl stop") == 2
    assert len(set(both.splitlines())) == len(both.splitlines())


def test_one_host_with_its_own_directories_and_user(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--log-dir", "/data/a, /data/b", "--metadata-log-dir", "/meta", "--host", "kafka-1", "--user", "deploy")
    assert sudoers(*words) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# kafka-1\nDefaults:deploy !requiretty\n")
    assert "kafka-2" not in printed
    for directory in ("/data/a", "/data/b"):
        assert f"deploy ALL=(kafka) NOPASSWD: /usr/bin/cat {directory}/meta.properties\n" in printed
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
