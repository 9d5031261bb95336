"""The commands of the runtime on hosts, and the sudoers file that permits them."""

from __future__ import annotations

import pytest

from kafka_rollout.model.topology import PackageSpec, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.rights import EXAMPLE, MetadataRights, Rights, excess_rights, sudoers_file
from tests.fakes.local_host import permitted

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
    for place in (" /etc", "/../../../../etc/hostname", "/__cluster_metadata-0/../x", "/orders-0"):
        assert not permitted(file, logs.sync.command(place=place)), place
    for place in ("", "/__cluster_metadata-0", "/__cluster_metadata-0/kafka-rollout-trim-1", "/bootstrap.checkpoint"):
        assert permitted(file, logs.sync.command(place=place)), place
    assert not permitted(file, rights.back_up.command(release="4.3.1 /etc/sudoers"))
    assert not permitted(file, Rights(ServiceSpec(host="kafka-1", unit="other.service")).stop.command())


def test_root_neither_unpacks_nor_copies_through_links() -> None:
    for writer, users in (("root", {"root"}), ("user", {"kafka"})):
        service = ServiceSpec(host="kafka-1", archive="/a/{release}.tgz", configuration_writer=writer)  # type: ignore[arg-type]
        rights = Rights(service).all(DATA)
        assert not {right.program for right in rights if right.as_user == "root"} & {"tar", "mkdir", "rm"}
        copies = [right for right in rights if right.arguments[-1].startswith(service.configuration_file + ".")]
        written = [right for right in copies if right.program in ("cp", "tee")]
        assert {right.as_user for right in written} == users
        assert all(right.arguments[:2] == ("-aT", "--remove-destination") for right in written if right.program == "cp")


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ("(root) NOPASSWD: /usr/bin/tar ^\\-\\-extract \\-\\-gzip$", True),
        (
            "(root) NOPASSWD: /usr/bin/cp -a /etc/kafka/server.properties /etc/kafka/server.properties.kafka-rollout",
            True,
        ),
        ("(ALL : ALL) NOPASSWD: ALL", True),
        ("(ALL) ALL", False),
        ("(kafka) NOPASSWD: /usr/bin/mkdir ^\\-m 700 /data/__cluster_metadata\\-0/kafka-rollout-[a-z0-9-]+$", False),
    ],
)
def test_rights_that_make_the_ssh_user_root_are_found(listed: str, found: bool) -> None:
    service = ServiceSpec(host="kafka-1")
    own = "\n".join(f"    ({right.as_user}) NOPASSWD: {right.sudoers()}" for right in Rights(service).all(DATA))
    text = f"User rollout may run the following commands on kafka-1:\n{own}\n    {listed}\n"
    assert excess_rights(text, service) == ((listed,) if found else ())
    root_writes = excess_rights(text, ServiceSpec(host="kafka-1", configuration_writer="user"))
    assert {line.split()[2] for line in root_writes} >= {"/usr/bin/tee", "/usr/bin/mv"}


@pytest.mark.parametrize("versions", [{}, {"4.3.1": "8.3.1-1", "3.9.1": "7.9.1-1"}])
def test_root_installs_the_package_in_the_versions_of_the_inventory_only(versions: dict[str, str]) -> None:
    package = PackageSpec(
        install=("/usr/bin/apt-get", "install", "kafka={version}", "libs={version}"),
        check=("/usr/bin/apt-get", "install", "--simulate", "kafka={version}"),
        repair=("/usr/local/sbin/repair",),
        versions=versions,
    )
    rights = Rights(ServiceSpec(host="kafka-1", package=package))
    file, install = sudoers_file("rollout", rights.all(DATA)), rights.of_package(package.install)
    version = versions.get("4.3.1", "4.3.1")
    for right in rights.all(DATA):
        assert permitted(file, right.command(**EXAMPLE | {"version": version})), right
    for other in ("8.3.1-2", "4.3.1 -o Dpkg::Pre-Invoke::=sh", "4.3.1-", "../x.deb"):
        assert not permitted(file, install.command(version=other)), other
    assert 'NOPASSWD: /usr/local/sbin/repair ""' in file
    assert "/usr/bin/ln" not in file
    assert "/usr/bin/apt-get" in rights.see_paths.arguments


def test_without_a_log_file_the_journal_is_read_without_sudo() -> None:
    rights = Rights(ServiceSpec(host="kafka-1"))
    assert rights.read_log is None
    assert "/usr/bin/tail" not in sudoers_file("rollout", rights.all(DATA))


def test_a_configuration_that_is_managed_elsewhere_is_never_written() -> None:
    rights = Rights(ServiceSpec(host="kafka-1", managed_elsewhere=True))
    assert not [right for right in rights.all(DATA) if right.as_user == "root" and right.program in {"cp", "tee"}]
