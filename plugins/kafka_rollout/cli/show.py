"""Output of the command line: tables for terminals, JSON for programs."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from kafka_rollout.domain.gates.check import GateCheck
from kafka_rollout.domain.model.findings import Finding, Severity
from kafka_rollout.domain.model.outside_text import escape_invisible, escape_json
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.model.releases import Catalogue, Release, VersionRange
from kafka_rollout.domain.model.state import ClusterState
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.steps.common.approval import approval_body
from kafka_rollout.steps.roll.walk import Progress


class SafeConsole(Console):
    """A terminal that no text can control: what is printed as a string has visible characters and line breaks alone.

    Text from outside goes through `as_text` as well, so that Rich takes no markup from it.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str("\n".join(_visible(line) for line in text.split("\n")), **options)


def _visible(line: str) -> str:
    return escape_invisible(line, limit=max(10 * len(line), 100))


# Results are written to standard output, progress and errors to standard error.
out = SafeConsole(highlight=False, emoji=False)
err = SafeConsole(stderr=True, highlight=False, emoji=False)

_COLOURS = {Severity.BLOCKER: "red", Severity.WARNING: "yellow", Severity.INFO: "blue"}


def as_text(value: object) -> str:
    """Text from outside for Rich: one line, every character visible, nothing of it taken for markup."""
    shown = escape_invisible(str(value))
    # A backslash at the end would take the meaning from a tag after it.
    return escape(re.sub(r"\\+$", lambda run: "\\u005c" * len(run[0]), shown))


_PLAN_KEYS = {"source": "origin", "release_steps": "hops"}  # keys that scripts read, where the field has a newer name


def plain(value: Any) -> Any:
    """Return a domain value in its JSON form: releases and ranges as text, sets sorted."""
    if isinstance(value, Plan):
        named = {_PLAN_KEYS.get(field.name, field.name): getattr(value, field.name) for field in fields(value)}
        return plain(named)
    if isinstance(value, Release | VersionRange):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(plain(item) for item in value)
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


def print_json(value: Any) -> None:
    print(escape_json(json.dumps(plain(value), indent=2, ensure_ascii=False)))


def print_clusters(clusters: Mapping[str, ClusterSpec]) -> None:
    table = _table("Cluster", "Owner", "Runtime", "Controllers", "Brokers", "Connection")
    for spec in clusters.values():
        connections = [name for name in (spec.connection_id, spec.controller_connection_id) if name]
        table.add_row(
            spec.name,
            spec.owner,
            spec.runtime,
            ", ".join(str(node.node_id) for node in spec.controllers),
            ", ".join(str(node.node_id) for node in spec.brokers),
            ", ".join(connections) or "none (PLAINTEXT)",
        )
    out.print(table)


def print_catalogue(catalogue: Catalogue) -> None:
    table = _table("Release", "Coordinators (KIP-915)", "metadata.version", "Java", "Other features")
    for release in catalogue:
        facts = catalogue.get(release)
        features = dict(facts.features)
        level = features.pop("metadata.version").supported
        others = ", ".join(f"{name} {feature.supported}" for name, feature in sorted(features.items()))
        table.add_row(
            str(release),
            facts.coordinator_class.value,
            f"{level} ({facts.metadata_version_name(level.min)} to {facts.metadata_version_name(level.max)})",
            f"{facts.java_minimum} or later",
            others or "–",
        )
    out.print(table)


def print_state(cluster: ClusterSpec, state: ClusterState) -> None:
    quorum = state.quorum
    leader = "unknown" if quorum is None else str(quorum.leader_id)
    out.print(f"[bold]{cluster.name}[/bold]  cluster id {as_text(state.cluster_id)}, active controller {leader}")
    table = _table("Node", "Roles", "Release", "Process", "CurrentMetadataVersion", "Java", "Lag", "Problem")
    for node in cluster.nodes:
        seen = state.nodes[node.node_id]
        metrics = seen.metrics
        lag = quorum.lag(node.node_id) if quorum else None
        current = (
            f"{_or(metrics.current_metadata_version_prometheus)} / {_or(metrics.current_metadata_version_jolokia)}"
            if metrics
            else "–"
        )
        table.add_row(
            f"{node.name} ({node.node_id})",
            ", ".join(sorted(node.roles)),
            _or(seen.release),
            _or(seen.process.pid),
            current,
            as_text(_or(metrics.java_version if metrics else None)),
            _or(lag),
            as_text(seen.problem),
        )
    out.print(table)
    print_levels(state)
    under = [p.name for p in state.partitions if len(p.isr) < p.min_isr or p.leader < 0]
    groups = Counter(group.type for group in state.groups)
    out.print(
        f"{len(state.partitions)} partitions, {len(under)} under min ISR or without a leader; groups: "
        f"{as_text(', '.join(f'{count} {kind}' for kind, count in groups.items()) or 'none')}; "
        f"{len(state.transactions)} transactional ids"
    )
    for question in state.unanswered:
        out.print(f"[yellow]query failed:[/yellow] {as_text(question)}")


def print_levels(state: ClusterState) -> None:
    """Print the finalized levels and the range that every node supports."""
    table = _table("Feature", "Finalized", "Supported by")
    names = {name for node in state.nodes.values() if node.features for name in node.features.supported}
    for name in sorted(names | set(state.finalized)):
        ranges: dict[str, list[int]] = {}
        for node_id, node in sorted(state.nodes.items()):
            told = "no response" if node.features is None else str(node.features.supported.get(name, "not supported"))
            ranges.setdefault(told, []).append(node_id)
        told = "; ".join(f"{text}: nodes {', '.join(map(str, ids))}" for text, ids in ranges.items())
        table.add_row(as_text(name), str(state.finalized.get(name, 0)), told)
    out.print(table)


def print_plan(plan: Plan) -> None:
    print_body(approval_body(plan))


def print_body(text: str, console: Console = out) -> None:
    """Print Markdown; what is from outside in it was escaped when it was put in."""
    console.print(Markdown("\n".join(_visible(line) for line in text.split("\n"))))


def print_findings(findings: tuple[Finding, ...]) -> None:
    for finding in findings:
        colour = _COLOURS[finding.severity]
        out.print(f"[{colour}]{finding.severity.value}[/{colour}] {as_text(finding.code)} {as_text(finding.subject)}")
        out.print(f"  {as_text(finding.sentence)} {as_text(finding.remedy)}")


def print_look(look: GateCheck) -> None:
    for condition in look.conditions:
        mark = "[green]✓[/green]" if condition.holds else "[red]✗[/red]"
        out.print(f"{mark} {as_text(condition.name)}: {as_text(condition.evidence)}")


class ProgressLines:
    """Progress on standard error: one line per change, and one from time to time without a change."""

    REPEAT_S = 10.0
    LONGEST = 300

    def __init__(self) -> None:
        self._last = ""
        self._said_at = 0.0

    def __call__(self, progress: Progress) -> None:
        left = "" if progress.remaining_s is None else f", about {_span(progress.remaining_s)} left"
        line = f"node {progress.k} of {progress.n}, {progress.node}: {progress.message}"
        self.say(line, f"[{_span(progress.elapsed_s)}{left}]")

    def on_check(self, seen: GateCheck, message: str) -> None:
        """Print one check of a gate; called by `wait_for_gate`."""
        self.say(f"gate {seen.gate}: {message}")

    def say(self, line: str, clock: str = "") -> None:
        # The numbers in the evidence change with every check. A line counts as new if the unmet conditions changed.
        subject = re.sub(r"\d+", "", line[:120])
        now = time.monotonic()
        if subject == self._last and now - self._said_at < self.REPEAT_S:
            return
        self._last, self._said_at = subject, now
        line = line if len(line) <= self.LONGEST else f"{line[: self.LONGEST]}…"
        err.print(as_text(f"{time.strftime('%H:%M:%S')} {line} {clock}".rstrip()), soft_wrap=True)


class Silent:
    """No progress: the output of the command is for scripts."""

    def __call__(self, progress: Progress) -> None: ...

    def on_check(self, seen: GateCheck, message: str) -> None: ...

    def say(self, line: str) -> None: ...


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column)
    return table


def _or(value: object) -> str:
    return "–" if value is None else str(value)


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
