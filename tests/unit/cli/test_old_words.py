"""Words of the previous release still work, and no help lists them."""

from __future__ import annotations

import pytest

from kafka_rollout.cli.old_words import current_words


@pytest.mark.parametrize(
    ("typed", "current"),
    [
        ("", ""),
        ("roll --to 4.3.1 --approve-as ada", "upgrade --to 4.3.1 --as ada"),
        ("roll-back --approve-as=ada --timeout=60", "rollback --as=ada --gate-timeout=60"),
        ("lock break --by ada", "lock break --as ada"),
        ("observe --connection-file f.json --json", "observe --command-config f.json --json"),
        ("groups watch --timeout 60", "groups watch --timeout 60"),
        ("demo --timeout 60", "demo --timeout 60"),
        ("scan --json - --log-dir d", "scan --json --log-dir d"),
        ("scan --json out.json --html out.html", "scan --json --output out.json --html out.html"),
        ("metadata losses --json=out.json", "metadata losses --json --output out.json"),
        ("scan --json --html out.html", "scan --json --html out.html"),
        ("catalogue check --json 4.3.1", "catalogue check --json 4.3.1"),
    ],
)
def test_each_old_word_becomes_the_current_one(typed: str, current: str) -> None:
    assert current_words(typed.split()) == current.split()
