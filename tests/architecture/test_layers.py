"""Imports point one way: the contracts in pyproject.toml, and what import-linter cannot say."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.architecture.rooms import BELOW_WIRING, OUTSIDE, PACKAGE, modules_below, nodes_of
from tests.paths import ROOT

WITH_A_LIBRARY = {
    "base/json_forms.py": {"pydantic"},
    "base/maintenance.py": {"croniter"},
    "notifications/channels.py": {"pydantic"},
    "formats/codecs.py": {"cramjam", "crc32c", "lz4", "backports"},
}
WITH_THREADS_AND_NAMES = {  # of this process and host
    "lowering/live.py": {"threading"},
    "lowering/lowered_snapshot.py": {"socket"},
    "observation/claimed.py": {"threading"},
    "report/check_registry.py": {"threading"},
    "roll/node.py": {"threading"},
}
PURE = sorted(
    path
    for room in BELOW_WIRING
    for path in (PACKAGE / room).rglob("*.py")
    if not any(path.is_relative_to(PACKAGE / folder) for folder in OUTSIDE)
)
OURS = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "spark_jobs").rglob("*.py"), *(ROOT / "dags").rglob("*.py")])


@cache
def imported(source: str) -> set[str]:
    """First names of all modules that a file imports, those inside functions included."""
    names: set[str] = set()
    for node in nodes_of(source):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


@cache
def sources(text: str) -> set[str]:
    """Full names of all modules that a file imports from, those inside functions included."""
    found = (node for node in nodes_of(text) if isinstance(node, ast.ImportFrom) and node.level == 0)
    return {node.module for node in found if node.module}


def test_the_contracts_of_import_linter_hold() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    folders = ("plugins", "spark_jobs", "data_source", "consumer", "tools/derivation")
    path = {"PYTHONPATH": ":".join(str(ROOT / folder) for folder in folders), "PATH": "/usr/bin:/bin"}
    command = [str(linter), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_pure_code_imports_the_standard_library_and_the_house_alone() -> None:
    house = sys.stdlib_module_names | {"kafka_rollout"}
    foreign = {str(path.relative_to(PACKAGE)): imported(path.read_text()) - house for path in PURE}
    assert {name: names for name, names in foreign.items() if names - WITH_A_LIBRARY.get(name, set())} == {}


def test_pure_code_neither_looks_at_the_clock_nor_at_the_world() -> None:
    world = {"time", "socket", "subprocess", "os", "requests", "urllib", "http", "threading", "asyncio", "random"}
    found = {str(path.relative_to(PACKAGE)): imported(path.read_text()) & world for path in PURE}
    assert {path: names for path, names in found.items() if names} == WITH_THREADS_AND_NAMES


def test_pure_code_imports_no_folder_that_touches_the_outside() -> None:
    outside = modules_below(OUTSIDE)
    paths = [(path, f"{name}.") for path in PURE for name in sources(path.read_text())]
    assert [(path, name) for path, name in paths if name.startswith(outside)] == []


def test_the_rules_have_modules_to_look_at() -> None:
    known = {str(path.relative_to(PACKAGE)) for path in PURE}
    assert {"roll/walk.py", "procedure/step.py", "model/plan.py"} <= known


def test_airflow_is_imported_in_its_places_alone_and_pyspark_in_the_spark_jobs_alone() -> None:
    for path in OURS:
        relative = path.relative_to(ROOT)
        names = imported(path.read_text())
        if "airflow" in names:
            assert relative.parts[0] == "dags" or "airflow" in relative.parts, relative
        if "pyspark" in names:
            assert relative.parts[0] == "spark_jobs", relative
        assert "tests" not in names, relative


def test_spark_executors_import_an_empty_package() -> None:
    assert (PACKAGE / "__init__.py").read_text() == ""


def test_the_reader_of_imports_sees_what_hides_in_a_function() -> None:
    assert imported("def f():\n    import airflow.sdk\n    from pyspark.sql import Row\n") == {"airflow", "pyspark"}


def test_text_from_outside_is_made_safe_to_show_in_one_module() -> None:
    """Rich's `escape` alone lets control characters through, and a second list of them would differ from the first."""
    asides = {"base/outside_text.py", "cli/show.py"}
    known = re.compile(r"rich\.markup|\\u202[a-e]|\\x1b|\\x9b", re.IGNORECASE)
    found = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if known.search(path.read_text())}
    assert found <= asides
