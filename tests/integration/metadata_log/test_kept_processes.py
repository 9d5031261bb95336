"""One Java process for many questions: what it costs, what ends it, and what must not reach the next question."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from py4j.protocol import Py4JError

from kafka_rollout.base.errors import FatalError
from kafka_rollout.metadata_log.classes.kafka_classes import JvmKafkaClasses
from kafka_rollout.metadata_log.classes.scanner import scan_metadata_log
from kafka_rollout.metadata_log.disk.folder import open_folder
from kafka_rollout.model.configs import DynamicConfigs
from kafka_rollout.model.probes import ProbeOutcome
from kafka_rollout.model.starts import NodeStart
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm import jvm as jvms
from kafka_rollout.releases.jvm.jvm import Jvm, keep_jvms, run_jvm
from tests.acls import read_acl
from tests.integration.metadata_log.test_authentication_probes import NODE
from tests.integration.metadata_log.test_kafka_classes import CONTROLLER
from tests.integration.metadata_log.test_start_files import INTER_BROKER, MODULE, Stores, _stores
from tests.paths import FIXTURES
from tests.waiting import wait_until

pytestmark = pytest.mark.jvm

OLD, NEW = Release(3, 4, 1), Release(4, 3, 1)
TOO_SMALL = DynamicConfigs(topics={"orders": {"segment.bytes": "3"}})
LISTENER = f"listener.name.{INTER_BROKER.lower()}"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The process ids of all Java processes, in the order of their starts. None of them is left at the end."""
    found: list[int] = []
    launch = jvms._launch

    def note(*arguments: Any) -> Any:
        launched = launch(*arguments)
        found.append(launched[2].pid)
        return launched

    monkeypatch.setattr(jvms, "_launch", note)
    yield found
    assert [pid for pid in found if psutil.pid_exists(pid)] == []


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return _stores(tmp_path / "node")


def _kill(pid: int) -> None:
    process = psutil.Process(pid)
    process.kill()
    with suppress(psutil.TimeoutExpired):
        process.wait(10)


def _secured(stores: Stores) -> tuple[NodeStart, NodeStart]:
    """A node with keystores and a JAAS file, and one whose JVM has no file."""
    (stores.folder / "jaas.conf").write_text(f'KafkaServer {{\n  {MODULE} user_a="b";\n}};\n')
    start = stores.start(
        protocol="SASL_SSL", sasl_enabled_mechanisms="PLAIN", sasl_mechanism_inter_broker_protocol="PLAIN"
    )
    options = ("-Djava.security.auth.login.config=/node/jaas.conf",)
    return replace(start, jvm_arguments=options), start


def _questions(cache: ReleaseCache, release: Release, stores: Stores) -> list[Callable[[], object]]:
    """All questions of a plan or check of a secured cluster, about one release."""
    classes = JvmKafkaClasses(cache)
    with_file, without = _secured(stores)
    log = open_folder(FIXTURES / "metadata-log-level-8")
    return [
        lambda: classes.start_problems(release, {1: with_file}),
        lambda: classes.start_problems(release, {1: without}),
        lambda: classes.acl_differences(release, [release], [read_acl("User:bob")], {}),
        lambda: classes.dynamic_config_problems(release, {1: CONTROLLER}, TOO_SMALL),
        lambda: scan_metadata_log(log, release, cache=cache),
    ]


# OLD cannot replay the log, and the remedy is asked of the newest release.
@pytest.mark.parametrize(("release", "processes"), [(NEW, 1), pytest.param(OLD, 2, marks=pytest.mark.full)])
def test_the_questions_of_a_block_share_a_process_and_have_the_answers_of_processes_of_their_own(
    release_cache: ReleaseCache, stores: Stores, started: list[int], release: Release, processes: int
) -> None:
    questions = _questions(release_cache, release, stores)
    with JvmKafkaClasses(release_cache).keep_processes():
        together = [ask() for ask in questions]
        with JvmKafkaClasses(release_cache).keep_processes():
            assert questions[0]() == together[0]
        assert psutil.pid_exists(started[0])  # the outer block ends it
        assert [ask() for ask in reversed(questions)] == together[::-1]
    assert len(started) == processes
    assert together == [ask() for ask in questions]
    assert len(started) == 2 * processes - 1 + len(questions)
    assert together[0] != together[1]  # the JAAS file of one node is not that of another


def test_what_a_question_leaves_behind_reaches_no_other(release_cache: ReleaseCache, started: list[int]) -> None:
    libs = release_cache.libs(NEW)

    def set_property(jvm: Jvm) -> None:
        jvm.packages.java.lang.System.setProperty("org.apache.kafka.disallowed.login.modules", "")

    def remove_provider(jvm: Jvm) -> None:
        jvm.packages.java.security.Security.removeProvider("SunJSSE")

    with keep_jvms():
        for leave in (set_property, remove_provider):
            with run_jvm(libs) as jvm:
                leave(jvm)
            with run_jvm(libs) as jvm:
                assert jvm.packages.java.lang.System.getProperty("org.apache.kafka.disallowed.login.modules") is None
                assert jvm.packages.java.security.Security.getProvider("SunJSSE") is not None
        assert len(started) == 3


def test_probes_of_credentials_have_a_process_of_their_own(release_cache: ReleaseCache, started: list[int]) -> None:
    classes = JvmKafkaClasses(release_cache)
    with keep_jvms():
        documented = classes.setting_documentation(NEW, ["log.dirs"])
        (probes,) = classes.authentication_probes(NEW, {1: NODE}).values()
        assert ProbeOutcome.REFUSED in {probe.outcome for probe in probes}
        assert not psutil.pid_exists(started[1])
        assert classes.setting_documentation(NEW, ["log.dirs"]) == documented
        assert len(started) == 2


def test_a_process_with_code_of_others_is_not_used_again(
    release_cache: ReleaseCache, tmp_path: Path, started: list[int]
) -> None:
    (tmp_path / "plugin.jar").write_bytes(b"")
    with keep_jvms():
        for _ in range(2):
            with run_jvm(release_cache.libs(NEW), plugins=tmp_path):
                pass
            assert not psutil.pid_exists(started[-1])
        assert len(started) == 2


def test_a_process_that_dies_in_a_question_makes_no_answer(release_cache: ReleaseCache, started: list[int]) -> None:
    def ask() -> None:
        with run_jvm(release_cache.libs(NEW)) as jvm:
            _kill(started[-1])
            with suppress(Py4JError):  # as code does that takes an error for a class that a release does not have
                jvm.packages.java.lang.System.nanoTime()

    with keep_jvms():
        with pytest.raises(FatalError, match="exited before it had responded"):
            ask()
        with run_jvm(release_cache.libs(NEW)) as jvm:
            assert jvm.packages.java.lang.System.nanoTime()
    with pytest.raises(FatalError, match="exited before it had responded"):
        ask()


def test_a_process_that_dies_between_two_questions_is_replaced(release_cache: ReleaseCache, started: list[int]) -> None:
    classes = JvmKafkaClasses(release_cache)
    with classes.keep_processes():
        found = classes.dynamic_config_problems(NEW, {1: CONTROLLER}, TOO_SMALL)
        assert len(found) == 1
        _kill(started[0])
        assert classes.dynamic_config_problems(NEW, {1: CONTROLLER}, TOO_SMALL) == found
        assert len(started) == 2


def test_a_question_that_fails_ends_its_process_and_a_block_that_fails_ends_all(
    release_cache: ReleaseCache, started: list[int]
) -> None:
    def ask() -> None:
        with keep_jvms():
            with suppress(KeyError), run_jvm(release_cache.libs(NEW)):
                raise KeyError("the question")
            assert not psutil.pid_exists(started[0])
            with run_jvm(release_cache.libs(NEW)):
                pass
            assert psutil.pid_exists(started[1])
            raise KeyError("the block")

    with pytest.raises(KeyError, match="the block"):
        ask()
    assert [psutil.pid_exists(pid) for pid in started] == [False, False]


def test_blocks_within_another_have_processes_of_their_own(release_cache: ReleaseCache, started: list[int]) -> None:
    with keep_jvms():
        with run_jvm(release_cache.libs(NEW)) as outer, run_jvm(release_cache.libs(NEW)) as inner:
            assert outer.gateway is not inner.gateway
        assert [psutil.pid_exists(pid) for pid in started] == [False, True]
    assert [psutil.pid_exists(pid) for pid in started] == [False, False]


def test_a_kept_process_ends_with_the_process_that_keeps_it(release_cache: ReleaseCache) -> None:
    code = """
import sys, time
from pathlib import Path
from kafka_rollout.releases.jvm.jvm import keep_jvms, run_jvm
with keep_jvms():
    with run_jvm(Path(sys.argv[1])) as jvm:
        print(jvm.packages.java.lang.ProcessHandle.current().pid(), flush=True)
    time.sleep(600)
"""
    command = [sys.executable, "-c", code, str(release_cache.libs(NEW))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as keeping:
        assert keeping.stdout is not None
        try:
            java = psutil.Process(int(keeping.stdout.readline()))
        finally:
            keeping.kill()
    wait_until(lambda: not java.is_running(), timeout_s=20)
