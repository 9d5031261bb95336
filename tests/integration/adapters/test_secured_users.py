"""Rights of the users on a real cluster: those of the docs are enough, and each missing one is named before a stop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import sleep

import pytest
from pydantic import SecretStr

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.client.requests import ClusterConnections
from kafka_rollout.client.rights import find_missing, refuse_without_traffic_rights
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.model.rights import (
    CHANGING,
    CLUSTER,
    LIST_CONTROLLERS,
    PINNING,
    READING,
    TRAFFIC,
    Right,
    grant_commands,
)
from kafka_rollout.model.topology import Role
from tests.integration.conftest import MakeCluster
from tests.integration.harness.security.secured import (
    CHANGER,
    CONTROLLERS,
    MUTUAL,
    READER,
    TRAFFIC_USER,
    SecuredCluster,
    mutual,
    oauth,
)
from tests.integration.harness.security.token_server import LIFETIME_S, TokenServer, token_server
from tests.integration.harness.shell import DRY_RUN, Shell
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

OAUTH = "oauth-client"


@pytest.fixture(scope="module")
def world(
    make_shared_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SecuredCluster, TokenServer]]:
    folder = tmp_path_factory.mktemp("secured")
    with token_server({OAUTH: "secret-of-tests"}) as tokens:
        found = SecuredCluster.create(
            make_shared_cluster, "4.3.1", folder, tokens=tokens, name="rights", layout="combined", size=1
        )
        found.use_coordinators()
        yield found, tokens


@pytest.fixture
def secured(world: tuple[SecuredCluster, TokenServer]) -> SecuredCluster:
    return world[0]


def _missing(secured: SecuredCluster, user: str) -> set[tuple[str, Role]]:
    with KafkaAdmin(secured.spec, secured.security(user)) as admin:
        found = admin.missing_rights()
    assert {one.principal for one in found} <= {f"User:{user}", f"User:{CONTROLLERS}"}
    return {(str(one.right), one.listener) for one in found}


def test_each_user_has_the_rights_of_the_docs_and_no_others(secured: SecuredCluster) -> None:
    assert _missing(secured, CHANGER) == set()
    of_changes = {("ALTER on CLUSTER", Role.BROKER), ("ALTER_CONFIGS on CLUSTER", Role.BROKER)}
    assert _missing(secured, READER) == of_changes
    refuse_without_traffic_rights(secured.spec, secured.security(READER).of_traffic)
    nodes = ClusterConnections(secured.spec, secured.security(TRAFFIC_USER), timeout_s=10)
    try:
        assert set(find_missing(nodes, (*READING, *CHANGING))) == {*READING, *CHANGING}
    finally:
        nodes.close()


@pytest.mark.full
@pytest.mark.parametrize("user", [OAUTH, MUTUAL])
def test_every_client_library_connects_with_a_token_and_with_a_certificate(
    world: tuple[SecuredCluster, TokenServer], tmp_path: Path, user: str
) -> None:
    secured, tokens = world
    security, spec, principal = oauth(secured.files, tokens, OAUTH), secured.spec, OAUTH
    if user == MUTUAL:
        nodes = (replace(node, broker_address=secured.mutual_addresses[node.node_id]) for node in spec.nodes)
        security, spec, principal = mutual(secured.files, MUTUAL), replace(spec, nodes=tuple(nodes)), f"CN={MUTUAL}"
    secured.allow(principal, (*READING, *TRAFFIC))
    file = secured.command_config(secured.complete(security, traffic=security))
    shell = Shell(tmp_path, replace(secured.cluster, inventory_path=tmp_path / "clusters" / "rights.yaml"))
    shell.cluster.inventory_path.parent.mkdir()
    shell.cluster.inventory_path.write_text(dump_cluster(spec))

    def call(*words: str, code: int = 0) -> str:
        done = shell(*words, "--cluster", "rights", "--command-config", str(file))
        assert done.returncode == code, done.stderr
        return done.stdout

    # The quorum of one node has no spare.
    assert not json.loads(call("verify", "--details", "--json", code=3))["state"]["unanswered"]
    options = ("--cluster", "rights", "--command-config", str(file), "--json", "--output", str(tmp_path / "traffic"))
    running = shell.start("traffic", *options)
    wait_until(lambda: b"Test traffic runs" in (shell.folder / "killed.log").read_bytes(), 180)
    sleep(LIFETIME_S + 5)
    running.terminate()
    running.wait(300)
    traffic = json.loads((tmp_path / "traffic").read_text())
    assert traffic["ok"], traffic
    assert traffic["verdict"]["acknowledged"] > 0
    assert "billing" in call("groups", "list")
    if user == OAUTH:
        assert tokens.issued[OAUTH] > 1


@pytest.mark.full
def test_a_wrong_secret_is_refused_by_the_token_server_and_not_repeated(
    world: tuple[SecuredCluster, TokenServer],
) -> None:
    secured, tokens = world
    wrong = oauth(secured.files, tokens, OAUTH).model_copy(update={"password": SecretStr("wrong-and-secret")})
    with KafkaAdmin(secured.spec, wrong) as admin, pytest.raises(RefusedError, match="refused client") as refused:
        admin.cluster_id()
    assert "wrong-and-secret" not in str(refused.value)


@pytest.mark.full
@pytest.mark.parametrize("right", CHANGING, ids=str)
def test_a_plan_names_each_right_that_was_removed_and_stops_nothing(
    secured: SecuredCluster, tmp_path: Path, right: Right
) -> None:
    _expect_named(secured, tmp_path, CHANGER, right)


def test_the_check_of_the_inventory_names_the_right_to_set_a_default(secured: SecuredCluster, tmp_path: Path) -> None:
    (right,) = PINNING
    file = secured.command_config(secured.security(CHANGER))
    shell = Shell(tmp_path, secured.cluster)

    def check() -> tuple[bool, list[tuple[str, str]]]:
        done = shell("inventory", "check", "-c", "rights", "--json", "--command-config", str(file))
        found = json.loads(done.stdout)
        of_rights = [one for one in found["findings"] if one["code"] == "RIGHT-MISSING"]
        return found["ok"], [(one["severity"], one["remedy"]) for one in of_rights]

    assert check() == (True, [])
    with secured.without(CHANGER, right):
        wait_until(lambda: (str(right), Role.BROKER) in _missing(secured, CHANGER), 60)
        (command,) = grant_commands([right], secured.spec.bootstrap_servers, f"User:{CHANGER}")
        assert check() == (True, [("warning", f"Run: {command}")])


@pytest.mark.full
def test_a_plan_names_the_right_of_the_controllers_user(secured: SecuredCluster, tmp_path: Path) -> None:
    _expect_named(secured, tmp_path, CONTROLLERS, LIST_CONTROLLERS)


@pytest.mark.full
@pytest.mark.parametrize("right", READING, ids=str)
def test_a_command_that_reads_names_each_right_that_was_removed(
    secured: SecuredCluster, tmp_path: Path, right: Right
) -> None:
    file = secured.command_config(secured.security(READER))
    shell = Shell(tmp_path, secured.cluster)
    with secured.without(READER, right):
        wait_until(lambda: (str(right), Role.BROKER) in _missing(secured, READER), 60)
        seen = shell("verify", "--details", "-c", "rights", "--command-config", str(file))
    assert seen.returncode == 3, seen.stdout
    assert f"User:{READER} does not have the right {right}." in seen.stderr


@pytest.mark.full
@pytest.mark.parametrize("right", TRAFFIC, ids=str)
def test_the_test_traffic_names_each_right_that_was_removed(secured: SecuredCluster, right: Right) -> None:
    of_traffic = secured.security(CHANGER).of_traffic
    said: list[str] = []

    def is_refused() -> bool:
        try:
            refuse_without_traffic_rights(secured.spec, of_traffic)
        except RefusedError as error:
            said.append(str(error))
        return bool(said)

    with secured.without(TRAFFIC_USER, right):
        wait_until(is_refused, 60)
    assert f"User:{TRAFFIC_USER} does not have the right {right}." in said[0]
    assert grant_commands([right], secured.spec.bootstrap_servers, f"User:{TRAFFIC_USER}")[0] in said[0]


def _expect_named(secured: SecuredCluster, folder: Path, user: str, right: Right) -> None:
    file = secured.command_config(secured.security(CHANGER))
    shell = Shell(folder, secured.cluster)
    before = [secured.cluster.runtime.process(node).pid for node in secured.spec.nodes]
    listener = Role.CONTROLLER if user == CONTROLLERS else Role.BROKER
    # ALTER_CONFIGS, which the user has for the default of min.insync.replicas, implies DESCRIBE_CONFIGS.
    implying = PINNING if (right.operation, right.resource) == ("DESCRIBE_CONFIGS", CLUSTER) else ()
    with ExitStack() as stack:
        for one in (*implying, right):
            stack.enter_context(secured.without(user, one))
        wait_until(lambda: (str(right), listener) in _missing(secured, CHANGER), 60)
        plan = shell(*DRY_RUN, "-c", "rights", "--to", "4.3.1", "--command-config", str(file))
    assert plan.returncode == 3
    said = " ".join(f"{plan.stdout} {plan.stderr}".split())
    assert "RIGHT-MISSING" in said
    where = " on the controllers" if user == CONTROLLERS else ""
    assert f"User:{user} does not have the right {right}{where}." in said
    granted = [one for one in (*implying, right) if one.name == right.name]
    assert grant_commands(granted, secured.spec.bootstrap_servers, f"User:{user}")[0] in said
    assert [secured.cluster.runtime.process(node).pid for node in secured.spec.nodes] == before
