"""Kafka as a Debian package whose scripts restart the unit: an upgrade that is interrupted twice, and its rollback."""

from __future__ import annotations

import json
import re
from pathlib import Path
from subprocess import Popen

import pytest

from tests.integration.harness.shell import APPROVED, DRY_RUN, PLANNED_ON_HOSTS, QUICK, Shell
from tests.testbeds import MakeBed
from tests.waiting import wait_until
from tools.testbed.hosts import Host
from tools.testbed.packages import PACKAGE, SLOW

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1200)]

CONFIGURATION = "/etc/kafka/server.properties"


def test_a_package_is_upgraded_and_rolled_back_although_its_installation_is_interrupted(
    make_bed: MakeBed, tmp_path: Path
) -> None:
    bed = make_bed("3.9.1", others=("4.3.1",), size=3, packaged=True)
    shell = Shell(tmp_path, bed)
    before = [(host.run("cat", CONFIGURATION), starts(host)) for host in bed.hosts]
    planned = json.loads(shell(*DRY_RUN, "--cluster", "testbed", "--to", "4.3.1", "--json").stdout)
    assert "plan" in planned, planned
    order = [bed.spec.node(step["node_id"]) for step in planned["plan"]["release_steps"][0]["order"]]
    first, second, _ = map(bed.host_of, order)
    run = ("--cluster", "testbed", "--run", planned["run"])
    upgrade = ("upgrade", *run, "--to", "4.3.1", *QUICK, *PLANNED_ON_HOSTS, "--no-scan")

    def begin(host: Host) -> Popen[bytes]:
        """Return the call, while the scripts of the package run on the host."""
        host.run("touch", SLOW)
        call = shell.start(*upgrade)
        wait_until(lambda: "postinst" in host.run("ps", "-eo", "args") or call.poll() is not None, 400)
        assert call.poll() is None, (tmp_path / "killed.log").read_text()
        assert host.run("systemctl", "show", "--property=LoadState,MainPID", "kafka.service").split() == [
            "MainPID=0",
            "LoadState=masked",
        ]
        return call

    call = begin(first)  # the tool is killed, and its connection ends with it
    call.kill()
    call.wait()
    first.run("rm", SLOW)

    call = begin(second)  # it waits for the package manager on the first host, and continues
    second.run("pkill", "--signal", "KILL", "--exact", "dpkg")
    assert call.wait(400) != 0
    assert "was not installed on host" in " ".join((tmp_path / "killed.log").read_text().split())
    second.run("rm", SLOW)  # its script still runs, and tries to start the unit
    # As dpkg leaves it when it is killed while it writes its status.
    second.run("sh", "-c", "dpkg --status kafka > /var/lib/dpkg/updates/0001")
    refused = shell(*upgrade)
    assert refused.returncode != 0
    assert "Run `dpkg --configure -a` there as root, then repeat the step." in " ".join(refused.stderr.split())
    second.run("dpkg", "--configure", "-a", "--force-confold")

    done = shell(*upgrade)

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(Path(done.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "rolled_not_finalized", report["sentence"]
    for host, (configuration, started) in zip(bed.hosts, before, strict=True):
        assert installed(host) == ["4.3.1"]
        assert host.run("cat", CONFIGURATION) == configuration
        # The package has started nothing, although it tries to.
        assert starts(host) == started + 1
        assert host.run("apt-mark", "showhold").split() == ["kafka"]

    back = shell("rollback", *run, *APPROVED)

    assert back.returncode == 0, back.stdout + back.stderr
    for host, (configuration, started) in zip(bed.hosts, before, strict=True):
        assert installed(host) == ["3.9.1"]
        assert host.run("cat", CONFIGURATION) == configuration
        assert starts(host) == started + 2
        assert host.run("apt-mark", "showhold").split() == ["kafka"]
        assert host.run("systemctl", "show", "--property=NRestarts", "--value", "kafka.service").strip() == "0"
    check_repositories(shell, first, f"node {order[0].node_id}")


def check_repositories(shell: Shell, host: Host, node: str) -> None:
    """A release that a repository lost is named: the target, and what runs and would be installed in a rollback."""

    def check(release: str, says: str) -> None:
        host.run("apt-get", "update")
        checked = json.loads(shell("inventory", "check", "--cluster", "testbed", "--to", "4.3.1", "--json").stdout)
        (found,) = (one for one in checked["findings"] if one["code"] == "PACKAGE-UNAVAILABLE")
        assert found["subject"] == f"{node}, release {release}"
        assert says in found["sentence"]

    host.run("rm", "/srv/kafka/kafka_4.3.1-1_all.deb")
    host.run("sed", "-i", "/^Package/,$ s/4.3.1-1/4.3.0-1/", "/srv/kafka/Packages")
    check("4.3.1", "Version '4.3.1-1' for 'kafka' was not found")
    host.run("sed", "-i", "/^Package/,$ s/4.3.0-1/4.3.1-1/; s/3.9.1-1/3.9.0-1/", "/srv/kafka/Packages")
    check("3.9.1", "--download-only --reinstall")


_UNFINISHED = """set -e
mkdir -p /tmp/agent/DEBIAN
printf 'Package: agent\\nVersion: 1\\nArchitecture: all\\nMaintainer: a <a@example.com>\\nDescription: a\\n' \
  > /tmp/agent/DEBIAN/control
printf '#!/bin/sh\\nexit 1\\n' > /tmp/agent/DEBIAN/postinst
chmod 755 /tmp/agent/DEBIAN/postinst
dpkg-deb --build /tmp/agent /tmp/agent.deb
dpkg --install /tmp/agent.deb || true
echo '# edited' >> /lib/systemd/system/kafka.service
"""


def test_what_fails_or_is_lost_in_an_installation_is_found_before_the_stop(make_bed: MakeBed, tmp_path: Path) -> None:
    bed = make_bed("3.9.1", others=("4.3.1",), size=1, packaged=True)
    shell, (host,) = Shell(tmp_path, bed), bed.hosts

    def found() -> dict[str, str]:
        checked = json.loads(shell("inventory", "check", "--cluster", "testbed", "--to", "4.3.1", "--json").stdout)
        return {f"{one['code']} {one['subject']}": one["sentence"] for one in checked["findings"]}

    unit = "START-PATH-SWITCHED node 1, the unit and its environment, edited"
    assert not {"PACKAGE-UNFINISHED node 1", unit} & found().keys()
    host.run("sh", "-c", _UNFINISHED)
    broken = found()
    assert "agent (half-configured)" in broken["PACKAGE-UNFINISHED node 1"]
    assert "/lib/systemd/system/kafka.service" in broken[unit]


def installed(host: Host) -> list[str]:
    return re.findall(r"/kafka_2\.13-(\S+)\.jar", host.run("sh", "-c", f"ls {PACKAGE.jars}/kafka_2.*.jar"))


def starts(host: Host) -> int:
    return host.run("journalctl", "--unit", "kafka.service", "--output=cat").count("Started kafka.service")
