"""The committed catalogue equals what is derived from the released jars again; jars that lack a class give a gap."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from kafka_rollout.base.errors import FatalError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.releases.facts import CoordinatorClass, Release
from kafka_rollout.releases.jars.cache import LOCKS, ReleaseCache
from kafka_rollout.releases.jars.maven import Module, open_repository
from kafka_rollout_derivation.adding import add_release, derive_release
from kafka_rollout_derivation.resolve import LOGGING, find_dependencies
from tests.paths import INCLUDE

pytestmark = [pytest.mark.jvm, pytest.mark.full]

SETTINGS = Settings.from_environment()
ALWAYS = ("3.4.0", "4.3.1")
RELEASES = sorted(path.stem for path in (INCLUDE / "releases").glob("*.json"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.full) for name in RELEASES]
)
def test_deriving_a_release_again_gives_the_committed_files(name: str, release_cache: ReleaseCache) -> None:
    derived = derive_release(SETTINGS, Release.parse(name), release_cache.libs(Release.parse(name)))
    assert not derived.facts.gaps
    assert {path for path, text in derived.files.items() if (INCLUDE / path).read_text() != text} == set()
    assert f"releases/metadata/{name}.json" in derived.files


def without(libs: Path, folder: Path, jar: str, *classes: str) -> Path:
    """Return a folder with the jars of a release, one of them without these classes."""
    folder.mkdir()
    for path in libs.iterdir():
        if not path.name.startswith(jar):
            (folder / path.name).symlink_to(path)
            continue
        with zipfile.ZipFile(path) as whole, zipfile.ZipFile(folder / path.name, "w") as part:
            for entry in whole.namelist():
                if not entry.startswith(classes):
                    part.writestr(entry, whole.read(entry))
    return folder


def test_missing_classes_become_gaps_and_the_other_facts_are_derived(
    release_cache: ReleaseCache, tmp_path: Path
) -> None:
    release = Release(3, 4, 1)
    gone = "kafka/coordinator/transaction/TxnTransitMetadata", "org/apache/kafka/image/MetadataDelta$"
    libs = without(release_cache.libs(release), tmp_path / "a", "kafka_2.13-", *gone)
    libs = without(libs, tmp_path / "b", "kafka-metadata-", *gone)
    derived = derive_release(SETTINGS, release, libs)
    assert set(derived.facts.gaps) == {"coordinator_logs.__transaction_state", "metadata_log"}
    assert "TxnTransitMetadata" in derived.facts.gaps["coordinator_logs.__transaction_state"]
    assert derived.facts.coordinator_class is CoordinatorClass.UNKNOWN
    assert list(derived.facts.coordinator_logs) == ["__consumer_offsets"]
    assert f"releases/metadata/{release}.json" not in derived.files
    assert derived.facts.java_minimum == 8


POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></project>"""


def publish(repository: Path, name: str, jar_sha1: str | None = None) -> None:
    """Write a module without dependencies. `jar_sha1`: the published checksum of its jar; None: the right one."""
    group, artifact, version = name.split(":")
    folder = repository / group.replace(".", "/") / artifact / version
    folder.mkdir(parents=True)
    pom = POM.format(group=group, artifact=artifact, version=version).encode()
    for ending, data, sha1 in (("pom", pom, None), ("jar", name.encode(), jar_sha1)):
        path = folder / f"{artifact}-{version}.{ending}"
        path.write_bytes(data)
        path.with_name(f"{path.name}.sha1").write_text(sha1 or hashlib.sha1(data, usedforsecurity=False).hexdigest())


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Yield the URL of a web server with the files of a folder."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.full) for name in RELEASES]
)
def test_the_poms_of_a_release_lead_to_the_jars_of_its_lock(name: str) -> None:
    """The locks were resolved with Ivy. This is the proof that the own resolution finds the same."""
    locked = json.loads((INCLUDE / LOCKS / f"{name}.json").read_text())["sha256"]
    modules = (f"org.apache.kafka:kafka_2.13:{name}", *LOGGING[Release.parse(name).major])
    with open_repository() as repository:
        assert set(map(str, find_dependencies(map(Module.parse, modules), repository))) == locked.keys()


def test_a_jar_with_a_wrong_checksum_is_one_sentence_and_adds_nothing(tmp_path: Path) -> None:
    repository, wrong = tmp_path / "repository", "0" * 40
    publish(repository, "org.apache.kafka:kafka_2.13:4.9.9", jar_sha1=wrong)
    for name in LOGGING[4]:
        publish(repository, name)
    settings = replace(SETTINGS, home=tmp_path / "home", cache=tmp_path / "cache")
    with served(repository) as url, pytest.raises(FatalError) as caught:
        add_release(settings, Release(4, 9, 9), lambda _: None, repository=url)
    right = hashlib.sha1(b"org.apache.kafka:kafka_2.13:4.9.9", usedforsecurity=False).hexdigest()
    name = "kafka_2.13-4.9.9.jar"
    assert (
        caught.value.sentence == f"{name} of the jar repository does not have its published SHA-1 {wrong}, but {right}."
    )
    assert [path for path in (tmp_path / "home").rglob("*") if path.is_file() and path.name != ".lock"] == []
    assert not list((tmp_path / "cache" / "kafka").iterdir())
