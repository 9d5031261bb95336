"""Wrong credentials are invalid input, whatever a command asks with them: the cluster does not block it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kafka_rollout.base.errors import CredentialsError
from kafka_rollout.cli import app as cli
from kafka_rollout.cli import options
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.ports.cluster import ClusterAdmin
from kafka_rollout.wiring import cluster_ports
from tests.fakes.cluster import R391, FakeCluster
from tests.fakes.ports import fake_ports

SENTENCE = "Node 11 (broker-11) at localhost:9092 refused the authentication of user rollout (SCRAM-SHA-512)."
REMEDY = "Check the user name and the password (security settings)."
APPROVED = "--as alice --reason CHG-1"
COMMANDS = (
    "check --to 4.3.1",
    "verify",
    "verify --details",
    f"upgrade --to 4.3.1 --no-rehearse {APPROVED}",
    "upgrade --to 4.3.1 --dry-run --no-rehearse",
    f"downgrade --to 3.8.1 --no-rehearse {APPROVED}",
    f"restart {APPROVED}",
    "features describe",
    f"features set --action upgrade-all {APPROVED}",
    "features set --action upgrade-all --dry-run",
    "inventory check",
)


class _Refusing:
    """Every question to a listener is refused."""

    def __getattr__(self, name: str) -> Any:
        if not hasattr(ClusterAdmin, name):
            raise AttributeError(name)

        def refuse(*_: object, **__: object) -> NoReturn:
            raise CredentialsError(SENTENCE, remedy=REMEDY)

        return refuse


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    found, home = FakeCluster(R391), tmp_path / "home"
    (tmp_path / "clusters").mkdir()
    nodes = tuple(replace(node, directory=str(tmp_path / node.name)) for node in found.spec.nodes)
    (tmp_path / "clusters" / "fake.yaml").write_text(dump_cluster(replace(found.spec, nodes=nodes)))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(home))

    @contextmanager
    def opened(name: str, run: str, *_: object, **__: object) -> Iterator[Any]:
        yield replace(fake_ports(found, home, run_id=run), admin=_Refusing())

    @contextmanager
    def opened_to_read(*_: object, **__: object) -> Iterator[Any]:
        yield replace(fake_ports(found, home), admin=_Refusing())

    monkeypatch.setattr(options, "open_cluster_ports", opened)
    monkeypatch.setattr(cluster_ports, "open_ports_to_read", opened_to_read)
    return found


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_with_wrong_credentials_ends_as_invalid_input(
    cluster: FakeCluster, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *rest = words.split(" --", 1)
    line = f"{command} --cluster fake{''.join(f' --{one}' for one in rest)}".split()
    code = cli.run_main(line)
    said = capsys.readouterr()
    assert (code, SENTENCE in said.err, REMEDY in said.err) == (2, True, True), said
    assert "No blocker" not in said.out + said.err
    assert cluster.stops == []


def test_the_json_of_a_check_names_the_kind_of_the_error(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run_main(["inventory", "check", "--cluster", "fake", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "credentials"
