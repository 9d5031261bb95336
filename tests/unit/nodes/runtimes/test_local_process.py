"""What installing a release does to the files of a node's home."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from kafka_rollout.base.errors import RefusedError, TransientError, UserError
from kafka_rollout.model.plan import ConfigChange
from kafka_rollout.model.starts import MAIN_CLASS
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from kafka_rollout.nodes.runtimes import local_process
from kafka_rollout.nodes.runtimes.local_process import LocalProcessRuntime
from kafka_rollout.planning.findings.configuration import config_changes, planned_configs
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import Agents

OLD, NEW = Release(3, 9, 1), Release(4, 3, 1)
NOBODY = 65534


CHANGES = [ConfigChange(node_id=1, release=NEW, key="a", value="2", reason="a test")]


class NoJars:
    include = Path("/")
    plugins = None

    def libs(self, release: Release) -> Path:
        return Path("/") / str(release)

    def agents(self) -> Agents:
        raise AssertionError("nothing is started")


@pytest.fixture
def runtime(tmp_path: Path) -> LocalProcessRuntime:
    node = NodeSpec(node_id=1, name="node-1", roles=frozenset({Role.BROKER}), directory=str(tmp_path))
    cluster = ClusterSpec(name="orders", nodes=(node,))
    return LocalProcessRuntime(cluster=cluster, cache=NoJars())


def test_a_lock_that_another_process_does_not_release_ends_the_change(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with (
            pytest.raises(TransientError, match=r"Another process holds .*/\.lock for"),
            local_process._lock(tmp_path, 0.1),
        ):
            pass
    with local_process._lock(tmp_path, 0.1):
        pass


def test_a_process_that_cannot_be_fenced_installs_nothing(runtime: LocalProcessRuntime) -> None:
    (node,) = runtime.cluster.nodes
    home = Path(str(node.directory))

    def refuse() -> None:
        raise RefusedError("The lease is lost.")

    for before in ("a=1\n", "a=2\n"):  # the second one has the line of the release
        (home / "server.properties").write_text(before)
        with pytest.raises(RefusedError):
            replace(runtime, fence=refuse).install(node, NEW, CHANGES)
        assert (home / "server.properties").read_text() == before
        assert not (home / "release").exists()
    (home / "release").write_text(f"{OLD}\n")
    with pytest.raises(RefusedError):
        replace(runtime, fence=refuse).install(node, NEW)
    assert not (home / f"server.properties.{OLD}").exists(), "it is the copy of the run that may act"


def test_a_process_that_cannot_be_fenced_starts_nothing(
    runtime: LocalProcessRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = runtime.cluster.nodes
    (Path(str(node.directory)) / "release").write_text(f"{NEW}\n")
    spawned: list[Path] = []

    def spawn(command: object, home: Path) -> psutil.Process:
        spawned.append(home)
        return psutil.Process()

    def refuse() -> None:
        raise RefusedError("The lease is lost.")

    monkeypatch.setattr(LocalProcessRuntime, "_command", lambda *_: ["java"])
    monkeypatch.setattr(local_process, "_find", lambda home: None)
    monkeypatch.setattr(local_process, "_spawn", spawn)
    with pytest.raises(RefusedError):
        replace(runtime, fence=refuse).start(node)
    assert spawned == []
    runtime.start(node)
    assert spawned == [Path(str(node.directory))]


@pytest.mark.parametrize("force", [False, True])
def test_a_process_that_cannot_be_fenced_is_not_stopped(
    runtime: LocalProcessRuntime, monkeypatch: pytest.MonkeyPatch, *, force: bool
) -> None:
    """The lease can be lost while a node shuts down: then the kill is not sent."""
    signals: list[signal.Signals] = []
    monkeypatch.setattr(local_process, "_find", lambda home: psutil.Process())
    monkeypatch.setattr(local_process, "_send", lambda process, number: signals.append(number))
    monkeypatch.setattr(local_process, "wait_for_exit", lambda processes, seconds: [*processes])

    def refuse() -> None:
        if not force or signals:
            raise RefusedError("The lease is lost.")

    with pytest.raises(RefusedError):
        replace(runtime, fence=refuse).stop(runtime.cluster.nodes[0], deadline_s=1, force=True)
    assert signals == ([signal.SIGTERM] if force else [])


def rights(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid


def test_a_node_whose_java_is_a_wrapper_script_is_not_missed_while_it_executes_the_real_one(
    runtime: LocalProcessRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = runtime.cluster.nodes
    this = psutil.Process()
    searches = iter([[], [(Path(str(node.directory)).resolve() / "server.properties", this)]])
    monkeypatch.setattr(local_process, "_all_nodes", lambda: next(searches))
    assert runtime.process(node).pid == this.pid


def test_relative_directories_count_from_the_home_in_which_the_process_starts(runtime: LocalProcessRuntime) -> None:
    (node,) = runtime.cluster.nodes
    home = Path(str(node.directory))
    (home / "server.properties").write_text("log.dirs=data\n")
    (home / "data").mkdir()
    (home / "data" / "meta.properties").write_text("version=1\ndirectory.id=JjIvKzBkTRyV9zVYIwN6Bg\n")
    formats = runtime.directory_formats(node, runtime.config(node))
    assert formats is not None
    assert (formats["data"].meta or b"").startswith(b"version=1")
    assert runtime.log_directories(node) == {"JjIvKzBkTRyV9zVYIwN6Bg": "data"}
    assert runtime.metadata_log_dir(node) == home / "data"


def test_the_arguments_of_the_next_start_are_those_of_the_file(runtime: LocalProcessRuntime) -> None:
    (node,) = runtime.cluster.nodes
    assert runtime.jvm_arguments(node, NEW) == local_process.JVM_OPTIONS
    (Path(str(node.directory)) / "jvm.options").write_text("-Xmx1g\n-Da=b\n")
    assert runtime.jvm_arguments(node, NEW) == ("-Xmx1g", "-Da=b")


def test_the_files_of_the_next_start_have_the_times_of_their_inodes(runtime: LocalProcessRuntime) -> None:
    (node,) = runtime.cluster.nodes
    home = Path(str(node.directory))
    (home / "server.properties").write_text("log.dirs=data\nssl.keystore.location=/gone.jks\n")
    (home / "data").mkdir()
    for name in ("jvm.options", "data/meta.properties"):
        (home / name).write_text("-Xmx1g\n")
        os.utime(home / name, (1, 1))  # a copy that keeps its times
    found = {
        Path(file.path).relative_to(home).as_posix(): file for file in runtime.start_files(node, runtime.config(node))
    }
    assert {name: file.kind.value for name, file in found.items()} == {
        "server.properties": "server.properties",
        "jvm.options": "options of the JVM",
        "data/meta.properties": "meta.properties",
    }
    assert all(file.changed_at is not None and time.time() - file.changed_at < 60 for file in found.values())


def test_directories_that_a_config_provider_has_are_unknown(runtime: LocalProcessRuntime) -> None:
    (node,) = runtime.cluster.nodes
    (Path(str(node.directory)) / "server.properties").write_text("log.dirs=${env:DATA}\n")
    assert runtime.metadata_log_dir(node) is None
    assert runtime.checkpoints(node) == ()
    assert runtime.log_directories(node) == {}
    assert runtime.directory_formats(node, runtime.config(node)) is None


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_server_properties_and_its_copies_keep_mode_and_owner(runtime: LocalProcessRuntime, mode: int) -> None:
    (node,) = runtime.cluster.nodes
    home = Path(str(node.directory))
    config = home / "server.properties"
    text = b"# caf\xe9\x0cb=2\r\na=1\r\nssl.keystore.password=hunter2\xe4\r\n"
    config.write_bytes(text)
    config.chmod(mode)
    if os.geteuid() == 0:
        os.chown(config, NOBODY, NOBODY)
    before = rights(config)
    runtime.install(node, OLD)
    runtime.install(node, NEW, CHANGES)
    copy = home / "server.properties.3.9.1"
    assert rights(config) == rights(copy) == before
    assert copy.read_bytes() == text
    assert runtime.config(node) == {"a": "2", "ssl.keystore.password": "hunter2\xe4"}
    runtime.install(node, OLD, [ConfigChange(node_id=1, release=OLD, key="a", value="1", reason="the rollback")])
    assert rights(config) == before
    assert config.read_bytes() == text
    assert [path.name for path in home.glob(".*") if path.name != ".lock"] == []


@pytest.mark.parametrize("torn", [b'{"release": "4.3', bytes(40)])
def test_a_torn_line_of_the_starts_does_not_stop_a_resume(runtime: LocalProcessRuntime, torn: bytes) -> None:
    (node,) = runtime.cluster.nodes
    record = Path(str(node.directory)) / "starts.jsonl"
    record.write_bytes(b'{"release": "3.9.1", "pid": 9, "started_at": 1.5}\n' + torn)
    assert [start.pid for start in runtime.starts(node)] == [9]
    local_process._record_start(record.parent, psutil.Process(), NEW)
    assert [start.release for start in runtime.starts(node)] == [OLD, NEW]


def test_the_lines_of_an_earlier_run_stay_in_the_next_one_and_in_its_rollback(
    runtime: LocalProcessRuntime,
) -> None:
    (node,) = runtime.cluster.nodes
    config = Path(str(node.directory)) / "server.properties"
    config.write_bytes(b"node.id=1\n")
    runtime.install(node, OLD, [ConfigChange(node_id=1, release=OLD, key="b", value="3", reason="a test")])
    before = config.read_bytes()
    runtime.install(node, NEW, CHANGES)
    assert runtime.config(node) == {"node.id": "1", "a": "2", "b": "3"}
    for _ in range(2):
        runtime.install(node, OLD, [ConfigChange(node_id=1, release=OLD, key="a", value=None, reason="the rollback")])
        assert config.read_bytes() == before


LATER = Release(4, 4, 0)
ROUNDS = ([OLD, NEW], [OLD, NEW, LATER], [NEW, LATER], [LATER, NEW], [NEW, OLD])


@pytest.mark.parametrize(
    "overrides", [{}, {str(NEW): {"a": "2"}}, {str(NEW): {"a": "2", "c": "1"}, str(LATER): {"a": "3"}}]
)
@pytest.mark.parametrize("first", ROUNDS)
@pytest.mark.parametrize("second", ROUNDS)
def test_a_node_starts_with_the_lines_that_its_plan_has_judged(
    runtime: LocalProcessRuntime, overrides: dict[str, dict[str, str]], first: list[Release], second: list[Release]
) -> None:
    """Two runs, and the rollback of the second one, each over the file that the run before it has left."""
    runtime = replace(runtime, cluster=replace(runtime.cluster, release_overrides=overrides))
    (node,) = runtime.cluster.nodes
    config = Path(str(node.directory)) / "server.properties"
    config.write_bytes(b"a=1\r\nb=2\r\n")
    for number, path in enumerate((first, second)):
        runtime.install(node, path[0])
        if number:  # an edit by hand since: a rollback restores this
            config.write_bytes(config.read_bytes() + b"a=9\r\n")
        before = runtime.config(node)
        changes = config_changes(runtime.cluster, path, {1: runtime.config(node)})
        planned = planned_configs(path, {1: runtime.config(node)}, changes)
        for release in path[1:]:
            runtime.install(node, release, [one for one in changes if one.release == release])
            assert runtime.config(node) == planned[release][1]
    for release in reversed(path[:-1]):
        runtime.install(node, release, [one for one in changes if one.release == release])
    assert runtime.config(node) == before


def test_server_properties_that_are_a_fifo_are_refused(runtime: LocalProcessRuntime) -> None:
    (node,) = runtime.cluster.nodes
    os.mkfifo(Path(str(node.directory)) / "server.properties")
    for ask in (runtime.config, lambda one: runtime.install(one, NEW)):
        with pytest.raises(UserError, match=r"server\.properties is a FIFO"):
            ask(node)


@contextmanager
def process_of(properties: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the arguments of a node."""
    code = "import time; print(flush=True); time.sleep(600)"
    command = [sys.executable, "-c", code, MAIN_CLASS, str(properties)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        try:
            assert started.stdout is not None
            started.stdout.readline()
            yield started
        finally:
            started.kill()


def test_the_process_that_was_found_last_is_looked_at_before_every_process_of_the_machine(
    runtime: LocalProcessRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = runtime.cluster.nodes
    with process_of(tmp_path / "server.properties") as started:
        assert runtime.process(node).pid == started.pid
        with monkeypatch.context() as patch:
            patch.setattr(psutil, "process_iter", _no_process_is_looked_at)
            assert runtime.process(node).pid == started.pid
    assert runtime.process(node).pid is None
    with process_of(tmp_path / "server.properties") as next_one:
        assert runtime.process(node).pid == next_one.pid != started.pid


def test_a_process_that_executes_another_program_since_is_not_the_node_s(
    runtime: LocalProcessRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the next process with a reused id: what it executes is looked at each time."""
    (node,) = runtime.cluster.nodes
    with process_of(tmp_path / "server.properties") as started, process_of(tmp_path / "other.properties") as other:
        assert runtime.process(node).pid == started.pid
        monkeypatch.setitem(local_process._found, tmp_path / "server.properties", psutil.Process(other.pid))
        assert runtime.process(node).pid == started.pid


def _no_process_is_looked_at() -> Iterator[psutil.Process]:
    raise AssertionError("it looks at every process")
