"""Names of PySpark and kafka-python that their documentation does not list: each in one module, as it is used."""

from __future__ import annotations

import ast
import importlib
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.architecture.rooms import nodes_of
from tests.paths import ROOT


class Use(NamedTuple):
    """`module`: the only one that imports the name. `call`: positional arguments and keywords that it passes."""

    library: str
    module: str
    call: tuple[str, ...]


USED = {
    "pyspark.java_gateway.launch_gateway": Use(
        "pyspark", "spark_jobs/kafka_rollout_spark/application/scan_coordinator_logs.py", ("conf",)
    ),
    "pyspark.daemon.manager": Use("pyspark", "spark_jobs/kafka_rollout_spark/worker_daemon.py", ()),
    "kafka.net.sasl.get_sasl_mechanism": Use("kafka-python", "plugins/kafka_rollout/client/connection.py", ("name",)),
    "kafka.net.sasl.oauth.AbstractTokenProvider": Use(
        "kafka-python", "plugins/kafka_rollout/client/security/tokens.py", ()
    ),
}
PRIVATE = ("pyspark.java_gateway", "pyspark.daemon", "pyspark.worker", "kafka.net", "kafka.conn", "kafka.client_async")


def changed(name: str, use: Use) -> str:
    """A sentence about what the installed library lacks of a name; empty if it has all."""
    module, _, last = name.rpartition(".")
    what = (
        f"{use.library} {version(use.library)} changed {name}: correct {use.module}, and the range in pyproject.toml."
    )
    found = getattr(importlib.import_module(module), last, None)
    if found is None:
        return what
    return what if set(use.call) - set(signature(found).parameters) else ""


def private_imports(path: Path) -> set[str]:
    found = set[str]()
    for node in nodes_of(path.read_text()):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith(PRIVATE):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith(PRIVATE)}
    return found


def test_each_private_name_is_imported_by_one_module() -> None:
    files = [path for folder in ("plugins", "spark_jobs", "dags") for path in (ROOT / folder).rglob("*.py")]
    found = {(name, str(path.relative_to(ROOT))) for path in files for name in private_imports(path)}
    assert found == {(name, use.module) for name, use in USED.items()}


@pytest.mark.parametrize("name", USED)
def test_each_private_name_is_as_it_is_used(name: str) -> None:
    assert changed(name, USED[name]) == ""


def test_one_sentence_says_what_a_new_version_changed() -> None:
    use = USED["pyspark.daemon.manager"]
    said = changed("pyspark.daemon.nothing", use)
    assert said.endswith("correct spark_jobs/kafka_rollout_spark/worker_daemon.py, and the range in pyproject.toml.")
    assert changed("pyspark.daemon.manager", use._replace(call=("nothing",)))
