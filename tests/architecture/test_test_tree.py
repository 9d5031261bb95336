"""The folders of the unit tests mirror the packages."""

from __future__ import annotations

from pathlib import Path

from tests.paths import ROOT
from tests.scheduling import LONGEST_FIRST

UNIT = ROOT / "tests" / "unit"
PACKAGES = ROOT / "plugins" / "kafka_rollout"
OTHER_PACKAGES = {
    "consumer": ROOT / "consumer" / "dynamic_protocol_consumer",
    "derivation": ROOT / "tools" / "derivation" / "kafka_rollout_derivation",
    "spark": ROOT / "spark_jobs" / "kafka_rollout_spark",
    "tools": ROOT / "tools",
}


def package_of(folder: Path) -> Path:
    """The package that a folder of unit tests is about."""
    parts = folder.relative_to(UNIT).parts
    if parts and parts[0] in OTHER_PACKAGES:
        return OTHER_PACKAGES[parts[0]].joinpath(*parts[1:])
    return PACKAGES.joinpath(*parts)


def test_each_folder_of_unit_tests_has_the_name_of_a_package() -> None:
    folders = {path.parent for path in UNIT.rglob("test_*.py")}
    assert [folder for folder in folders if not list(package_of(folder).glob("*.py"))] == []
    assert package_of(UNIT / "spark" / "kernel") == ROOT / "spark_jobs" / "kafka_rollout_spark" / "kernel"


def test_the_files_that_start_first_exist() -> None:
    assert [file for file in LONGEST_FIRST if not (ROOT / file).is_file()] == []
