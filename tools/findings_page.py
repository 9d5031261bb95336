"""Write docs/findings.md, the table of all findings, from the registered checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kafka_rollout.steps.checks import CHECKS

PAGE = Path(__file__).parent.parent / "docs" / "findings.md"
_HEAD = """# Findings

All findings that this tool can give, by check. `make findings` writes this page from the code.

A *blocker* stops the run; an approval does not change that. An approver must read a *warning*. The remedy of a finding
names the objects of the cluster; this page has a remedy where it is always the same. `kafka-rollout check` and
`kafka-rollout plan --list-checks` show the checks with their results, also those that passed. A heading is the id of a
check. *Belongs to* names the plans and commands that run a check.
"""


def page() -> str:
    """Return the page from the registered checks."""
    return "\n".join([_HEAD, *_sections()]).rstrip() + "\n"


def _sections() -> Iterator[str]:
    for check in CHECKS:
        name, _, heading = check.link.partition("#")
        yield f"## {check.id}"
        yield ""
        of, more = ", ".join(check.of), f"[{heading.replace('-', ' ')}]({check.link})"
        yield f"{check.title}. Belongs to: {of}. More: {more} in `docs/{name}`."
        yield ""
        yield "| finding | severity | meaning | remedy |"
        yield "| --- | --- | --- | --- |"
        for code in check.codes:
            *others, last = code.severities
            severity = f"{', '.join(others)} or {last}" if others else last
            yield f"| `{code.text}` | {severity} | {code.meaning} | {code.remedy or 'in the finding'} |"
        yield ""


if __name__ == "__main__":
    PAGE.write_text(page())
