"""The release cache trusts nothing that the lock does not name, and shows nothing that is not whole."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from kafka_rollout.base.errors import FatalError, TransientError, UserError
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars import cache as cache_module
from kafka_rollout.releases.jars.cache import ReleaseCache, main
from kafka_rollout.releases.jars.maven import Module
from tests.paths import ROOT

RELEASE = Release.parse("9.9.9")
JARS = {"org.apache.kafka:kafka_2.13:9.9.9": b"broker", "org.slf4j:slf4j-api:1.7.36": b"logging"}


@pytest.fixture
def cache(tmp_path: Path) -> ReleaseCache:
    lock = tmp_path / "include" / "releases" / "jars" / "9.9.9.json"
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps({"sha256": {name: hashlib.sha256(body).hexdigest() for name, body in JARS.items()}}))
    return ReleaseCache(tmp_path / "cache", tmp_path / "include")


class Repository:
    """Stands in for Maven Central: writes the jars that it has, and counts the fetches."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = content
        self.fetches = 0
        self.errors: list[TransientError] = []
        self.wanted: list[str] = []

    @contextmanager
    def open(self) -> Iterator[Repository]:
        yield self

    def jars(self, modules: Iterable[Module], folder: Path, *, on_jar: Callable[[str], None]) -> None:
        if self.errors:
            raise self.errors.pop()
        self.fetches += 1
        folder.mkdir(parents=True, exist_ok=True)
        for module in modules:
            on_jar(module.file)
            self.wanted.append(module.artifact)
            (folder / module.file).write_bytes(self.content[str(module)])


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Repository:
    repository = Repository(dict(JARS))
    monkeypatch.setattr(cache_module, "open_repository", repository.open)
    return repository


def test_a_release_is_fetched_once(cache: ReleaseCache, repository: Repository) -> None:
    libs = cache.libs(RELEASE)
    assert sorted(path.name for path in libs.iterdir()) == ["kafka_2.13-9.9.9.jar", "slf4j-api-1.7.36.jar"]
    assert cache.libs(RELEASE) == libs
    assert repository.fetches == 1


def test_a_jar_that_is_not_the_locked_one_is_never_shown(cache: ReleaseCache, repository: Repository) -> None:
    repository.content["org.slf4j:slf4j-api:1.7.36"] = b"something else"
    with pytest.raises(FatalError, match=r"slf4j-api-1\.7\.36\.jar does not have the locked SHA-256") as caught:
        cache.libs(RELEASE)
    assert "repeat the command" in caught.value.remedy
    assert [path.name for path in (cache.cache / "kafka").iterdir()] == [".9.9.9-" + _lock(cache) + ".lock"]


@pytest.mark.parametrize("damage", ["changed", "removed", "added"])
def test_a_folder_that_was_tampered_with_is_refused(cache: ReleaseCache, repository: Repository, damage: str) -> None:
    libs = cache.libs(RELEASE)
    jar = libs / "slf4j-api-1.7.36.jar"
    if damage == "changed":
        before = jar.stat()
        jar.write_bytes(b"loggin6")  # of the same size, and with the same modification time
        os.utime(jar, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif damage == "removed":
        jar.unlink()
    else:
        (libs / "stranger.jar").write_bytes(b"x")
    with pytest.raises(FatalError, match=r"stranger" if damage == "added" else r"slf4j-api-1\.7\.36"):
        cache.libs(RELEASE)


def test_untouched_bytes_with_a_new_time_are_verified_again_without_a_fetch(
    cache: ReleaseCache, repository: Repository
) -> None:
    libs = cache.libs(RELEASE)
    os.utime(libs / "slf4j-api-1.7.36.jar", ns=(1, 1))
    assert cache.libs(RELEASE) == libs
    assert repository.fetches == 1


def test_jars_are_read_again_only_when_they_changed(
    cache: ReleaseCache, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    digest = hashlib.file_digest

    def counted(file: BinaryIO, name: str) -> object:
        reads.append(name)
        return digest(file, name)  # type: ignore[arg-type]

    monkeypatch.setattr(hashlib, "file_digest", counted)
    for _ in range(3):
        libs = cache.libs(RELEASE)
    assert len(reads) == len(JARS)
    os.utime(libs / "slf4j-api-1.7.36.jar", ns=(1, 1))
    cache.libs(RELEASE)
    assert len(reads) == len(JARS) + 1


def test_a_changed_lock_gets_a_folder_of_its_own(cache: ReleaseCache, repository: Repository) -> None:
    before = cache.libs(RELEASE)
    lock = cache.include / "releases" / "jars" / "9.9.9.json"
    repository.content["org.slf4j:slf4j-api:1.7.36"] = b"newer"
    locked = json.loads(lock.read_text())
    locked["sha256"]["org.slf4j:slf4j-api:1.7.36"] = hashlib.sha256(b"newer").hexdigest()
    lock.write_text(json.dumps(locked))
    after = cache.libs(RELEASE)
    assert after != before
    assert (before / "slf4j-api-1.7.36.jar").read_bytes() == b"logging"
    assert (after / "slf4j-api-1.7.36.jar").read_bytes() == b"newer"


def test_a_release_without_a_lock_names_the_known_ones(cache: ReleaseCache, repository: Repository) -> None:
    with pytest.raises(UserError, match=r"Kafka 1\.2\.3 has no lock for its jars\. Choose one of 9\.9\.9"):
        cache.libs(Release.parse("1.2.3"))
    assert repository.fetches == 0


def test_a_network_that_fails_for_a_moment_is_tried_again(cache: ReleaseCache, repository: Repository) -> None:
    repository.errors.append(TransientError("no answer"))
    assert cache.libs(RELEASE).is_dir()
    assert not repository.errors


class SlowRepository(Repository):
    """Writes `log`, then one jar, touches `ready`, waits for `pause` seconds, and writes the rest."""

    def __init__(self, ready: Path, log: Path, pause: float) -> None:
        super().__init__(dict(JARS))
        self.ready, self.log, self.pause = ready, log, pause

    def jars(self, modules: Iterable[Module], folder: Path, *, on_jar: Callable[[str], None]) -> None:
        with self.log.open("a") as file:
            file.write("fetched\n")
        folder.mkdir(parents=True)
        (folder / "kafka_2.13-9.9.9.jar").write_bytes(b"broker")
        self.ready.touch()
        time.sleep(self.pause)
        super().jars(modules, folder, on_jar=on_jar)


def _get(cache: ReleaseCache, ready: Path, log: Path, pause: float) -> None:
    setattr(cache_module, "open_repository", SlowRepository(ready, log, pause).open)  # noqa: B010
    cache.libs(RELEASE)


def test_processes_at_the_same_time_fetch_once(cache: ReleaseCache, tmp_path: Path) -> None:
    log = tmp_path / "log"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_get, args=(cache, tmp_path / "ready", log, 0.3)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(180)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert log.read_text() == "fetched\n"


def test_a_fetch_killed_midway_leaves_nothing_that_looks_finished(
    cache: ReleaseCache, repository: Repository, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    process = multiprocessing.get_context("fork").Process(target=_get, args=(cache, ready, tmp_path / "log", 60.0))
    process.start()
    deadline = time.monotonic() + 180
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(180)
    assert [path for path in (cache.cache / "kafka").iterdir() if not path.name.startswith(".")] == []
    assert len(list(cache.libs(RELEASE).iterdir())) == len(JARS)
    assert repository.wanted == ["slf4j-api"], "the whole jar of the killed one is kept"
    assert len(list((cache.cache / "kafka").glob(".*-*-*"))) == 0


def test_the_command_answers_bad_input_with_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["latest"]) == 2
    assert capsys.readouterr().err == "'latest' is not a Kafka release. Write it as three numbers, for example 4.3.1.\n"


@pytest.mark.parametrize("lock", sorted((ROOT / "include" / "releases" / "jars").glob("*.json")), ids=lambda p: p.stem)
def test_every_lock_names_each_jar_once_and_what_it_is_for(lock: Path) -> None:
    modules = [Module.parse(text) for text in json.loads(lock.read_text())["sha256"]]
    assert len({module.file for module in modules}) == len(modules)
    artifacts = {module.artifact: module.version for module in modules}
    if lock.stem == "agents":
        assert artifacts == {"jmx_prometheus_javaagent": "1.0.1", "jolokia-agent-jvm": "2.2.9"}
    else:
        assert artifacts["kafka_2.13"] == artifacts["kafka-clients"] == lock.stem
        assert {"slf4j-reload4j", "log4j-slf4j-impl"} & artifacts.keys(), "without a binding a broker logs nothing"


def _lock(cache: ReleaseCache) -> str:
    locked = json.loads((cache.include / "releases" / "jars" / "9.9.9.json").read_text())["sha256"]
    return hashlib.sha256(json.dumps(locked, sort_keys=True).encode()).hexdigest()[:8]
