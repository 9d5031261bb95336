"""What would fail on a host is found before anything is stopped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.harness.shell import DRY_RUN, Shell
from tests.testbeds import MakeBed
from tools.testbed.bed import DATA, Bed
from tools.testbed.hosts import Host
from tools.testbed.image import LOGIN
from tools.testbed.ssh_files import make_key

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(900)]

REFUSED = 3
SUDOERS = "/etc/sudoers.d/zz-kafka-rollout"


@pytest.fixture(scope="module")
def bed(make_bed: MakeBed) -> Bed:
    return make_bed("4.2.1", others=("4.3.1",), size=3)


@pytest.fixture
def shell(bed: Bed, tmp_path: Path) -> Iterator[Shell]:
    """No process ends or starts in any of these tests."""
    before = [process_of(host) for host in bed.hosts]
    yield Shell(tmp_path, bed)
    assert [process_of(host) for host in bed.hosts] == before


def process_of(host: Host) -> str:
    return host.run("systemctl", "show", "--property=MainPID,NRestarts", "kafka.service")


def check(shell: Shell) -> tuple[int, str]:
    done = shell("inventory", "check", "--cluster", "testbed", "--to", "4.3.1")
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@contextmanager
def changed(host: Host, path: str, text: str) -> Iterator[None]:
    before = host.run("cat", path)
    host.run("tee", path, text=text)
    try:
        yield
    finally:
        host.run("tee", path, text=before)


def test_a_bed_that_is_ready_says_what_its_user_cannot_read_and_nothing_else(shell: Shell) -> None:
    code, said = check(shell)
    assert code == 0, said
    assert len(re.findall(r"10\.77\.0\.1\d kafka\.service \d+", said)) == 3
    assert re.findall(r"(blocker|warning|info) ([A-Z-]{5,})", said) == [("info", "START-PATH-UNKNOWN")] * 2
    assert "cannot read /etc/kafka/kafka.env" in said


def test_a_short_stop_timeout_blocks_the_plan(shell: Shell, bed: Bed) -> None:
    unit = "/etc/systemd/system/kafka.service"
    text = bed.hosts[1].run("cat", unit).replace("TimeoutStopSec=300", "TimeoutStopSec=5")
    with changed(bed.hosts[1], unit, text):
        bed.hosts[1].run("systemctl", "daemon-reload")
        done = shell(*DRY_RUN, "--cluster", "testbed", "--to", "4.3.1")
    bed.hosts[1].run("systemctl", "daemon-reload")
    assert done.returncode == REFUSED
    said = " ".join(done.stdout.split())
    assert "STOP-TIMEOUT-SHORT" in said
    assert "systemd kills kafka.service on host 10.77.0.12 5 s after a stop was requested" in said


def test_sudo_reads_the_printed_file_and_it_is_the_one_with_which_the_bed_is_ready(shell: Shell, bed: Bed) -> None:
    named = shell("inventory", "rights", "--of", "hosts", "--cluster", "testbed", "--log-dir", DATA, "--user", LOGIN)
    assert named.returncode == 0, named.stderr
    done = shell(
        "inventory", "rights", "--of", "hosts", "--cluster", "testbed", "--user", LOGIN
    )  # with the directories of each node
    assert (done.returncode, done.stdout) == (0, named.stdout), done.stderr
    hosts, _, text = done.stdout.partition("\n")
    assert hosts == "# " + ", ".join(host.address for host in bed.hosts)
    assert text.strip() == bed.hosts[0].run("cat", SUDOERS).strip()
    assert "parsed OK" in bed.hosts[0].run("visudo", "-cf", "-", text=done.stdout)


def test_each_missing_right_is_named_with_its_line(shell: Shell, bed: Bed) -> None:
    lines = bed.hosts[0].run("cat", SUDOERS).splitlines(keepends=True)
    for missing in (
        "/usr/bin/systemctl stop",
        "/usr/bin/mv -T /opt/kafka.kafka-rollout",
        r"/usr/bin/dd if\=/etc/kafka",
    ):
        with changed(bed.hosts[0], SUDOERS, "".join(line for line in lines if missing not in line)):
            code, said = check(shell)
        assert code == REFUSED
        assert missing in said
        assert "All missing rights: kafka-rollout inventory rights --cluster testbed --of hosts" in said


def test_a_changed_and_an_unknown_host_key_are_refused(shell: Shell, bed: Bed, tmp_path: Path) -> None:
    known_hosts = bed.folder / "ssh" / "known_hosts"
    before = known_hosts.read_text()
    other = " ".join(make_key(tmp_path / "other").split()[:2])
    first, rest = before.splitlines()[0].split(" ", 1)[0], "".join(before.splitlines(keepends=True)[1:])
    try:
        for text, says in (
            (f"{first} {other}\n{rest}", f"Host {first} has another host key than known_hosts"),
            (rest, f"The host key of {first} is not in known_hosts"),
        ):
            known_hosts.write_text(text)
            code, said = check(shell)
            assert code == REFUSED
            assert says in said
            done = shell(*DRY_RUN, "--cluster", "testbed", "--to", "4.3.1")
            assert done.returncode == REFUSED
            assert says in " ".join(done.stderr.split())
    finally:
        known_hosts.write_text(before)


def test_a_host_without_sshd_is_unreachable(shell: Shell, bed: Bed) -> None:
    bed.hosts[2].run("systemctl", "stop", "ssh.service")
    try:
        code, said = check(shell)
    finally:
        bed.hosts[2].run("systemctl", "start", "ssh.service")
    assert code == REFUSED
    assert "Host 10.77.0.13 cannot be reached by SSH" in said


def test_a_folder_in_the_place_of_the_symlink_and_a_missing_release_are_refused(shell: Shell, bed: Bed) -> None:
    host = bed.hosts[0]
    script = "rm /opt/kafka && mkdir /opt/kafka && mv /opt/kafka_2.13-4.3.1 /opt/moved"
    host.run("sh", "-c", script)
    try:
        code, said = check(shell)
    finally:
        host.run(
            "sh", "-c", "rmdir /opt/kafka; ln -s /opt/kafka_2.13-4.2.1 /opt/kafka; mv /opt/moved /opt/kafka_2.13-4.3.1"
        )
    assert code == REFUSED
    assert "SYMLINK-IS-NO-LINK" in said
    assert "there is no /opt/kafka_2.13-4.3.1/libs" in said
