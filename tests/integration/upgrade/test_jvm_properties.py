"""OAuth URLs that the JVM does not allow: a finding of the plan, and a node of 4.x that does not start."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kafka_rollout.base.system.files import write_whole
from kafka_rollout.base.system.free_ports import free_ports
from kafka_rollout.releases.facts import Release
from tests.integration.conftest import MakeCluster
from tests.integration.harness.security.token_server import TokenServer
from tests.integration.harness.shell import DRY_RUN, Shell
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]

OLD, NEW = Release(3, 9, 1), Release(4, 3, 1)
OAUTH = "org.apache.kafka.common.security.oauthbearer"
LISTENER = "listener.name.oauth.oauthbearer"


def blockers(shell: Shell) -> dict[str, str]:
    """Code → remedy of the blockers of a plan to 4.3.1, without those that follow from a single node."""
    planned = shell(*DRY_RUN, "--cluster", "shell", "--to", str(NEW), "--json")
    findings = json.loads(planned.stdout)["plan"]["findings"]
    return {one["code"]: one["remedy"] for one in findings if one["severity"] == "blocker" and "JVM" in one["code"]}


def test_a_broker_with_an_oauth_url_starts_on_4_x_only_with_the_argument_that_the_plan_names(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(str(OLD), name="shell", layout="combined", size=1)
    (node,) = cluster.spec.nodes
    home = Path(str(node.directory))
    cluster.stop()
    (port,) = free_ports(1)
    text = (home / "server.properties").read_text()
    text = text.replace("listeners=", f"listeners=OAUTH://127.0.0.1:{port},", 1)
    text = text.replace("protocol.map=", "protocol.map=OAUTH:SASL_PLAINTEXT,", 1)
    text += (
        "inter.broker.listener.name=PLAINTEXT\nlistener.name.oauth.sasl.enabled.mechanisms=OAUTHBEARER\n"
        f"{LISTENER}.sasl.server.callback.handler.class={OAUTH}.OAuthBearerValidatorCallbackHandler\n"
        f"{LISTENER}.sasl.jaas.config={OAUTH}.OAuthBearerLoginModule required;\n"
        f"{LISTENER}.sasl.oauthbearer.jwks.endpoint.url={TokenServer(clients={}).write_jwks(tmp_path / 'jwks.json')}\n"
    )
    write_whole(home / "server.properties", text.encode(), mode=0o644)
    cluster.start()
    shell = Shell(tmp_path, cluster)

    (remedy,) = blockers(shell).values()
    cluster.stop()
    cluster.runtime.install(node, NEW)
    cluster.runtime.start(node)
    wait_until(lambda: cluster.runtime.process(node).pid is None, 300, said="the exit of the node")
    log = (home / "logs" / "server.log").read_text()
    assert "org.apache.kafka.sasl.oauthbearer.allowed.urls' to allow" in log

    argument = re.search(r"Add (-D\S+) to", remedy)
    assert argument is not None, remedy
    with (home / "jvm.options").open("a") as options:
        options.write(f"{argument[1]}\n")
    cluster.start()
    assert blockers(shell) == {}
