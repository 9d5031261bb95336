"""What every tracked file keeps to: nothing of the machine it was written on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

# Put together so that this file does not find itself.
_ROOTS = "|".join(["home", "Users", "work", "root"])
MACHINE_PATH = re.compile(rf"(?<![\w.$}}~/-])/(?:{_ROOTS})/(?!\.\.)[\w.-]+")
REGISTRY_HOSTS = re.compile(
    "|".join(
        re.escape(host.replace("~", ""))
        for host in (
            "repo1.maven~.org",
            "repo.maven~.apache.org",
            "central.sonatype~.com",
            "files.pythonhosted~.org",
            "deb.debian~.org",
        )
    )
)


def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def _matches(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in _tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
            for number, line in enumerate(text.splitlines(), 1)
            if pattern.search(line)
        ]
    return found


def test_no_tracked_file_names_a_folder_of_a_machine() -> None:
    assert _matches(MACHINE_PATH) == []


def test_no_tracked_file_names_a_registrys_host() -> None:
    assert _matches(REGISTRY_HOSTS) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("cd " + "/ho" + "me/alice/kafka", True),
        ("path: " + "/wo" + "rk/main/.venv", True),
        ("cd $PROJECT/home/x", False),
        ("https://example.org/home/page", False),
        ("~/work/kafka", False),
    ],
)
def test_the_search_for_machine_paths_finds_them(line: str, found: bool) -> None:
    assert bool(MACHINE_PATH.search(line)) is found


def test_the_search_for_registries_finds_them() -> None:
    assert REGISTRY_HOSTS.search("https://repo1.maven" + ".org/maven2")
