"""The folders of the unit tests mirror the packages, and no test runs again without a difference."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.rooms import nodes_of
from tests.paths import ROOT
from tests.scheduling import LONGEST_FIRST

UNIT = ROOT / "tests" / "unit"
PACKAGES = ROOT / "plugins" / "kafka_rollout"
OTHER_PACKAGES = {
    "consumer": ROOT / "consumer" / "dynamic_protocol_consumer",
    "data_source": ROOT / "data_source" / "pyspark_kafka_coordinator_log",
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


def unread_params(source: str) -> Iterator[str]:
    """Yield each fixture that has parameters and reads none: its tests would run again without a difference."""
    for function in nodes_of(source):
        if not isinstance(function, ast.FunctionDef):
            continue
        options = [one.keywords for one in function.decorator_list if isinstance(one, ast.Call)]
        reads = any(isinstance(one, ast.Attribute) and one.attr == "param" for one in ast.walk(function))
        if any(keyword.arg == "params" for keywords in options for keyword in keywords) and not reads:
            yield function.name


def test_each_fixture_with_parameters_reads_them() -> None:
    found = {str(path.relative_to(ROOT)): [*unread_params(path.read_text())] for path in (ROOT / "tests").rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}
    fixture = "@pytest.fixture(params=[1, 2])\ndef one(request):\n    return "
    assert [*unread_params(f"{fixture}1")] == ["one"]
    assert [*unread_params(f"{fixture}request.param")] == []
