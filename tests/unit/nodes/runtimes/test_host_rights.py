"""The commands of the runtime on hosts, and the sudoers file that permits them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kafka_rollout.model.topology import PackageSpec, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.rights import (
    EXAMPLE,
    HostRight,
    HostRights,
    MetadataRights,
    RehearsalRights,
    excess_rights,
    sudoers_file,
)
from tests.fakes.local_host import permitted

SERVICE = ServiceSpec(host="kafka-1", unit="broker.service", log_file="/var/log/kafka/server.log")
DATA = "/var/lib/kafka/data"


def test_every_command_is_permitted_with_its_real_values() -> None:
    rights = HostRights(SERVICE)
    file = sudoers_file("rollout", rights.all(DATA, [DATA, "/data2"]))
    for right in rights.all(DATA, [DATA, "/data2"]):
        assert permitted(file, right.command(**EXAMPLE)), right


def test_other_files_units_and_processes_are_not_permitted() -> None:
    rights = HostRights(SERVICE)
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
    assert not permitted(file, HostRights(ServiceSpec(host="kafka-1", unit="other.service")).stop.command())


def test_root_neither_unpacks_nor_copies_through_links() -> None:
    for writer, users in (("root", {"root"}), ("user", {"kafka"})):
        service = ServiceSpec(host="kafka-1", archive="/a/{release}.tgz", configuration_writer=writer)  # type: ignore[arg-type]
        rights = HostRights(service).all(DATA)
        assert not {right.program for right in rights if right.as_user == "root"} & {"tar", "mkdir", "rm"}
        copies = [right for right in rights if right.arguments[-1].startswith(service.configuration_file + ".")]
        written = [right for right in copies if right.program in ("cp", "tee")]
        assert {right.as_user for right in written} == users
        assert all(right.arguments[:2] == ("-aT", "--remove-destination") for right in written if right.program == "cp")


SECURE = r"secure_path=/usr/sbin\:/usr/bin\:/sbin\:/bin"


def listed_by_sudo(service: ServiceSpec, *more: str, defaults: str = f"env_reset, {SECURE}, env_reset, !setenv") -> str:
    """As sudo 1.9.13 prints it without a terminal."""
    own = [f"({right.as_user}) NOPASSWD: {right.sudoers()}" for right in HostRights(service).all(DATA, ["/data2"])]
    entries = "".join(f"    {line}\n" for line in (*own, *more))
    head = f"Matching Defaults entries for rollout on kafka-1:\n    {defaults}\n\n" if defaults else ""
    return f"{head}User rollout may run the following commands on kafka-1:\n{entries}"


@pytest.mark.parametrize(
    "more",
    [
        "(root) NOPASSWD: /usr/bin/bash",
        "(root, kafka) NOPASSWD: ALL",
        "(#0) NOPASSWD: ALL",
        "(#-1) NOPASSWD: ALL",
        "(#4294967295) NOPASSWD: ALL",
        "(%root) NOPASSWD: ALL",
        "(+hosts) NOPASSWD: ALL",
        "(ADMINS) NOPASSWD: /usr/bin/id",
        "(ALL) ALL, !/usr/bin/su",
        "(ALL : ALL) NOPASSWD: ALL",
        "(kafka : root) NOPASSWD: /usr/bin/id",
        "(ALL, !root) NOPASSWD: ALL",
        "(root) SETENV: NOPASSWD: /usr/bin/systemctl stop --no-block kafka.service",
        "(root) PASSWD: /usr/bin/systemctl stop --no-block kafka.service",
        "(root) /usr/bin/systemctl stop --no-block kafka.service",
        "(root) NOPASSWD: /usr/bin/systemctl",
        "(root) NOPASSWD: /usr/bin/systemctl stop --no-block kafka.service, /usr/bin/tee /etc/*",
        "(root) NOPASSWD: sudoedit /etc/x",
        "(root) NOPASSWD: /usr/bin/tar ^\\-\\-extract \\-\\-gzip$",
        "(root) NOPASSWD: /usr/bin/cp -a /etc/kafka/server.properties /etc/kafka/server.properties.kafka-rollout",
        "(root) sha256:abc /usr/bin/id",
    ],
)
def test_each_line_as_root_that_the_tool_did_not_print_is_found(more: str) -> None:
    assert excess_rights(listed_by_sudo(ServiceSpec(host="kafka-1"), more), [ServiceSpec(host="kafka-1")]) == (more,)


@pytest.mark.parametrize(
    "more",
    [
        "(kafka) NOPASSWD: ALL",
        "(svc.Kafka) NOPASSWD: ALL",
        "(kafka, #1001) NOPASSWD: /usr/bin/id",
        "(root) NOPASSWD: /usr/bin/systemctl stop --no-block kafka.service, /usr/bin/tee "
        "/etc/kafka/server.properties.kafka-rollout",
        "(root) NOPASSWD: /usr/bin/systemctl stop\n        --no-block kafka.service",
    ],
)
def test_printed_lines_and_those_of_other_users_are_not(more: str) -> None:
    assert excess_rights(listed_by_sudo(ServiceSpec(host="kafka-1"), more), [ServiceSpec(host="kafka-1")]) == ()


def test_a_line_that_cannot_be_read_is_found() -> None:
    listed = listed_by_sudo(ServiceSpec(host="kafka-1"), "root NOPASSWD ALL")
    assert excess_rights(listed, [ServiceSpec(host="kafka-1")]) == ("a line that cannot be read: root NOPASSWD ALL",)


def test_the_lines_of_every_node_of_the_host_are_known() -> None:
    services = [ServiceSpec(host="kafka-1"), ServiceSpec(host="kafka-1", unit="controller.service")]
    other = [f"({right.as_user}) NOPASSWD: {right.sudoers()}" for right in HostRights(services[1]).all(DATA)]
    listed = listed_by_sudo(services[0], *other)
    assert excess_rights(listed, services) == ()
    assert {line.split()[2] for line in excess_rights(listed, services[:1])} == {"/usr/bin/systemctl"}
    node_s_user_writes = [ServiceSpec(host="kafka-1", configuration_writer="user")]
    found = excess_rights(listed_by_sudo(services[0]), node_s_user_writes)
    assert {line.split()[2] for line in found} == {"/usr/bin/tee", "/usr/bin/mv", "/usr/bin/cp"}


@pytest.mark.parametrize(
    ("defaults", "found"),
    [
        ("", "no secure_path"),
        ("env_reset", "no secure_path"),
        (f"{SECURE}, !secure_path", "no secure_path"),
        (r"secure_path=/srv/rollout/bin\:/usr/bin", "secure_path=/srv/rollout/bin:/usr/bin"),
        (rf"{SECURE}, secure_path=.\:/bin", "secure_path=.:/bin"),
        (f"{SECURE}, env_reset, !env_reset", "!env_reset"),
        (f"{SECURE}, !setenv, setenv", "setenv"),
        (f"{SECURE}, exempt_group=admins", "exempt_group=admins"),
        (f"{SECURE}, env_keep+=LD_LIBRARY_PATH", "env_keep of LD_LIBRARY_PATH"),
        (
            f'{SECURE}, env_keep="COLORS LC_TIME", env_keep+="LD_PRELOAD PYTHONPATH"',
            "env_keep of LD_PRELOAD PYTHONPATH",
        ),
        (f"{SECURE}, env_keep=*", "env_keep of *"),
        (f"{SECURE}, env_keep+=HOME", "env_keep of HOME"),
        (f"{SECURE}, !env_keep, env_keep+=BASH_ENV", "env_keep of BASH_ENV"),
        (f"{SECURE}, env_keep+=LD_PRELOAD, !env_keep", ""),
        (f"{SECURE}, env_keep+=LD_PRELOAD, env_keep-=LD_PRELOAD", ""),
        (f"{SECURE}, env_keep+=TZ", "env_keep of TZ"),
        (f"{SECURE}, env_check+=PYTHONPATH", "env_check of PYTHONPATH"),
        (f"{SECURE}, env_check+=PYTHONPATH, env_check-=TZ, env_check=TZ, env_delete-=LD_*", ""),
        (f"{SECURE}, env_file=/srv/rollout/e", "env_file=/srv/rollout/e"),
        (f"{SECURE}, env_file=/srv/rollout/e, !env_file", ""),
        (f"{SECURE}, umask=0002, umask_override", "umask=0002"),
        (f"{SECURE}, umask=0777", "umask=0777"),
        (f"{SECURE}, !umask", "!umask"),
        (f"{SECURE}, umask=0077", ""),
        (f"{SECURE}, runchroot=*", "runchroot=*"),
        (f"{SECURE}, stay_setuid", "stay_setuid"),
        (f"{SECURE}, !stay_setuid", ""),
        (f"{SECURE}, setting_of_a_later_sudo", "setting_of_a_later_sudo"),
        (f'{SECURE}, passprompt="[sudo] password, for %p: ", mailto=a\\,b@example.com', ""),
        (f"mail_badpass, {SECURE}, use_pty", ""),
        (r"secure_path=/usr/local/sbin\:/usr/local/bin\:/usr/sbin\:/usr/bin\:/sbin\:/bin, use_pty", ""),
    ],
)
def test_defaults_with_which_root_runs_programs_of_the_ssh_user_are_found(defaults: str, found: str) -> None:
    listed = listed_by_sudo(ServiceSpec(host="kafka-1"), defaults=defaults)
    assert excess_rights(listed, [ServiceSpec(host="kafka-1")]) == ((f"Defaults: {found}",) if found else ())


@pytest.mark.parametrize(
    ("bound", "found"),
    [
        ("Defaults!/usr/bin/vim setenv, !env_reset", ""),
        ("Defaults!/usr/bin/systemctl noexec", ""),
        ("Defaults!/bin/systemctl setenv", "Defaults!/bin/systemctl: setenv"),
        ("Defaults!/usr/bin/vim, ALL env_keep+=LD_PRELOAD", "Defaults!/usr/bin/vim, ALL: env_keep of LD_PRELOAD"),
        (
            'Defaults!/usr/bin/mv -T /a /b env_keep+="LD_PRELOAD LANG", !env_reset',
            "Defaults!/usr/bin/mv -T /a /b: env_keep of LD_PRELOAD, !env_reset",
        ),
        ("Defaults!/usr/bin/ !secure_path", "Defaults!/usr/bin/: no secure_path"),
        ("Defaults!/usr/bin/m* setenv", "Defaults!/usr/bin/m*: setenv"),
        ("Defaults!sha256:abc /usr/bin/vim setenv", "Defaults!sha256:abc /usr/bin/vim: setenv"),
        ("Defaults>kafka, oracle setenv", ""),
        ("Defaults>oracle, root setenv, insults", "Defaults>oracle, root: setenv"),
        ("Defaults>ALL env_check+=LD_PRELOAD", "Defaults>ALL: env_check of LD_PRELOAD"),
        ("Defaults>ALL noexec", ""),
    ],
)
def test_defaults_of_commands_and_of_runas_users_are_found_where_they_concern_root(bound: str, found: str) -> None:
    listed = listed_by_sudo(ServiceSpec(host="kafka-1"))
    head = "User rollout may run"
    listed = listed.replace(head, f"Runas and Command-specific defaults for rollout:\n    {bound}\n\n\n{head}")
    assert excess_rights(listed, [ServiceSpec(host="kafka-1")]) == ((found,) if found else ())


def test_the_printed_file_sets_the_path_of_root() -> None:
    first, *_ = sudoers_file("rollout", HostRights(ServiceSpec(host="kafka-1")).all(DATA)).splitlines()
    assert first == (
        'Defaults:rollout secure_path="/usr/sbin:/usr/bin:/sbin:/bin", env_reset, !env_keep, '
        'env_check="LANGUAGE LC_ALL", !env_file, !exempt_group, !setenv, umask=0022, !requiretty'
    )


@pytest.mark.parametrize("versions", [{}, {"4.3.1": "8.3.1-1", "3.9.1": "7.9.1-1"}])
def test_root_installs_the_package_in_the_versions_of_the_inventory_only(versions: dict[str, str]) -> None:
    package = PackageSpec(
        install=("/usr/bin/apt-get", "install", "kafka={version}", "libs={version}"),
        check=("/usr/bin/apt-get", "install", "--simulate", "kafka={version}"),
        repair=("/usr/local/sbin/repair",),
        versions=versions,
    )
    rights = HostRights(ServiceSpec(host="kafka-1", package=package))
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
    rights = HostRights(ServiceSpec(host="kafka-1"))
    assert rights.read_log is None
    assert "/usr/bin/tail" not in sudoers_file("rollout", rights.all(DATA))


def test_a_configuration_that_is_managed_elsewhere_is_never_written() -> None:
    rights = HostRights(ServiceSpec(host="kafka-1", managed_elsewhere=True))
    assert not [right for right in rights.all(DATA) if right.as_user == "root" and right.program in {"cp", "tee"}]


READS = ("dd", "tail", "stat", "find", "grep", "sha256sum", "df", "ls")


def reading(folder: Path) -> list[HostRight]:
    """The rights that read files and directories below a folder, without the one that asks who can change a path."""
    service = ServiceSpec(host="h", configuration_file=f"{folder}/server.properties", log_file=f"{folder}/server.log")
    rights = HostRights(service)
    data = f"{folder}/data"
    found = (*rights.all(data, [data]), *RehearsalRights("kafka", data).all())
    return [one for one in found if one.program in READS and one not in (rights.see_paths, rights.list_open_files)]


def test_what_is_read_of_a_link_is_what_is_read_of_the_file_or_directory_behind_it(tmp_path: Path) -> None:
    real, linked = tmp_path / "real", tmp_path / "linked"
    for name in ("data/__cluster_metadata-0", "data/__consumer_offsets-0"):
        (real / name).mkdir(parents=True)
    offsets = "data/__consumer_offsets-0"
    for name in ("server.properties", "server.properties.0.0.0", "server.properties.kafka-rollout", "server.log"):
        (real / name).write_text(f"the content of {name}\n" * 9)
    for name in ("data/meta.properties", "data/__cluster_metadata-0/quorum-state", f"{offsets}/{'0' * 20}.log"):
        (real / name).write_text(f"the content of {name}\n")
    (real / f"{offsets}/partition.metadata").write_text("version: 0\ntopic_id: Zk9xQ2h4\n")
    (real / "data/__cluster_metadata-0/quorum-state.kafka-rollout").write_text("a draft\n")
    linked.mkdir()
    for path in real.iterdir():
        (linked / path.name).symlink_to(path)

    def run(right: HostRight) -> str:
        words = right.command(**EXAMPLE)[4:]
        words[0] = right.program
        # The free space changes between two commands, its file system does not.
        words = [word.replace("--output=avail", "--output=source") for word in words]
        done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False)
        return done.stdout.replace(str(linked), str(real))

    for one, other in zip(reading(real), reading(linked), strict=True):
        assert run(one) != "", one
        assert run(other) == run(one), other


@pytest.mark.parametrize("waits", [False, True], ids=["no writer", "a writer that waits"])
def test_a_fifo_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, waits: bool) -> None:
    """The user of the node can make one in its directories."""
    names = ("server.properties", "server.properties.0.0.0", "data/meta.properties")
    inside = ("data/__cluster_metadata-0/quorum-state", f"data/__consumer_offsets-0/{'0' * 20}.log")
    held = []
    for name in (*names, *inside):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(tmp_path / name)
        if waits:
            held.append(os.open(tmp_path / name, os.O_RDWR))
    try:
        meta = HostRights(ServiceSpec(host="h")).read_directory_id(f"{tmp_path}/data")
        found = [meta, *(one for one in reading(tmp_path) if one.program == "dd")]
        assert len(found) == 5
        for right in found:
            words = [right.program, *right.command(**EXAMPLE)[5:]]
            done = subprocess.run(words, capture_output=True, timeout=10, check=False)
            assert (done.stdout, done.returncode != 0) == (b"", waits)
    finally:
        for descriptor in held:
            os.close(descriptor)
