"""The commands of the runtime on hosts, and the sudoers file that permits them."""

from __future__ import annotations

import re

from kafka_rollout.adapters.runtimes.hosts.rights import Rights, sudoers_file
from kafka_rollout.domain.model.topology import ServiceSpec
from tests.paths import ROOT

SERVICE = ServiceSpec(host="kafka-1", unit="broker.service", log_file="/var/log/kafka/server.log")
SNAPSHOTS = "/var/lib/kafka/data/__cluster_metadata-0"


def permitted(sudoers: str, words: list[str]) -> bool:
    """Whether a line permits the command, as sudo reads literal arguments and regular expressions."""
    user, program, arguments = words[3], words[4], " ".join(words[5:])
    for line in sudoers.splitlines()[1:]:
        head, _, text = line.partition(" NOPASSWD: ")
        path, _, expected = text.partition(" ")
        if head != f"rollout ALL=({user})" or path != program:
            continue
        if expected.startswith("^"):
            if re.fullmatch(expected[1:-1], arguments):
                return True
        elif re.sub(r"\\([,:=\\])", r"\1", expected) == arguments:
            return True
    return False


def test_every_command_is_permitted_with_its_real_values() -> None:
    rights = Rights(SERVICE)
    file = sudoers_file("rollout", rights.all(SNAPSHOTS))
    checkpoint = "00000000000000012345-0000000007.checkpoint"
    for right in rights.all(SNAPSHOTS):
        assert permitted(file, right.command(pid=4711, release="4.3.1", lines=80, checkpoint=checkpoint)), right


def test_other_files_units_and_processes_are_not_permitted() -> None:
    rights = Rights(SERVICE)
    file = sudoers_file("rollout", rights.all(SNAPSHOTS))
    assert not permitted(file, rights.list_open_files.command(pid="1/root/../4711"))
    assert not permitted(file, rights.read_snapshot(SNAPSHOTS).command(checkpoint="../../../../../etc/shadow"))
    assert not permitted(file, rights.back_up.command(release="4.3.1 /etc/sudoers"))
    assert not permitted(file, Rights(ServiceSpec(host="kafka-1", unit="other.service")).stop.command())


def test_without_a_log_file_the_journal_is_read_without_sudo() -> None:
    rights = Rights(ServiceSpec(host="kafka-1"))
    assert rights.read_log is None
    assert "/usr/bin/tail" not in sudoers_file("rollout", rights.all(SNAPSHOTS))


def test_a_configuration_that_is_managed_elsewhere_is_never_written() -> None:
    rights = Rights(ServiceSpec(host="kafka-1", managed_elsewhere=True))
    writers = {right.program for right in rights.all(SNAPSHOTS)} & {"cp", "tee"}
    assert writers == set()


def test_the_documented_sudoers_file_is_the_one_of_the_default_inventory() -> None:
    file = sudoers_file("rollout", Rights(ServiceSpec(host="kafka-1")).all(SNAPSHOTS))
    assert f"```\n{file}```" in (ROOT / "docs" / "hosts.md").read_text()
