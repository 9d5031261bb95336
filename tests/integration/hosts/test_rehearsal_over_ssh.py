"""A rehearsal of nodes on hosts: their files are copied over SSH, and the hosts are only read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.harness.groups.committing import write_group_and_transaction
from tests.integration.harness.shell import Shell
from tests.testbeds import MakeBed
from tools.testbed.bed import DATA, Bed

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1500)]

_S = 120.0
REHEARSE = ("rehearse", "--cluster", "testbed", "--to", "4.3.1", "--gate-timeout", "5m")


@pytest.fixture(scope="module")
def bed(make_bed: MakeBed) -> Bed:
    """Six hosts with a committed group and a transactional id."""
    bed = make_bed("3.9.1", others=("4.3.1",), size=6)
    servers = bed.spec.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(_S)
    write_group_and_transaction(servers, "orders")
    return bed


@pytest.fixture
def shell(bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("KAFKA_ROLLOUT_REHEARSE", "1")
    return Shell(tmp_path, bed)


def state_of(bed: Bed) -> list[str]:
    """Process, files of the configuration, and what the tool could leave on a host."""
    words = "systemctl show --property=MainPID kafka.service; ls -l /etc/kafka; find /tmp /home -type f"
    return [host.run("sh", "-c", words) for host in bed.hosts]


def test_an_upgrade_of_six_hosts_is_rehearsed_and_they_are_only_read(bed: Bed, shell: Shell, tmp_path: Path) -> None:
    before = state_of(bed)
    done = shell(*REHEARSE, "--json")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert (result["outcome"], len(result["nodes"])) == ("passed", 6)
    assert len(result["node_seconds"]) == 12, "each node forward and back"
    compared = " ".join(phase["sentence"] for phase in result["phases"])
    assert "1 group" in compared, compared
    assert "1 transactional id" in compared, compared
    assert any(sentence.startswith("The installations of the hosts") for sentence in result["not_covered"])
    assert state_of(bed) == before
    assert list((tmp_path / "home" / "rehearsals").iterdir()) == [], "nothing of the copy is left"


def test_a_copy_above_the_limit_is_refused_before_a_byte_is_copied(
    bed: Bed, shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host, log = next(
        (host, log) for host in bed.hosts if (log := host.run("sh", "-c", f"ls {DATA} | grep __consumer || true"))
    )
    file = f"{DATA}/{log.split()[0]}/99999999999999999999.log"
    host.run("truncate", "--size", "2G", file)
    try:
        shell.environment["KAFKA_ROLLOUT_REHEARSE_GIB"] = "1"
        done = shell(*REHEARSE)
    finally:
        host.run("rm", file)
    assert done.returncode == 3
    assert "The rehearsal would copy 2." in done.stderr
    assert "KAFKA_ROLLOUT_REHEARSE_GIB" in done.stderr
    assert not (tmp_path / "home" / "rehearsals").exists()


def test_a_host_without_the_rights_is_named_with_the_line_of_its_sudoers_file(bed: Bed, shell: Shell) -> None:
    host = bed.hosts[1]
    files = host.run("sh", "-c", "grep -l mindepth /etc/sudoers.d/*").split()
    assert files, "the test bed installs what inventory rights prints"
    content = host.run("cat", files[0])
    host.run("sed", "-i", "/mindepth/d", files[0])
    try:
        done = shell(*REHEARSE)
    finally:
        host.run("tee", files[0], text=content)
    assert done.returncode == 3
    assert "cannot list the files that a rehearsal copies" in done.stderr
    assert "NOPASSWD: /usr/bin/find" in done.stderr
