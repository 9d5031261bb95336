"""The committed catalogue equals what is derived from the released jars again, byte for byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafka_rollout.adapters.releases.cache import ReleaseCache
from kafka_rollout.adapters.releases.catalogue import INTOLERANT_REFERENCE
from kafka_rollout.demo.folder import PROJECT_ROOT
from kafka_rollout.domain.model.releases import Release
from tools.derive_catalogue import write

pytestmark = pytest.mark.jvm

INCLUDE = PROJECT_ROOT / "include"
ALWAYS = ("3.4.0", "4.3.1")
RARELY = ("3.3.2", "3.4.1", "3.9.1", "3.7.2", "4.0.1", "4.1.1", "4.2.1", "4.4.0")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("name", [*ALWAYS, *(pytest.param(name, marks=pytest.mark.full) for name in RARELY)])
def test_deriving_a_release_anew_gives_the_committed_files(
    name: str, tmp_path: Path, release_cache: ReleaseCache
) -> None:
    release = Release.parse(name)
    (tmp_path / "releases").mkdir()
    if release != INTOLERANT_REFERENCE:
        shutil.copy(INCLUDE / "releases" / f"{INTOLERANT_REFERENCE}.json", tmp_path / "releases")
    write(release, release_cache.libs(release), tmp_path)

    derived, committed = (root / "releases" / f"{name}.json" for root in (tmp_path, INCLUDE))
    assert derived.read_text() == committed.read_text()
    schemas, committed_schemas = (root / "schemas" / "kafka" / name for root in (tmp_path, INCLUDE))
    assert contents(schemas) == contents(committed_schemas)


def test_every_release_of_the_catalogue_is_compared() -> None:
    assert sorted((*ALWAYS, *RARELY)) == sorted(path.stem for path in (INCLUDE / "releases").glob("*.json"))
