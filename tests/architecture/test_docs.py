"""What the documents name is there: files, headings, commands with their options, finding codes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from jinja2 import Template
from typer.core import TyperGroup

from kafka_rollout.base.system.settings import VARIABLES
from kafka_rollout.cli.app import app
from kafka_rollout.clusters.entries import CommandEntry, ConditionEntry, PackageEntry, ServiceEntry
from kafka_rollout.clusters.inventory import ClusterEntry, NodeEntry, load_cluster
from kafka_rollout.procedure.kinds import KINDS as KINDS_OF_RUNS
from kafka_rollout.procedure.step import Procedure, Section
from kafka_rollout.report.check_registry import CHECKS
from kafka_rollout.run.store.event_json import KINDS
from tests.paths import IMAGES, PICTURES
from tools.demo.folder import PROJECT_ROOT
from tools.docs_words import LIMIT, count_words, words_by_page
from tools.reference_pages import PARTS, current_files

PAGES = [PROJECT_ROOT / name for name in subprocess.run(
    ["git", "ls-files", "*.md"], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
).stdout.split()]  # fmt: skip
SOURCES = [
    path
    for room in ("plugins", "dags", "spark_jobs", "data_source", "consumer")
    for path in (PROJECT_ROOT / room).rglob("*.py")
]
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
HTML_IMAGE = re.compile(r'<img alt="([^"]*)" src="([^"]+)"')
HTML_SOURCE = re.compile(r'<source [^>]*srcset="([^"]+)"')
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CALL = re.compile(r"kafka-rollout((?: +[^\s`|;&)#]+)+)")
CODE = re.compile(r"`([A-Z][A-Z0-9]*(?:-[A-Z0-9]+)+)`")
CODES = frozenset(code.text for check in CHECKS for code in check.codes)
HISTORY = {"CHANGELOG.md", "docs/verification.md"}  # they name what was there
_NO_CODES = {"SCRAM-SHA-256", "SCRAM-SHA-512"}


def page_id(path: Path) -> str:
    return str(path.relative_to(PROJECT_ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_link_leads_to_a_file_and_its_heading(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, heading = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{target} is not there"
        assert not heading or heading in headings(path), f"{name or page.name} has no heading #{heading}"


def test_every_picture_is_shown_with_a_text_and_taken_by_make_pictures() -> None:
    shown: set[Path] = set()
    for page in PAGES:
        text = page.read_text()
        for alt, target in [*PICTURE.findall(text), *HTML_IMAGE.findall(text)]:
            assert len(alt.split()) > 2, f"{page_id(page)}: say what {target} shows"
            shown.add((page.parent / target).resolve())
        shown |= {(page.parent / target).resolve() for target in HTML_SOURCE.findall(text)}
    assert shown <= {IMAGES / f"{name}.png" for name in PICTURES}
    assert set(IMAGES.iterdir()) == shown, "Take what is missing with `make pictures`; show or remove the others."
    assert sum(path.stat().st_size for path in shown) < 1_500_000


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_command_exists_with_the_options_that_are_named(page: Path) -> None:
    named = [] if page_id(page) in HISTORY else list(calls(page))
    wrong = [f"kafka-rollout {' '.join(words)}: {why}" for words in named if (why := problem_of(words))]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_no_empty_line_cuts_a_table(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    first = re.findall(r"(?:\A|\n\n)(\|[^\n]*)\n(?!\|[ -]*-)", text)
    assert first == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_finding_of_a_table_is_one_that_the_code_can_give(page: Path) -> None:
    rows = [line for line in page.read_text().splitlines() if line.startswith("| `")]
    named = {code for row in rows for code in CODE.findall(row.split("|")[1])}
    assert named - _NO_CODES <= CODES, f"nothing gives {sorted(named - _NO_CODES - CODES)}"


def test_the_parts_of_pages_from_the_code_are_current() -> None:
    files = current_files()
    assert [path.name for path, text in files.items() if path.read_text() != text] == [], "Run `make reference`."
    shown = "".join(files.values())
    assert [name for name in PARTS if f"<!-- from the code: {name} -->" not in shown] == []


def test_every_event_variable_and_key_of_an_inventory_has_a_meaning() -> None:
    names = set(re.findall(r"KAFKA_ROLLOUT_[A-Z_]+", "".join(path.read_text() for path in SOURCES)))
    assert names == set(VARIABLES)
    assert [kind for kind, event in KINDS.items() if (event.__doc__ or "").startswith(f"{event.__name__}(")] == []
    entries = (ClusterEntry, NodeEntry, ServiceEntry, CommandEntry, PackageEntry, ConditionEntry)
    assert [key for entry in entries for key, field in entry.model_fields.items() if not field.description] == []


@pytest.mark.parametrize("page", [page for page in PAGES if "```yaml\nname: " in page.read_text()], ids=page_id)
def test_every_inventory_of_a_page_can_be_read(page: Path, tmp_path: Path) -> None:
    for number, text in enumerate(re.findall(r"```yaml\n(name: .*?)```", page.read_text(), re.DOTALL)):
        (tmp_path / f"{number}.yaml").write_text(text)
        assert load_cluster(tmp_path / f"{number}.yaml").nodes


def test_the_documentation_stays_short() -> None:
    counted = words_by_page()
    assert sum(counted.values()) <= LIMIT, "Shorten a page: `python -m tools.docs_words` lists them."
    assert {"README.md", "docs/upgrade.md", "docs/decisions/stored-data.md", "bench/README.md"} <= set(counted)
    assert count_words("| a `b` | – |\n|---|---|\n<!-- from the code: x -->\nc d\n<!-- end -->\ne 2") == 4


def test_a_command_that_is_not_there_and_a_dead_heading_are_seen() -> None:
    assert problem_of(["rol", "--to", "4.3.1"])
    assert problem_of(["upgrade", "--no-such-option"])
    assert problem_of(["upgrade", "-c", "NAME", "--to", "4.3.1", "--no-scan"]) == ""
    assert "gates-of-a-node" in headings(PROJECT_ROOT / "docs" / "upgrade.md")
    assert "no-such-heading" not in headings(PROJECT_ROOT / "docs" / "upgrade.md")


def headings(page: Path) -> set[str]:
    """GitHub's anchors."""
    titles = re.findall(r"^#+ +(.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def calls(page: Path) -> Iterator[list[str]]:
    text = page.read_text().replace("\\\n", " ")
    # A call in running text may be broken at the end of a line.
    text = re.sub(r"`[^`\n]*\n[^`\n]*`", lambda found: found[0].replace("\n", " "), text)
    for found in CALL.finditer(text):
        words = found[1].split()
        if re.fullmatch(r"[a-z][a-z-]*", words[0]) or words[0].startswith("--"):
            yield words


def problem_of(words: list[str]) -> str:
    """Why the command line cannot be as it stands; values and placeholders are not looked at."""
    command: Any = commands()
    rest = list(words)
    while isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
        found = command.commands.get(rest[0])
        if found is None:
            return f"there is no command {rest[0]}"
        command = found
        rest.pop(0)
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)} | {"--help"}
    unknown = [word.split("=")[0] for word in rest if word.startswith("--") and word.split("=")[0] not in known]
    return f"it has no option {', '.join(unknown)}" if unknown else ""


@cache
def commands() -> TyperGroup:
    found = typer.main.get_command(app)
    assert isinstance(found, TyperGroup)
    return found


@pytest.mark.parametrize(("page", "procedure"), [(kind.value, one.procedure) for kind, one in KINDS_OF_RUNS.items()])
def test_the_page_of_a_dag_lists_its_steps_in_their_order(page: str, procedure: Procedure) -> None:
    file = PROJECT_ROOT / "docs" / f"{page}.md"
    assert file.exists(), f"Write docs/{page}.md with the steps of this kind of run, and name it in mkdocs.yml."
    part = re.search(rf"<!-- from the code: steps-{page} -->\n(.*?)<!-- end -->", file.read_text(), re.DOTALL)
    listed = re.findall(r"^\| `(\w+)` \|", part[1], re.MULTILINE) if part else []
    assert listed == list(steps_of(procedure.parts)), f"Add the part steps-{page} to docs/{page}.md: `make reference`."


def steps_of(parts: Iterable[Any]) -> Iterator[str]:
    """Ids of the steps; a section with a prefix by its own id."""
    for part in parts:
        if isinstance(part, Section) and part.prefixes:
            yield part.id
        elif isinstance(part, Section):
            yield from steps_of(part.parts)
        else:
            yield part.id


def test_every_module_and_folder_that_a_page_names_exists() -> None:
    project = PROJECT_ROOT / "plugins" / "kafka_rollout"
    scan = PROJECT_ROOT / "spark_jobs" / "kafka_rollout_spark"
    folders = [
        child.name
        for root in (PROJECT_ROOT, project, scan)
        for child in root.iterdir()
        if child.is_dir() and child.name[0] not in "._"
    ]
    path = re.compile(rf"`((?:{'|'.join(folders)})/[\w/.-]+)`")
    pages = [page for page in PAGES if page_id(page) not in HISTORY]
    named = {(page_id(page), name) for page in pages for name in path.findall(page.read_text())}
    named -= {
        ("README.md", "include/clusters/orders.yaml"),
    }  # commands write them
    assert len(named) > 60
    dead = [
        (page, name)
        for page, name in sorted(named)
        if not any((root / f"{name}{end}").exists() for root in (PROJECT_ROOT, project, scan) for end in ("", ".py"))
    ]
    assert dead == []


@pytest.mark.parametrize("file", ["docs/notifications.md", "plugins/kafka_rollout/airflow/operators/notifications.py"])
def test_the_example_of_an_alert_in_html_escapes_names_that_clients_choose(file: str) -> None:
    (template,) = re.findall(r'"html_content": "([^"]+)"', (PROJECT_ROOT / file).read_text())
    shown = Template(template).render(alert={"body": "Group <img src=x> cannot be loaded."})
    assert shown == "<pre>Group &lt;img src=x&gt; cannot be loaded.</pre>"
