"""The printed sudoers file with real sudo: the SSH user and the user of the broker do not become root.

The host is not booted: sudo, the users and the file system are real, and commands run in it by chroot.
"""

from __future__ import annotations

import hashlib
import io
import re
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from kafka_rollout.base.errors import FatalError, RefusedError
from kafka_rollout.model.host_state import HostState, StartRecord
from kafka_rollout.model.package_managers import download_of
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, PackageSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.logs import end_of_log, read_file_on
from kafka_rollout.nodes.runtimes.hosts.rights import DRAFT, EXAMPLE, HostRights, excess_rights, sudoers_file
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.nodes.runtimes.hosts.shells import COMMAND_S, Done
from kafka_rollout.nodes.runtimes.hosts.unit_state import parse_paths
from kafka_rollout.nodes.runtimes.log_files import NO_FILE, ROTATED, log_part
from kafka_rollout.planning.findings.hosts import path_findings
from kafka_rollout.releases.facts import Release
from tools.testbed.bed import DATA, missing
from tools.testbed.hosts import Host
from tools.testbed.image import KAFKA, LOGIN, base_image
from tools.testbed.installation import OWN_FILES
from tools.testbed.packages import PACKAGE

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(300)]

R421, R431 = Release(4, 2, 1), Release(4, 3, 1)
EMPTY_JAR = b"PK\x05\x06" + b"\0" * 18
LOG = "/var/log/kafka/server.log"
_CHROOT = shutil.which("chroot") or "chroot"
SUDOERS = "etc/sudoers.d/zz-kafka-rollout"


# Lines that an earlier version printed for `archive`.
_DRAFT = r"/opt/kafka_2\.13\-[0-9]+\.[0-9]+\.[0-9]+\.kafka\-rollout"
_UNPACK = r"\-\-extract \-\-gzip \-\-no\-same\-owner \-\-strip\-components=1 \-\-directory="
FORMER = "".join(
    f"{LOGIN} ALL=(root) NOPASSWD: /usr/bin/{command}\n"
    for command in (
        rf"mkdir ^\-m 755 {_DRAFT}$",
        f"tar ^{_UNPACK}{_DRAFT}$",
        "cp -a /etc/kafka/server.properties /etc/kafka/server.properties.kafka-rollout",
    )
)


Members = tuple[tuple[tarfile.TarInfo, bytes], ...]


@dataclass
class Machine:
    """The file system of a host. It is also the shell of the runtime, which runs commands as the SSH user."""

    root: Path

    def run(
        self,
        host: str,
        command: str | Sequence[str],
        *,
        text: str | bytes | None = None,
        within_s: float = COMMAND_S,
        sink: Callable[[bytes], object] | None = None,
        user: str = LOGIN,
    ) -> Done:
        line = command if isinstance(command, str) else shlex.join(command)
        home = f"/home/{LOGIN}" if user == LOGIN else "/"
        done = subprocess.run(
            [_CHROOT, f"--userspec={user}:{user}", self.root, "bash", "-c", f"cd; {line}"],
            input=text.encode() if isinstance(text, str) else text or b"",
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "HOME": home},
            capture_output=True,
            timeout=within_s,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr.decode())

    def as_root(self, script: str) -> None:
        subprocess.run([_CHROOT, self.root, "/bin/sh", "-ec", script], check=True, timeout=60)

    def permit(self, node: NodeSpec, more: str = "") -> None:
        """Save the printed file, and let visudo parse it."""
        _write(self.root / SUDOERS, sudoers_file(LOGIN, HostRights(service_of(node)).all(DATA)) + more)
        self.as_root(f"visudo -cf /{SUDOERS} >&2")

    @contextmanager
    def without_right(self, text: str) -> Iterator[None]:
        """Remove the lines with this text."""
        file = self.root / SUDOERS
        before = file.read_text()
        _write(file, "".join(line for line in before.splitlines(keepends=True) if text not in line))
        yield
        _write(file, before)

    def short_timeouts(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        """Nothing is open."""


def _write(sudoers: Path, text: str) -> None:
    sudoers.unlink(missing_ok=True)
    sudoers.write_text(text)
    sudoers.chmod(0o440)


def packaged(*install: str) -> PackageSpec:
    return PackageSpec(install=install, download=download_of(install))


def service_of(node: NodeSpec) -> ServiceSpec:
    assert node.service is not None
    return node.service


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    if why := missing():
        pytest.skip(why)
    host = Host(bed="rights", number=1, folder=tmp_path / "host")
    host.mount([base_image()])
    machine = Machine(host.root)
    (host.root / "proc" / "uptime").write_text(Path("/proc/uptime").read_text())  # nothing mounts /proc
    etc = host.root / "etc" / "kafka"
    etc.mkdir()
    (etc / "server.properties").write_text("node.id=1\nlog.dirs=/var/lib/kafka/data\n")
    machine.as_root(f"{OWN_FILES}\ninstall -d -o {LOGIN} -g {LOGIN} -m 755 /opt/releases")
    try:
        yield machine
    finally:
        host.end()


def node_with(tmp_path: Path, **service: object) -> NodeSpec:
    spec = ServiceSpec(
        host="kafka-1",
        installation="/opt/releases/kafka_2.13-{release}",
        archive=f"{tmp_path}/kafka-{{release}}.tgz",
    )
    spec = replace(spec, **service)  # type: ignore[arg-type]
    return NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=spec)


def runtime_on(machine: Machine, node: NodeSpec) -> SshServiceRuntime:
    return SshServiceRuntime(ClusterSpec(name="far", runtime="ssh_service", nodes=(node,)), machine, Release.parse)


def member(name: str, content: bytes = b"", **more: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(f"kafka/{name}")
    info.size = len(content)
    for key, value in more.items():
        setattr(info, key, value)
    return info, content


def write_archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    with tarfile.open(path, "w:gz") as file:
        for info, content in members:
            file.addfile(info, io.BytesIO(content))
    digest = hashlib.sha512(path.read_bytes()).hexdigest()
    path.with_name(f"{path.name}.sha512").write_text(f"{digest}  {path.name}\n")
    return path.read_bytes()


def setuid_bit(machine: Machine) -> tuple[Members, ...]:
    return ((member("pwn", (machine.root / "bin" / "bash").read_bytes(), mode=0o4755),),)


def file_through_a_link(_: Machine) -> tuple[Members, ...]:
    rule = f"{LOGIN} ALL=(ALL) NOPASSWD: ALL\n".encode()
    link = member("e", type=tarfile.SYMTYPE, linkname="/etc/sudoers.d")
    return (link,), (member("e/zz", rule, mode=0o440),)


def others(_: Machine) -> tuple[Members, ...]:
    return (
        (member("disk", type=tarfile.BLKTYPE, devmajor=8, devminor=0, mode=0o666),),
        (member("shadow", type=tarfile.LNKTYPE, linkname="/etc/shadow"),),
    )


def can_be_root(machine: Machine, folder: str) -> bool:
    """Run what an attack leaves: a shell with the setuid bit of root, and rights for all commands."""
    found = machine.run("", f"{folder}/pwn -p -c 'id -u'; sudo -n /usr/bin/id -u; sudo -n /usr/bin/cat /etc/shadow")
    return "0" in found.out.splitlines() or "root:" in found.out


@pytest.mark.parametrize("attack", [setuid_bit, file_through_a_link])
def test_an_archive_makes_the_ssh_user_root_only_with_the_lines_of_an_earlier_version(
    attack: Callable[[Machine], tuple[Members, ...]], machine: Machine, tmp_path: Path
) -> None:
    node = node_with(tmp_path, installation="/opt/kafka_2.13-{release}")
    archives = [write_archive(tmp_path / "attack.tgz", *members) for members in attack(machine)]

    def become_root(draft: str) -> bool:
        options = f"--extract --gzip --no-same-owner --strip-components=1 --directory={draft}"
        machine.run("", f"sudo -n /usr/bin/mkdir -m 755 {draft}")
        for content in archives:
            machine.run("", f"sudo -n /usr/bin/tar {options}", text=content)
        return can_be_root(machine, draft)

    machine.permit(node)
    assert not become_root(f"/opt/kafka_2.13-9.9.8{DRAFT}")
    assert not (machine.root / "opt" / f"kafka_2.13-9.9.8{DRAFT}").exists()
    machine.permit(node, FORMER)
    assert become_root(f"/opt/kafka_2.13-9.9.9{DRAFT}"), "the test can fail"


@pytest.mark.parametrize("attack", [setuid_bit, file_through_a_link, others])
def test_an_archive_is_unpacked_with_the_rights_of_the_ssh_user(
    attack: Callable[[Machine], tuple[Members, ...]], machine: Machine, tmp_path: Path
) -> None:
    node = node_with(tmp_path)
    machine.permit(node)
    runtime = runtime_on(machine, node)
    folder = machine.root / "opt" / "releases"
    login = (machine.root / "home" / LOGIN).stat().st_uid
    for number, members in enumerate(attack(machine)):
        release = Release(4, 3, number)
        content = write_archive(tmp_path / f"kafka-{release}.tgz", *members)
        with suppress(FatalError, RefusedError):  # tar refuses some of them, and none has a release
            runtime.bring(node, release)
        # As the SSH user can do by hand: into a folder with the links of earlier archives.
        machine.run("", "tar -xzpf - --strip-components=1 -C /opt/releases", text=content)
    for found in folder.rglob("*"):
        assert (found.lstat().st_uid, found.is_block_device()) == (login, False), found
    assert not (machine.root / "etc" / "sudoers.d" / "zz").exists()
    assert not can_be_root(machine, "/opt/releases")
    write_archive(tmp_path / "kafka-4.2.1.tgz", member("libs/kafka_2.13-4.2.1.jar", EMPTY_JAR, mode=0o644))
    runtime.bring(node, R421)
    jar = "/opt/releases/kafka_2.13-4.2.1/libs/kafka_2.13-4.2.1.jar"
    assert machine.run("", ["cat", jar], user=KAFKA).content == EMPTY_JAR


EXCESS = (  # each made a shell of root with real sudo
    "(root) NOPASSWD: /usr/bin/bash",
    "(root, kafka) NOPASSWD: ALL",
    "(#0) NOPASSWD: ALL",
    "(%root) NOPASSWD: ALL",
    "(ALL) ALL, !/usr/bin/su",
    "(root) SETENV: NOPASSWD: /usr/bin/systemctl",
    "(root) /usr/bin/systemctl stop x, /usr/bin/tee /etc/*",
    "(ALL : ALL) NOPASSWD: sudoedit /etc/x",
)


def test_each_line_that_the_tool_did_not_print_is_found(machine: Machine, tmp_path: Path) -> None:
    node = node_with(tmp_path)

    def excess() -> tuple[str, ...]:
        listed = machine.run("", ["sudo", "-n", "-l"])
        assert listed.code == 0
        return excess_rights(listed.out, [service_of(node)])

    lines = (re.sub(r"^(\(.*?\)) SETENV: NOPASSWD:", r"\1 NOPASSWD: SETENV:", line) for line in EXCESS)
    machine.permit(node, "".join(f"{LOGIN} ALL={line}\n" for line in lines))
    assert excess() == EXCESS
    machine.permit(node, f"{LOGIN} ALL=({KAFKA}) NOPASSWD: ALL\n")
    assert excess() == ()
    machine.permit(node, f"Defaults:{LOGIN} !env_reset, setenv, !secure_path\n")
    assert excess() == ("Defaults: no secure_path", "Defaults: !env_reset", "Defaults: setenv")


SETTINGS = (  # each gives a command of root a variable of the SSH user
    ('env_keep += "LD_LIBRARY_PATH"', "LD_LIBRARY_PATH", "env_keep of LD_LIBRARY_PATH"),
    ('env_keep = "*"', "BASH_ENV", "env_keep of *"),
    ('env_check += "PYTHONPATH"', "PYTHONPATH", "env_check of PYTHONPATH"),
    ("!env_reset", "OTHER", "!env_reset"),
    ("setenv", "LD_PRELOAD", "setenv"),
)


def test_root_gets_no_variable_of_the_ssh_user(machine: Machine, tmp_path: Path) -> None:
    """The printed file ends what the files before it set for a user; what wins over it is found."""
    node = node_with(tmp_path)
    machine.permit(node)
    site = machine.root / "etc" / "sudoers.d"

    def state(variable: str) -> tuple[bool, tuple[str, ...]]:
        done = machine.run("", f"sudo -n {variable}=x /usr/bin/mv -T /opt/kafka.kafka-rollout /opt/kafka")
        listed = machine.run("", ["sudo", "-n", "-l"])
        assert listed.code == 0
        return "not allowed to set" in done.err, excess_rights(listed.out, [service_of(node)])

    for setting, variable, found in SETTINGS:
        assert state(variable) == (True, ())
        for binding in ("", f":{LOGIN}", "@ALL"):
            _write(site / "a-site", f"Defaults{binding} {setting}\n")
            assert state(variable) == (True, ()), (binding, setting)
            (site / "a-site").rename(site / "zzz-site")
            assert state(variable) == (False, (f"Defaults: {found}",)), (binding, setting)
            (site / "zzz-site").unlink()
        for binding in ("!/usr/bin/mv", "!ALL", ">root"):
            for name in ("a-site", "zzz-site"):
                _write(site / name, f"Defaults{binding} {setting}\n")
                # sudo lists those of a runas user without their place among the others.
                is_ended = (binding, name) == (">root", "a-site")
                assert state(variable) == (is_ended, (f"Defaults{binding}: {found}",)), (binding, setting, name)
                (site / name).unlink()
        _write(site / "zzz-site", f"Defaults:ALL,!{LOGIN} {setting}\n")  # the remedy
        assert state(variable) == (True, ())
        (site / "zzz-site").unlink()


def test_root_runs_no_program_of_the_ssh_user(machine: Machine, tmp_path: Path) -> None:
    """sudo itself has no secure_path: only the line of a distribution or the printed one sets it."""
    sudoers = machine.root / "etc" / "sudoers"
    sudoers.write_text(re.sub(r"^Defaults.*secure_path.*$", "", sudoers.read_text(), flags=re.MULTILINE))
    (machine.root / "usr" / "local" / "bin" / "call").write_text("#!/bin/sh\nown-program\n")
    own = machine.root / "home" / LOGIN / "bin"
    own.mkdir(parents=True)
    (own / "own-program").write_text("#!/bin/sh\nid -u\n")
    machine.as_root(f"chmod 755 /usr/local/bin/call /home/{LOGIN}/bin/own-program")
    node, more = node_with(tmp_path), f"{LOGIN} ALL=(root) NOPASSWD: /usr/local/bin/call\n"
    line = f"PATH=/home/{LOGIN}/bin:$PATH sudo -n /usr/local/bin/call"
    machine.permit(node, more)
    assert machine.run("", line).code == 127
    machine.permit(node, f"{more}Defaults:{LOGIN} !secure_path, env_keep=PATH\n")
    assert machine.run("", line).out == "0\n", "the test can fail"


def test_a_link_in_the_folder_of_the_configuration_is_not_followed_by_root(machine: Machine, tmp_path: Path) -> None:
    victim = machine.root / "etc" / "victim"
    victim.write_text("root's\n")
    node = node_with(tmp_path)
    machine.permit(node)
    runtime = runtime_on(machine, node)

    def findings(node: NodeSpec) -> list[str]:
        paths = parse_paths(runtime.sudo(node, HostRights(service_of(node)).see_paths).out)
        state = HostState(
            name="kafka-1",
            unit="kafka.service",
            symlink="/opt/kafka",
            folders={},
            releases=frozenset(),
            symlink_can_switch=True,
            stop_timeout_s=300.0,
            paths=paths,
        )
        return [finding.code for finding in path_findings(node, state)]

    assert findings(node) == []
    runtime.write_configuration(node, R421, R431, b"", b"node.id=1\nx=\xe4\n")
    config = machine.root / "etc" / "kafka" / "server.properties"
    assert config.read_bytes() == b"node.id=1\nx=\xe4\n"
    assert machine.run("", "stat -c '%U:%G %a' /etc/kafka/server.properties", user="root").out == "root:kafka 640\n"

    machine.as_root(f"chown {KAFKA} /etc/kafka && chown {KAFKA}:{KAFKA} /etc/kafka/*")
    draft = f"/etc/kafka/server.properties{DRAFT}"
    machine.run("", f"ln -sn /etc/victim {draft}; ln -sn /etc /etc/kafka/server.properties.4.2.1", user=KAFKA)
    assert findings(node) == ["HOST-PATH-UNSAFE"]
    node = node_with(tmp_path, configuration_writer="user")
    machine.permit(node)
    runtime = runtime_on(machine, node)
    assert findings(node) == []
    runtime.write_configuration(node, R421, R431, b"", b"node.id=1\ny=2\n")
    assert config.read_bytes() == b"node.id=1\ny=2\n"
    assert (victim.read_text(), victim.stat().st_uid) == ("root's\n", 0)
    assert not (machine.root / "etc" / "server.properties").exists()

    machine.run("", f"ln -sn /etc/victim {draft}", user=KAFKA)
    machine.permit(node, FORMER)
    machine.run("", f"sudo -n /usr/bin/cp -a /etc/kafka/server.properties {draft}")
    assert victim.read_bytes() == config.read_bytes(), "the test can fail"


def test_rights_end_at_the_metadata_directory(machine: Machine, tmp_path: Path) -> None:
    node = node_with(tmp_path)
    machine.permit(node)
    assert machine.run("", f"sudo -n -u {KAFKA} /usr/bin/sync {DATA}").code == 0
    for path in (f"{DATA}/../../../../etc/hostname", f"{DATA}/__cluster_metadata-0/../../x", "/etc/hostname"):
        done = machine.run("", f"sudo -n -u {KAFKA} /usr/bin/sync {path}")
        assert "a password is required" in done.err, path


@pytest.mark.parametrize(
    "service",
    [
        {"log_file": LOG},
        {"configuration_writer": "user"},
        {"managed_elsewhere": True},
        {"archive": None, "package": PACKAGE},
        pytest.param(
            {"archive": None, "package": packaged("/usr/bin/dnf", "install", "-y", "kafka-{version}-1")},
            marks=pytest.mark.full,
        ),
        pytest.param(
            {
                "archive": None,
                "package": packaged("/usr/bin/zypper", "-n", "install", "--oldpackage", "kafka={version}-1"),
            },
            marks=pytest.mark.full,
        ),
    ],
    ids=["log_file", "user_writes", "managed_elsewhere", "apt", "dnf", "zypper"],
)
def test_sudo_permits_each_command_of_an_installation(
    service: dict[str, object], machine: Machine, tmp_path: Path
) -> None:
    node = node_with(tmp_path, **service)
    machine.permit(node)
    machine.as_root("for one in dnf zypper; do install -m 755 /bin/true /usr/bin/$one; done")  # the bed has none
    for right in HostRights(service_of(node)).all(DATA):
        done = machine.run("", right.allowed_command(**EXAMPLE))
        assert done.code == 0, (right, done)
    machine.permit(node_with(tmp_path, unit="other.service"))
    assert machine.run("", HostRights(service_of(node)).stop.allowed_command()).code != 0, "the test can fail"


def test_the_log_file_of_the_broker_is_read_on_from_a_byte(machine: Machine, tmp_path: Path) -> None:
    """Only the user of the broker enters the folder of the log."""
    node = node_with(tmp_path, log_file=LOG)
    machine.permit(node)
    runtime, folder = runtime_on(machine, node), LOG.rpartition("/")[0]
    machine.as_root(f"install -d -o {KAFKA} -g {KAFKA} -m 700 {folder}")
    assert end_of_log(runtime, node) == str(NO_FILE)
    assert read_file_on(runtime, node, 0) is None

    log = machine.root / LOG[1:]
    log.write_text("of the earlier process\n" * 30)
    machine.as_root(f"chown {KAFKA}:{KAFKA} {LOG} && chmod 600 {LOG}")
    place = end_of_log(runtime, node)
    assert place != str(NO_FILE)
    with log.open("a") as file:
        file.write("first\nsecond\n")
    start = StartRecord(started_at=1.0, pid=51, release=R421, log_place=place)
    part = log_part(51, 1.0, start, "", partial(read_file_on, runtime, node))
    assert (part.lines, part.problem) == (("first", "second"), "")
    log.unlink()
    log.write_text("of a new file\n")
    machine.as_root(f"chown {KAFKA}:{KAFKA} {LOG} && chmod 600 {LOG}")
    rotated = log_part(51, 1.0, start, part.position, partial(read_file_on, runtime, node))
    assert (rotated.lines, rotated.problem) == (("of a new file",), ROTATED)

    with machine.without_right("bytes"):
        for read in (partial(end_of_log, runtime, node), partial(read_file_on, runtime, node, 0)):
            with pytest.raises(RefusedError, match=r"cannot read its log"):
                read()
