"""A release appears in the catalogue with all its files or not at all, and readers merge it with the project's own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_rollout.base.errors import FatalError, TransientError, UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.formats.documents.definitions import load_schemas
from kafka_rollout.metadata_log.classes.known_releases import known_releases, metadata_facts, metadata_schemas
from kafka_rollout.releases.documents.catalogue import load_catalogue, load_facts
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jars.maven import Module, ModulesMissingError
from kafka_rollout_derivation import adding, resolve
from kafka_rollout_derivation.adding import DerivedRelease, add_release
from tests.paths import INCLUDE

NEW, KNOWN = Release(4, 3, 9), Release(4, 3, 1)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(clusters=tmp_path, home=tmp_path / "home", cache=tmp_path / "cache", include=INCLUDE)


def files_of(release: Release) -> dict[str, str]:
    """Return what a derivation of the release would write: the facts of KNOWN under its name."""
    names = [f"{of}/{KNOWN}.json" for of in ("schemas/kafka", "schemas/metadata", "releases/metadata", "releases")]
    return {
        name.replace(str(KNOWN), str(release)): (INCLUDE / name).read_text().replace(f'"{KNOWN}"', f'"{release}"')
        for name in names
    }


class Repository:
    """Stands in for Maven Central. `error`: what it answers."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    @contextmanager
    def open(self, url: str) -> Iterator[Repository]:
        yield self

    def jars(self, modules: Iterable[Module], folder: Path, *, published: bool, on_jar: Callable[[str], None]) -> None:
        assert published, "no lock has the checksums yet"
        folder.mkdir(parents=True)
        for module in modules:
            on_jar(module.file)
            (folder / module.file).write_text(str(module))


def find_dependencies(modules: Iterable[Module], repository: Repository) -> list[Module]:
    if repository.error is not None:
        raise repository.error
    return list(modules)


@pytest.fixture(autouse=True)
def derived(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def derive(settings: Settings, release: Release, libs: Path, say: Callable[[str], None]) -> DerivedRelease:
        assert (libs / f"kafka_2.13-{release}.jar").exists()
        path = tmp_path / f"{release}.json"
        path.write_text(files_of(release)[f"releases/{release}.json"])
        return DerivedRelease(load_facts(path), files_of(release))

    monkeypatch.setattr(resolve, "open_repository", Repository().open)
    monkeypatch.setattr(resolve, "find_dependencies", find_dependencies)
    monkeypatch.setattr(adding, "derive_release", derive)


def silent(text: str) -> None:
    """Take the progress."""


def written(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.json")}


def test_an_added_release_is_read_together_with_the_projects_own(settings: Settings) -> None:
    add_release(settings, NEW, silent)
    added = settings.home / "catalogue"
    assert written(added) == {*files_of(NEW), f"releases/jars/{NEW}.json"}
    folders = settings.catalogue_folders
    assert set(load_catalogue(*folders)) == {*load_catalogue(INCLUDE), NEW}
    assert load_catalogue(*folders).get(NEW).features == load_catalogue(INCLUDE).get(KNOWN).features
    schemas = load_schemas(*folders)
    assert schemas.log(NEW, "__consumer_offsets") == schemas.log(KNOWN, "__consumer_offsets")
    assert NEW in known_releases(*folders)
    assert metadata_facts(NEW, *folders).records == metadata_facts(KNOWN, INCLUDE).records
    assert metadata_schemas(NEW, *folders).keys() == metadata_schemas(KNOWN, INCLUDE).keys()
    libs = ReleaseCache.from_settings(settings).libs(NEW)
    assert (libs / f"kafka_2.13-{NEW}.jar").exists()


def test_a_release_of_the_project_is_read_from_the_project(settings: Settings) -> None:
    add_release(settings, NEW, silent)
    theirs = settings.added_releases / "releases" / f"{KNOWN}.json"
    theirs.write_text("{")
    assert load_catalogue(*settings.catalogue_folders).get(KNOWN) == load_catalogue(INCLUDE).get(KNOWN)


def test_a_release_of_the_project_is_not_added_again(settings: Settings) -> None:
    with pytest.raises(UserError, match=r"4\.3\.1 is part of the catalogue already"):
        add_release(settings, KNOWN, silent)
    assert not written(settings.home)


def test_the_projects_own_folder_can_be_the_target(settings: Settings, tmp_path: Path) -> None:
    shutil.copytree(INCLUDE / "releases", tmp_path / "include" / "releases")
    own = Settings(
        clusters=tmp_path, home=tmp_path, cache=tmp_path / "cache", include=tmp_path / "include",
        catalogue=tmp_path / "include",
    )  # fmt: skip
    assert add_release(own, KNOWN, silent).release == KNOWN


def test_a_release_that_does_not_exist_leaves_nothing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = ModulesMissingError("The repository of the jars does not have org.apache.kafka:kafka_2.13:4.9.9.")
    monkeypatch.setattr(resolve, "open_repository", Repository(missing).open)
    with pytest.raises(UserError, match=r"jars of Kafka 4\.9\.9 were not found") as refused:
        add_release(settings, Release(4, 9, 9), silent)
    assert "kafka.apache.org/downloads" in refused.value.remedy
    assert not written(settings.home)
    assert not list((settings.cache / "kafka").iterdir())


def test_a_release_before_production_kraft_is_refused_before_any_download(settings: Settings) -> None:
    with pytest.raises(UserError, match=r"older than 3\.3\.0"):
        add_release(settings, Release(3, 2, 0), silent)


def test_no_network_leaves_nothing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    silent_one = Repository(TransientError("The jar repository did not respond."))
    monkeypatch.setattr(resolve, "open_repository", silent_one.open)
    with pytest.raises(TransientError, match="did not respond"):
        add_release(settings, NEW, silent)
    assert not written(settings.home)


def test_a_full_disk_leaves_no_release(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.write_text

    def write_text(path: Path, text: str, *args: object) -> int:
        if path.parent.name == "releases" and ".new-" in str(path):
            raise OSError(28, "No space left on device", str(path))
        return real(path, text)

    monkeypatch.setattr(Path, "write_text", write_text)
    with pytest.raises(FatalError, match="No space left on device"):
        add_release(settings, NEW, silent)
    assert not written(settings.home)
    assert {path.name for path in settings.added_releases.iterdir()} == {".lock"}


def test_facts_that_are_read_back_differently_are_not_kept(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def derive(settings: Settings, release: Release, libs: Path, say: Callable[[str], None]) -> DerivedRelease:
        return DerivedRelease(load_catalogue(INCLUDE).get(KNOWN), files_of(KNOWN) | {"releases/4.3.1.json": changed})

    document = json.loads((INCLUDE / "releases" / f"{KNOWN}.json").read_text())
    changed = json.dumps({**document, "java_minimum": 11})
    monkeypatch.setattr(adding, "derive_release", derive)
    with pytest.raises(FatalError, match="not those that were derived"):
        add_release(settings, NEW, silent)
    assert not written(settings.home)
