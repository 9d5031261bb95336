"""What an installation loses besides the release is restored by every caller: one function knows it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.rooms import by_function

ROOMS = ("observation", "roll", "lowering", "procedure", "preparation", "feature_updates", "control", "airflow", "cli")
INSTALLS = {
    "observation/node_steps.py:install_release": "with what the records of the stops have",
    "procedure/rehearsal.py:_start_on_source": "a copy of a node on this machine has no package and no link",
}


def installs(source: str) -> Iterator[tuple[str, int]]:
    """Yield the outermost function and the line of each call of `runtime.install`."""
    for top in ast.parse(source).body:
        for function in top.body if isinstance(top, ast.ClassDef) else [top]:
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Attribute)
                    and node.attr == "install"
                    and ast.unparse(node.value).endswith("runtime")
                ):
                    yield getattr(function, "name", ""), node.lineno


def test_one_function_installs_releases() -> None:
    assert set(by_function(ROOMS, installs)) == set(INSTALLS)


def test_the_check_itself_can_fail() -> None:
    assert list(installs("def f(run):\n    run.ports.runtime.install(node, release)\n")) == [("f", 2)]
