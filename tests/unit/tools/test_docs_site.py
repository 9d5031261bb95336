"""The documentation as a site: every page has a place, and every link of a page leads to one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.paths import ROOT
from tools.docs_site import rewrite


@pytest.mark.parametrize(
    ("source", "text", "found"),
    [
        ("README.md", "[check](docs/check.md#results)", "[check](check.md#results)"),
        ("README.md", "![the page](docs/images/report.png)", "![the page](images/report.png)"),
        ("README.md", '<img alt="a" src="docs/images/report.png">', '<img alt="a" src="images/report.png">'),
        ("README.md", "[decisions](docs/decisions/)", "[decisions](decisions/index.md)"),
        ("docs/check.md", "[figures](../bench/README.md)", "[figures](bench/README.md)"),
        (
            "docs/decisions/stored-data.md",
            "[operations](../operations.md#the-lock)",
            "[operations](../operations.md#the-lock)",
        ),
        ("docs/check.md", "[the schema](check.schema.json)", "the schema"),
        ("docs/check.md", "[the site](https://kafka.apache.org/)", "[the site](https://kafka.apache.org/)"),
        ("docs/check.md", "[below](#results)", "[below](#results)"),
    ],
)
def test_a_link_leads_to_the_place_of_its_page_in_the_site(source: str, text: str, found: str) -> None:
    assert rewrite(text, source) == found


def test_every_page_is_in_the_navigation() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())

    def pages(entries: list[object]) -> set[str]:
        found: set[str] = set()
        for entry in entries:
            for one in entry.values() if isinstance(entry, dict) else [entry]:
                found |= pages(one) if isinstance(one, list) else {str(one)}
        return found

    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= pages(settings["nav"])


def test_the_site_builds_without_a_warning() -> None:
    subprocess.run([sys.executable, "-m", "tools.docs_site"], cwd=ROOT, check=True, timeout=60)
    build = (Path(sys.executable).with_name("zensical"), "build", "--clean", "--strict", "--config-file", "mkdocs.yml")
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    index = (ROOT / ".site" / "html" / "index.html").read_text()
    assert "Check a cluster" in index
    assert (ROOT / ".site" / "html" / re.findall(r'srcset="?([^" >]+)', index)[0]).exists()
