"""What a plan finds on a host before anything is stopped: clock, space, jars, logging and Java of a real unit."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import FatalError, TransientError, UserError
from kafka_rollout.nodes.runtimes.hosts.commands import HostDirectory
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.nodes.runtimes.hosts.shells import SshShell, connect_as_user
from kafka_rollout.releases.facts import Release
from tests.integration.harness.shell import DRY_RUN, Shell
from tests.testbeds import MakeBed
from tests.waiting import wait_until
from tools.testbed.bed import DATA

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(600)]

LIBS = "/opt/kafka_2.13-3.9.1/libs"
# As an operator leaves a host: a plugin among the jars, the log file of 3.x, and a small disk for releases.
_PREPARE = f"""set -e
cp {LIBS}/jopt-simple-*.jar {LIBS}/opa-authorizer-1.5.jar
cp /opt/kafka/config/log4j.properties /etc/kafka/own.properties
chown root:kafka /etc/kafka/own.properties
echo 'KAFKA_LOG4J_OPTS="-Dlog4j.configuration=file:/etc/kafka/own.properties"' >> /etc/kafka/kafka.env
mkdir /mnt/small
mount -t tmpfs -o size=10m tmpfs /mnt/small
systemctl restart kafka.service
"""
# Written as by a tool that does not run `systemctl daemon-reload`.
_LEAVE = """set -e
mkdir -p /etc/systemd/system/kafka.service.d
printf '[Service]\nKillMode=none\n' > /etc/systemd/system/kafka.service.d/left.conf
test "$(systemctl show --property=NeedDaemonReload --value kafka.service)" = no
"""
_SET_NODE_ID = (
    "sed -i 's/^node.id=.*/node.id={}/' $(sed -n 's/^log.dirs=//p' /etc/kafka/server.properties)/meta.properties"
)
_WRONG_CLOCK = """cat > /usr/local/bin/date <<'END'
#!/bin/sh
echo $(($(/usr/bin/date +%s) + 3600)).0
END
chmod 755 /usr/local/bin/date
"""
# The process goes on with the newer Java; the link in PATH leads to the older one, as after `update-alternatives`.
_OLD_JAVA = """set -e
java=$(readlink -f /usr/bin/java)
mkdir -p /usr/lib/jvm/java-11/bin
cp "$java" /usr/lib/jvm/java-11/bin/java
ln -s "${java%/bin/java}/lib" /usr/lib/jvm/java-11/lib
sed 's/^JAVA_VERSION=.*/JAVA_VERSION="11.0.2"/' "${java%/bin/java}/release" > /usr/lib/jvm/java-11/release
ln -sfn /usr/lib/jvm/java-11/bin/java /usr/bin/java
"""


def _observed(shell: Shell) -> dict[str, Any]:
    done = shell("verify", "--details", "--cluster", "testbed", "--json")
    assert done.stdout, done.stderr
    (node,) = json.loads(done.stdout)["state"]["nodes"].values()
    return node  # type: ignore[no-any-return]


def test_an_agent_that_only_its_host_reaches_is_read_through_ssh(make_bed: MakeBed, tmp_path: Path) -> None:
    bed = make_bed("4.3.1", others=(), size=1)
    shell, (host,) = Shell(tmp_path, bed), bed.hosts
    inventory = bed.inventory_path.read_text()
    assert f"http://{host.address}:" in inventory
    bed.inventory_path.write_text(inventory.replace(f"http://{host.address}:", "http://127.0.0.1:"))
    node = _observed(shell)
    assert node["metrics"]["current_metadata_version_prometheus"] == 30
    host.run("sh", "-c", "echo 'AllowTcpForwarding no' > /etc/ssh/sshd_config.d/no.conf && systemctl restart ssh")
    node = _observed(shell)
    assert node["metrics"] is None
    assert "not reached from host" in node["problem"]


def test_a_node_is_stopped_when_kafka_has_ended_and_not_when_systemd_gives_it_up(
    make_bed: MakeBed, tmp_path: Path
) -> None:
    bed = make_bed("4.3.1", others=(), size=1)
    shell, (host,), (node,) = Shell(tmp_path, bed), bed.hosts, bed.spec.nodes

    def blockers() -> set[str]:
        done = shell("inventory", "check", "--cluster", "testbed", "--json")
        (checked,) = json.loads(done.stdout)["nodes"]
        return {finding["code"] for finding in checked["findings"] if finding["severity"] == "blocker"}

    assert blockers() == set()
    host.run("sh", "-c", _LEAVE)
    assert blockers() == {"UNIT-NOT-RELOADED"}
    host.run("systemctl", "daemon-reload")
    assert blockers() == {"STOP-LEAVES-PROCESS"}
    with closing(SshShell(connect_as_user(bed.ssh_config))) as ssh:
        runtime = SshServiceRuntime(bed.spec, ssh, Release.parse)
        directory = HostDirectory(runtime, node, DATA)
        before = runtime.process(node).pid
        with pytest.raises(FatalError, match=rf"which systemd calls inactive \({before} \(java\)\)"):
            runtime.stop(node, deadline_s=2)
        assert (runtime.process(node).pid, runtime.process(node).running) == (before, Release(4, 3, 1))
        with pytest.raises(UserError, match="a process is left in its control group"):
            directory.refuse_running()
        with pytest.raises(TransientError, match="so it was not started"):
            runtime.start(node)
        runtime.stop(node, deadline_s=2, force=True)
        directory.refuse_running()
        runtime.start(node)
        assert runtime.process(node).pid not in (None, before)


def test_a_start_that_cannot_write_its_logs_is_found_before_the_stop(make_bed: MakeBed, tmp_path: Path) -> None:
    """Without LOG_DIR, Kafka's scripts let Java write to the folder of the release, which belongs to root."""
    bed = make_bed("4.3.1", others=("4.2.1",), size=1)
    shell, (host,) = Shell(tmp_path, bed), bed.hosts

    def blockers() -> dict[str, str]:
        done = shell("inventory", "check", "--cluster", "testbed", "--to", "4.2.1", "--json")
        (node,) = json.loads(done.stdout)["nodes"]
        return {one["code"]: one["sentence"] for one in node["findings"] if one["severity"] == "blocker"}

    host.run("sh", "-c", "chmod o+x /etc/kafka && chmod o+r /etc/kafka/kafka.env")
    assert blockers() == {}
    assert "kafkaServer-gc.log" in host.run("ls", "/var/log/kafka")
    host.run("sed", "-i", "/^LOG_DIR/d", "/etc/kafka/kafka.env")
    assert "create files in /opt/kafka_2.13-4.2.1 (mode 0755" in blockers()["START-FILE-FORBIDDEN"]
    host.run("systemctl", "restart", "kafka.service")
    refused = "journalctl -u kafka.service | grep -c 'Could not create the Java Virtual Machine' || true"
    wait_until(lambda: host.run("sh", "-c", refused).strip() != "0", 60)


def test_every_obstacle_on_a_host_is_found_while_the_node_runs(make_bed: MakeBed, tmp_path: Path) -> None:
    bed = make_bed("3.9.1", others=("4.3.1",), size=1)
    shell, (host,) = Shell(tmp_path, bed), bed.hosts

    def found() -> dict[str, str]:
        done = shell("inventory", "check", "--cluster", "testbed", "--to", "4.3.1", "--json")
        (node,) = json.loads(done.stdout)["nodes"]
        sentences: defaultdict[str, list[str]] = defaultdict(list)
        for finding in node["findings"]:
            sentences[finding["code"]].append(finding["sentence"])
        return {code: " ".join(of_code) for code, of_code in sentences.items()}

    # /etc/kafka is closed to the SSH user, which sees of this folder only the configuration, by a right.
    hidden = found()
    assert hidden.keys() == {"START-PATH-UNKNOWN"}
    assert "where /etc/kafka/kafka.env, /etc/kafka/jmx_exporter.yml of node 1" in hidden["START-PATH-UNKNOWN"]
    assert "cannot read /etc/kafka/kafka.env" in hidden["START-PATH-UNKNOWN"]
    host.run("sh", "-c", _SET_NODE_ID.format(77))
    planned = json.loads(shell(*DRY_RUN, "--cluster", "testbed", "--to", "4.3.1", "--json").stdout)
    (rejected,) = (one for one in planned["plan"]["findings"] if one["code"] == "CONFIG-REJECTED")
    assert "Stored node id 77 doesn't match previous node id 1" in rejected["sentence"]
    host.run("sh", "-c", _SET_NODE_ID.format(1))
    host.run("sh", "-c", _PREPARE)
    bed.start_kafka()
    warnings = found()
    assert warnings.keys() == {"FOREIGN-JARS", "LOG-CONFIG-UNREADABLE", "START-PATH-UNKNOWN"}
    assert f"{LIBS}/opa-authorizer-1.5.jar. The folder of 4.3.1 does not have" in warnings["FOREIGN-JARS"]
    assert "from /etc/kafka/own.properties. Kafka 4.3.1 logs with log4j2" in warnings["LOG-CONFIG-UNREADABLE"]

    host.run("sh", "-c", _WRONG_CLOCK)
    host.run("sh", "-c", _OLD_JAVA)
    inventory = bed.inventory_path.read_text()
    bed.inventory_path.write_text(
        inventory.replace("nodes:", "service: {installation: '/mnt/small/{release}'}\nnodes:", 1)
    )
    hidden = found()  # JAVA_HOME can be in the file that the SSH user cannot read
    assert "runs Java 17" in hidden["JAVA-UNKNOWN"]
    assert "or Java 11 (/usr/lib/jvm/java-11/bin/java)" in hidden["JAVA-UNKNOWN"]
    host.run("sh", "-c", "chmod o+x /etc/kafka && chmod o+r /etc/kafka/kafka.env")
    blockers = found()
    assert blockers.keys() >= {"CLOCK-SKEW", "JAVA-TOO-OLD", "HOST-DISK-FULL"}
    assert "is 3600 s ahead of" in blockers["CLOCK-SKEW"] or "is 3599 s ahead of" in blockers["CLOCK-SKEW"]
    assert "kafka-1 has Java 11" in blockers["JAVA-TOO-OLD"]
    assert "The file system of /mnt/small/4.3.1" in blockers["HOST-DISK-FULL"]
    assert host.run("systemctl", "show", "--property=NRestarts", "--value", "kafka.service").strip() == "0"
