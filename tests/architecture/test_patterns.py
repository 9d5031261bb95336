"""Regular expressions mean the same in each release of Python that the project supports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.rooms import nodes_of
from tests.paths import ROOT

FOLDERS = ("plugins", "spark_jobs", "consumer", "dags", "tools")


def possessive(source: str) -> Iterator[int]:
    """Lines of patterns with a possessive quantifier such as `a*+`.

    Python before 3.11.5 reads those of groups wrongly (python/cpython#106052), and Debian 12 has 3.11.2. An atomic
    group `(?>a*)` means the same and is read as it should be.
    """
    if not re.search(r"^(?:import re\b|from re import)", source, re.MULTILINE):
        return
    for node in nodes_of(source):
        match node:
            case ast.JoinedStr():
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "a" for part in node.values)
            case ast.Constant(value=str(text)):
                pass
            case _:
                continue
        if "\n" in text:  # a script of another language
            continue
        plain = re.sub(r"\[\^?\]?[^\]]*\]", "a", re.sub(r"\\.", "a", text, flags=re.DOTALL))
        if re.search(r"[*+?}]\+", plain):
            yield node.lineno


@pytest.mark.parametrize("pattern", ['r"(?:a|b)*+"', 'r"a++"', 'r"[+]?+"', 'rf"(?:{A}|b){{2}}+"'])
def test_a_possessive_quantifier_is_found(pattern: str) -> None:
    assert list(possessive(f"import re\nA = re.compile({pattern})\n"))


def test_no_pattern_has_a_possessive_quantifier() -> None:
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 500
    assert [f"{path.relative_to(ROOT)}:{line}" for path in files for line in possessive(path.read_text())] == []
