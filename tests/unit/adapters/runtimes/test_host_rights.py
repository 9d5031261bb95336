"""The commands of the runtime on hosts, and the sudoers file that permits them."""

from __future__ import annotations

from kafka_rollout.adapters.runtimes.hosts.rights import EXAMPLE, MetadataRights, Rights, sudoers_file
from kafka_rollout.domain.model.cluster.topology import ServiceSpec
from tests.fakes.local_host import permitted
from tests.paths import ROOT

SERVICE = ServiceSpec(host="kafka-1", unit="broker.service", log_file="/var/log/kafka/server.log")
DATA = "/var/lib/kafka/data"


def test_every_command_is_permitted_with_its_real_values() -> None:
    rights = Rights(SERVICE)
    file = sudoers_file("rollout", rights.all(DATA, [DATA, "/data2"]))
    for right in rights.all(DATA, [DATA, "/data2"]):
        assert permitted(file, right.command(**EXAMPLE)), right


def test_other_files_units_and_processes_are_not_permitted() -> None:
    rights = Rights(SERVICE)
    file = sudoers_file("rollout", rights.all(DATA))
    assert not permitted(file, rights.list_open_files.command(pid="1/root/../4711"))
    logs = MetadataRights("kafka", DATA)
    for name in ("../../../../etc/shadow", "orders-0/00000000000000000000.log", "__cluster_metadata-0/../orders-0"):
        assert not permitted(file, logs.read.command(file=name)), name
        assert not permitted(file, logs.copy.command(file=name, to=name)), name
        assert not permitted(file, logs.remove.command(to=name)), name
    assert not permitted(file, logs.remove.command(to="meta.properties"))
    assert not permitted(file, logs.remove_folder.command(backup="kafka-rollout-trim-1/.."))
    assert not permitted(file, logs.sync.command(place=" /etc"))
    assert not permitted(file, rights.back_up.command(release="4.3.1 /etc/sudoers"))
    assert not permitted(file, Rights(ServiceSpec(host="kafka-1", unit="other.service")).stop.command())


def test_without_a_log_file_the_journal_is_read_without_sudo() -> None:
    rights = Rights(ServiceSpec(host="kafka-1"))
    assert rights.read_log is None
    assert "/usr/bin/tail" not in sudoers_file("rollout", rights.all(DATA))


def test_a_configuration_that_is_managed_elsewhere_is_never_written() -> None:
    rights = Rights(ServiceSpec(host="kafka-1", managed_elsewhere=True))
    assert not [right for right in rights.all(DATA) if right.as_user == "root" and right.program in {"cp", "tee"}]


def test_the_documented_sudoers_file_is_the_one_of_the_default_inventory() -> None:
    file = sudoers_file("rollout", Rights(ServiceSpec(host="kafka-1")).all(DATA))
    assert f"```\n{file}```" in (ROOT / "docs" / "hosts.md").read_text()
