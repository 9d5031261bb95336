"""A field is documented below itself, by an attribute docstring, and not in a glossary in the docstring of its class.

An editor and `Field.description` of pydantic show the text at the field, and a field that is removed or renamed takes
its text with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.rooms import PACKAGE, nodes_of
from tests.paths import ROOT

FOLDERS = (PACKAGE, *(ROOT / name for name in ("spark_jobs", "data_source", "consumer", "tools/derivation")))
_NAME = r"`(\w+)`(?: \([^()`]*\))?"
_ENTRY = re.compile(rf"(?:^|(?<=[.;:)] )|(?<=,\s)){_NAME}(?:, {_NAME})*(?:,? and {_NAME})?(?: True| False| None)?: ")


def glossaries(source: str) -> Iterator[tuple[str, str]]:
    """Class and field of each entry "`field`: text" in the docstring of a class that has the field."""
    for node in nodes_of(source):
        if not isinstance(node, ast.ClassDef):
            continue
        assigned = (item.target for item in node.body if isinstance(item, ast.AnnAssign))
        fields = {target.id for target in assigned if isinstance(target, ast.Name)}
        text = " ".join((ast.get_docstring(node) or "").split())
        for entry in _ENTRY.finditer(text):
            yield from ((node.name, name) for name in entry.groups() if name in fields)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_class_has_a_glossary_of_its_fields(folder: Path) -> None:
    found = {str(path.relative_to(ROOT)): list(glossaries(path.read_text())) for path in sorted(folder.rglob("*.py"))}
    assert {path: names for path, names in found.items() if names} == {}


def test_an_entry_is_seen_wherever_it_stands() -> None:
    text = "A node. `a`: one; `b` and `c` (ms): two, `d` None: three.\n\n    `e` is no entry, nor is `f`: no field."
    fields = "".join(f"    {name}: int\n" for name in "abcde")
    source = f'class Node:\n    """{text}"""\n{fields}'
    assert list(glossaries(source)) == [("Node", name) for name in "abcd"]
