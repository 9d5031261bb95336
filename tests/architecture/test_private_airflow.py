"""Private names of Airflow are in one module, and each of them is as this project uses it."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.architecture.rooms import PACKAGE, nodes_of
from tests.paths import ROOT

PRIVATE = PACKAGE / "airflow" / "private_api.py"
# Airflow's documentation, "Public interface": the Task SDK, triggers, plugins, listeners and providers.
PUBLIC = re.compile(
    r"airflow\.sdk(\.(bases|configuration|exceptions|types)(\.|$)|$)"
    r"|airflow\.(triggers\.base|plugins_manager|listeners)$|airflow\.providers\."
)
USED = {
    "airflow.models.dag.DagModel": {"get_team_name"},
    "airflow.models.dagrun.DagRun": {"dag_id", "run_id", "dag_model"},
    "airflow.sdk.api.datamodels._generated.HITLUser": {"id", "name"},
    "airflow.sdk.execution_time.comms.CreateHITLDetailPayload": {
        *("ti_id", "options", "subject", "body", "defaults", "multiple", "params", "assigned_users"),
    },
    "airflow.sdk.execution_time.comms.HITLDetailRequestResult": {"subject", "body"},
    "airflow.sdk.execution_time.task_runner.RuntimeTaskInstance": {"get_task_states"},
    "airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS": set[str](),
    "airflow.sdk.execution_time.hitl.get_hitl_detail_content_detail": {"ti_id"},
    "airflow.sdk.execution_time.timeout.timeout": set[str](),
    "airflow.observability.stats.incr": set[str](),
    "airflow.sdk.observability.stats.gauge": set[str](),
    "airflow.api_fastapi.app.get_auth_manager": set[str](),
    "airflow.api_fastapi.auth.managers.models.resource_details.AccessView": {"WEBSITE"},
    "airflow.api_fastapi.auth.managers.models.resource_details.DagAccessEntity": {"RUN"},
    "airflow.api_fastapi.auth.managers.models.resource_details.DagDetails": {"id", "team_name"},
    "airflow.api_fastapi.core_api.security.get_user": set[str](),
    "airflow.api_fastapi.core_api.security.requires_access_dag": {"method", "access_entity"},
    "airflow.api_fastapi.core_api.security.requires_access_view": {"access_view"},
}
"""Name → its fields, attributes or parameters that are used."""


def imported_names(path: Path) -> set[str]:
    """Names of Airflow that a file imports, with their modules."""
    found = set[str]()
    for node in nodes_of(path.read_text()):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "airflow"}


def is_public(name: str) -> bool:
    module = name.rpartition(".")[0]
    return bool(PUBLIC.match(name if module == "airflow" else module)) and "._" not in name


def missing(name: str, used: set[str]) -> str:
    """A sentence about what the installed Airflow lacks of a private name; empty if it has all."""
    module, _, last = name.rpartition(".")
    where = f"Airflow {version('apache-airflow')} changed {name}"
    what = "correct airflow/private_api.py, and the range of apache-airflow in pyproject.toml."
    loaded = importlib.import_module(module)
    if last not in vars(loaded) and last not in getattr(loaded, "__annotations__", {}):
        return f"{where} (it does not exist): {what}"
    found: Any = getattr(loaded, last, None)
    code = getattr(found, "__code__", None)
    has = set(dir(found)) | set(getattr(found, "model_fields", {})) | set(getattr(found, "__dataclass_fields__", {}))
    has |= set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]) if code is not None else set()
    lacks = ", ".join(sorted(used - has))
    return f"{where} (it lacks {lacks}): {what}" if lacks else ""


def test_no_module_but_one_imports_a_private_name_of_airflow() -> None:
    files = [path for path in (*PACKAGE.rglob("*.py"), *(ROOT / "dags").rglob("*.py")) if path != PRIVATE]
    found = {str(path.relative_to(ROOT)): {n for n in imported_names(path) if not is_public(n)} for path in files}
    assert {path: names for path, names in found.items() if names} == {}
    assert not is_public("airflow.sdk.execution_time.comms.CreateHITLDetailPayload")
    assert not is_public("airflow.models.dag.DagModel")
    assert not is_public("airflow.models")
    assert is_public("airflow.sdk.BaseOperator")


def test_every_private_name_of_airflow_is_as_it_is_used() -> None:
    assert imported_names(PRIVATE) == set(USED)
    assert [sentence for name, used in USED.items() if (sentence := missing(name, used))] == []


@pytest.mark.parametrize(
    ("name", "used", "said"),
    [
        ("airflow.models.dag.Nothing", set[str](), r"changed airflow\.models\.dag\.Nothing \(it does not exist\)"),
        ("airflow.models.dag.DagModel", {"nothing"}, r"changed airflow\.models\.dag\.DagModel \(it lacks nothing\)"),
    ],
)
def test_one_sentence_says_what_a_new_airflow_changed(name: str, used: set[str], said: str) -> None:
    assert re.search(said + ": correct airflow/private_api.py, and the range", missing(name, used))


def test_the_range_of_airflow_is_the_minor_version_with_these_names() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (needed,) = (found for one in extras["airflow"] if (found := Requirement(one)).name == "apache-airflow")
    locked = version("apache-airflow")
    major, minor, _ = locked.split(".")
    assert needed.specifier.contains(locked)
    assert not needed.specifier.contains(f"{major}.{int(minor) + 1}.0")
