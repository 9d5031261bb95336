"""The committed catalogue equals what is derived from the released jars again; jars that lack a class give a gap."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from kafka_rollout.adapters.derivation.adding import derive_release
from kafka_rollout.adapters.releases.cache import ReleaseCache
from kafka_rollout.domain.model.releases import CoordinatorClass, Release
from kafka_rollout.settings import Settings
from tests.paths import INCLUDE

pytestmark = pytest.mark.jvm

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
