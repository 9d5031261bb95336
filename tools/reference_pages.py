"""`make reference`: writes the parts of docs/ that are facts of the code, and the schemas of inventories and reports.

A page has such a part between the lines `<!-- from the code: NAME -->` and `<!-- end -->`; the rest is written by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from inspect import cleandoc
from operator import or_
from pathlib import Path
from typing import Any, get_args

import typer.main
from pydantic import BaseModel

from kafka_rollout.base import json_forms
from kafka_rollout.base.errors import FatalError
from kafka_rollout.base.system.settings import VARIABLES
from kafka_rollout.cli.app import ERROR_KINDS, app
from kafka_rollout.clusters.entries import CommandEntry, ConditionEntry, PackageEntry, ServiceEntry
from kafka_rollout.clusters.inventory import ClusterEntry, NodeEntry, PaceEntry, json_schema
from kafka_rollout.console.cluster_status import NEEDS_HUMAN, Phase
from kafka_rollout.coordinator_logs.scan import VERDICTS
from kafka_rollout.model.rights import RIGHTS, Right
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import ServiceSpec
from kafka_rollout.nodes.metric_names import MetricName
from kafka_rollout.nodes.runtimes.hosts.rights import HostRights, sudoers_file
from kafka_rollout.notifications import due as notifications
from kafka_rollout.planning.fields import Field, declared_fields
from kafka_rollout.planning.findings.advisories import releases_text, reviews_text
from kafka_rollout.planning.findings.changed_settings import list_changed_defaults
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure.kinds import KINDS as KINDS_OF_RUNS
from kafka_rollout.procedure.step import AnyStep, EachBatch, EachNode, Procedure, Section
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.report.check_registry import CHECKS
from kafka_rollout.report.run_report import FORMAT, DowngradeReport, FeatureReport, RunReport
from kafka_rollout.run.metrics import METRICS
from kafka_rollout.run.store.event_json import KINDS
from tests.architecture.principles import PRINCIPLES
from tests.architecture.rooms import ORDER, row_of

ROOT = Path(__file__).resolve().parents[1]
_PART = re.compile(r"(<!-- from the code: ([a-z-]+) -->\n).*?(<!-- end -->\n)", re.DOTALL)

_PHASES = {
    Phase.IDLE: "there is no run, except plans and dry runs",
    Phase.PLANNING: "the run observes, scans and plans",
    Phase.WAITING_FOR_APPROVAL: "the run asks for an approval",
    Phase.ROLLING: "the run replaces nodes",
    Phase.ROLLING_BACK: "the run returns nodes to the previous release",
    Phase.WAITING_FOR_DECISION: "a step or gate failed, and the run asks how to continue",
    Phase.FINALIZING: "the run changes levels",
    Phase.PAUSED: "stopped after a change, before its end: continue the run or roll it back",
    Phase.FINISHED: "the run ended at its target",
    Phase.FAILED: "a task failed, an approval timed out, or the run ended before its target",
    Phase.ROLLED_BACK: "the run ended with a rollback",
    Phase.REFUSED: "nothing was changed",
    Phase.DRY_RUN: "a dry run ended",
    Phase.UNKNOWN: "the history cannot be read, or you cannot read the run that holds the lock",
}


def current_files() -> Mapping[Path, str]:
    """Return the files with parts from the code as they must be, by path."""
    files = {
        ROOT / "include" / "clusters" / "cluster.schema.json": json_schema(),
        ROOT / "docs" / "run-report.schema.json": _report_schema(),
    }
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if _PART.search(text):
            files[path] = _PART.sub(_write, text)
    return files


def _report_schema() -> str:
    """Return the schema of report.json of all kinds of runs."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Report of a run, format {FORMAT}",
        "description": "Times: epoch seconds. Durations: seconds. The format is raised if a key is removed or renamed; "
        "keys can be added in one format.",
    }
    return json.dumps(head | json_forms.json_schema(RunReport | DowngradeReport | FeatureReport), indent=1) + "\n"


def _write(part: re.Match[str]) -> str:
    text = "\n".join(PARTS[part[2]]()).strip()
    return f"{part[1]}{text}\n{part[3]}"


def _findings() -> Iterator[str]:
    for check in CHECKS:
        name, _, heading = check.link.partition("#")
        yield f"## {check.id}\n"
        of, more = ", ".join(check.of), f"[{heading.replace('-', ' ')}]({check.link})"
        yield f"{check.title}. Belongs to: {of}. More: {more} in `docs/{name}`.\n"
        rows = []
        for code in check.codes:
            *others, last = code.severities
            severity = f"{', '.join(others)} or {last}" if others else last
            rows.append((f"`{code.text}`", severity, code.meaning, code.remedy or "in the finding"))
        yield from _table(("finding", "severity", "meaning", "remedy"), rows)
        yield ""


def _settings() -> Iterator[str]:
    rows = [(f"`{name}`", one.meaning, one.default) for name, one in VARIABLES.items()]
    return _table(("variable", "meaning", "default"), rows)


def _errors() -> Iterator[str]:
    rows = [(f"`{kind}`", str(of.exit_code), cleandoc(of.__doc__ or "")) for of, kind in ERROR_KINDS]
    rows.append(("`unexpected`", str(FatalError.exit_code), "A fault of this tool."))
    return _table(("`kind`", "exit code", "meaning"), sorted(rows, key=lambda row: int(row[1])))


def _metrics() -> Iterator[str]:
    rows = [
        (f"`{metric.value}`", facts.kind, ", ".join(f"`{tag}`" for tag in facts.tags), facts.value)
        for metric, facts in METRICS.items()
    ]
    return _table(("metric", "kind", "tags", "value"), rows)


def _notifications() -> Iterator[str]:
    rows = [(f"`{kind}`", facts.urgency, facts.sent_when) for kind, facts in notifications.KINDS.items()]
    return _table(("kind", "urgency", "sent when"), rows)


def _columns() -> Iterator[str]:
    """Of the data source, as its document has them."""
    document = json.loads((ROOT / "include" / "schemas" / "coordinator-log.json").read_text(encoding="utf-8"))
    rows = [(f"`{field['name']}`", field["metadata"]["comment"]) for field in document["fields"]]
    return _table(("column", "content"), rows)


def _options() -> Iterator[str]:
    """Of the data source."""
    from pyspark_kafka_coordinator_log.options import OPTIONS

    return _table(("option", "meaning"), [(f"`{name}`", text) for name, text in OPTIONS.items()])


def _verdicts() -> Iterator[str]:
    return _table(("verdict", "what the release does"), [(f"`{one}`", text) for one, text in VERDICTS.items()])


def _phases() -> Iterator[str]:
    rows = [(f"`{phase}`", "yes" if phase in NEEDS_HUMAN else "", _PHASES[phase]) for phase in Phase]
    return _table(("phase", "needs a human", "meaning"), rows)


def _steps(procedure: Procedure) -> Iterator[str]:
    return _table(("step", "what it does"), list(_step_rows(procedure.parts)))


def _step_rows(parts: Iterable[AnyStep | EachBatch | EachNode | Section]) -> Iterator[tuple[str, str]]:
    """Yield id and text of each step; a section that names its steps after itself is one row."""
    for part in parts:
        if isinstance(part, Section) and not part.prefixes:
            yield from _step_rows(part.parts)
        elif not isinstance(part, EachBatch | EachNode):
            yield f"`{part.id}`", part.doc


def _events() -> Iterator[str]:
    rows = []
    schemas = json_forms.json_schema(reduce(or_, KINDS.values()))["$defs"]
    for kind, event in KINDS.items():
        properties = schemas[event.__name__]["properties"]
        fields = {name: properties.get(name, {}) for name in event.__dataclass_fields__ if name != "at"}
        meanings = (f"`{name}`: {field['description']}" for name, field in fields.items() if "description" in field)
        text = " ".join((cleandoc(event.__doc__ or ""), *meanings))
        rows.append((f"`{kind}`", text, ", ".join(f"`{name}`" for name in fields)))
    return _table(("event", "meaning", "fields"), rows)


def _inventory() -> Iterator[str]:
    entries: Mapping[str, type[BaseModel]] = {
        "A cluster": ClusterEntry,
        "`nodes`": NodeEntry,
        "`service`": ServiceEntry,
        "`install`, `before_stop`, `after_start`": CommandEntry,
        "`package`": PackageEntry,
        "`paces`: careful, normal, fast": PaceEntry,
        "`conditions`": ConditionEntry,
    }
    for title, entry in entries.items():
        yield f"## {title}\n"
        required = set(entry.model_json_schema().get("required", ()))
        rows = []
        for name, field in entry.model_fields.items():
            default = ", ".join(field.default) if isinstance(field.default, tuple) else field.default
            shown = "" if default in (None, [], {}, "") else f"`{str(default).lower()}`"
            rows.append((f"`{name}`", "required" if name in required else shown, field.description or ""))
        yield from _table(("key", "default", "meaning"), rows)
        yield ""


def _metric_names() -> Iterator[str]:
    yield ", ".join(f"`{name}`" for name in get_args(MetricName))


def _defects() -> Iterator[str]:
    rows = []
    known = load_catalogue(ROOT / "include")
    for one in known.advisories:
        affected = ", ".join(map(releases_text, one.affected))
        defect = f"{one.condition} {one.defect}"
        rows.append((one.id, f"{affected} ({one.concerns})", one.severity, defect, one.remedy, one.source))
    yield f"Reviewed: {reviews_text(known.reviews)}.\n"
    yield from _table(("id", "affected releases", "severity", "defect", "remedy", "source"), rows)


def _defaults() -> Iterator[str]:
    rows = [
        (str(release), f"`{setting}`", f"{old} → {new}", effect)
        for release, setting, old, new, effect in list_changed_defaults(load_catalogue(ROOT / "include"))
    ]
    return _table(("release", "setting", "old → new default", "effect of an upgrade"), rows)


def _rooms() -> Iterator[str]:
    return _table(("room", "subject", "folders that touch the outside"), [row_of(room) for room in reversed(ORDER)])


def _code(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def _principles() -> Iterator[str]:
    for kind in dict.fromkeys(one.kind for one in PRINCIPLES):
        yield f"### {kind}\n"
        rows = [
            (one.holds, _code(one.places), _code(f"tests/{test}" for test in one.tests))
            for one in PRINCIPLES
            if one.kind == kind
        ]
        yield from _table(("principle", "kept in", "held by"), rows)
        yield ""


def _rights() -> Iterator[str]:
    users: dict[Right, list[str]] = {}
    for of, rights in RIGHTS.items():
        for right in rights:
            users.setdefault(right, []).append(of.value)
    rows = [(one.operation, one.resource, f"`{one.name}`", one.purpose, ", ".join(of)) for one, of in users.items()]
    return _table(("operation", "resource", "name", "needed to", "users"), rows)


def _sudoers() -> Iterator[str]:
    rights = HostRights(ServiceSpec(host="kafka-1")).all("/var/lib/kafka/data")
    return iter(("```", sudoers_file("rollout", rights).strip(), "```"))


def _commands() -> Iterator[str]:
    for name, command in _walk(typer.main.get_command(app), "kafka-rollout"):
        yield f"## {name}\n"
        yield f"{cleandoc(command.help or '')}\n"
        context = command.context_class(command, info_name=name)
        records = [record for param in command.params if (record := param.get_help_record(context))]
        if records:
            yield from _table(
                ("option", "meaning"), [(f"`{option.replace('|', ' / ')}`", text) for option, text in records]
            )
            yield ""


def _walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for word, one in command.commands.items():
            yield from _walk(one, f"{name} {word}")
    else:
        yield name, command


def parameters(request: type[Request] = Request) -> Iterator[str]:
    head = ("field of the form", "option", "runs", "default", "limits", "effect")
    return _table(head, [_parameter(one) for one in declared_fields(request)])


def _parameter(field: Field) -> Sequence[str]:
    runs = "all" if field.of == frozenset(RunOf) else ", ".join(kind.value for kind in RunOf if kind in field.of)
    options = " ".join(f"`{option}`" for option in field.option.split("/") if option)
    limits = ", ".join(_limits(field))
    return f"`{field.form}`" if field.form else "", options, runs, _default(field), limits, field.text


def _default(field: Field) -> str:
    if field.labels:
        return f"`{next(iter(field.labels)) if field.default is None else field.default}`"
    if isinstance(field.default, bool):
        return "yes" if field.default else "no"
    if not field.default:
        return "empty"
    number, unit = field.in_form(field.default), field.form_unit.name or field.option_unit.name
    return f"{number:g} {unit.removesuffix('s') if number == 1 else unit}".strip()


def _limits(field: Field) -> Iterator[str]:
    if field.labels:
        yield ", ".join(f"`{value}`" for value in field.labels)
    if field.least is not None:
        yield f"at least {field.in_form(field.least):g}"
    if field.most is not None:
        yield f"at most {field.in_form(field.most):g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        cells = (" ".join(cell.split()) for cell in row)
        yield f"| {' | '.join(cells)} |"


def _operators() -> Iterator[str]:
    from kafka_rollout.airflow.example_dags import example_kafka_cluster
    from kafka_rollout.airflow.graphs.embedded import KafkaUpgradeTaskGroup
    from kafka_rollout.airflow.operators import kafka_cluster as operators
    from kafka_rollout.airflow.operators import kafka_coordinator_log_scan as scans
    from kafka_rollout.airflow.sensors import kafka_cluster as sensors

    modules: tuple[Any, ...] = (sensors, operators, scans)
    public = (*(getattr(module, name) for module in modules for name in module.PUBLIC), KafkaUpgradeTaskGroup)
    for about in (sensors, operators.ClusterOperator):
        yield f"{cleandoc(about.__doc__ or '').partition(chr(10) * 2)[2]}\n"
    for one in public:
        yield f"## {one.__name__}\n\n`from {one.__module__} import {one.__name__}`\n\n{cleandoc(one.__doc__ or '')}\n"
    yield f"## Example\n\n```python\n{Path(str(example_kafka_cluster.__file__)).read_text(encoding='utf-8')}```"


PARTS: Mapping[str, Callable[[], Iterator[str]]] = {
    "columns": _columns,
    "commands": _commands,
    "defaults": _defaults,
    "defects": _defects,
    "errors": _errors,
    "events": _events,
    "findings": _findings,
    "inventory": _inventory,
    "metrics": _metrics,
    "metric-names": _metric_names,
    "notifications": _notifications,
    "operators": _operators,
    "options": _options,
    "parameters": parameters,
    "phases": _phases,
    "principles": _principles,
    "rights": _rights,
    "rooms": _rooms,
    "settings": _settings,
    "sudoers": _sudoers,
    "verdicts": _verdicts,
    **{f"steps-{of}": partial(_steps, kind.procedure) for of, kind in KINDS_OF_RUNS.items()},
}


if __name__ == "__main__":
    for file, content in current_files().items():
        file.write_text(content, encoding="utf-8")
