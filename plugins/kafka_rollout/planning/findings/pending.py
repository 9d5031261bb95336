"""What changed on a node's disk since its process started: the next start brings it into effect, in every run."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from kafka_rollout.base.durations import iso
from kafka_rollout.base.findings import INFO, WARNING, Check, CheckOf, Examined, Finding, FindingCode, Need
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.model.access_settings import decides_access, is_secret_access
from kafka_rollout.model.config_values import ValueType, same_value
from kafka_rollout.model.configs import HIDDEN, ConfigSource, NodeConfigs, Setting, is_reference, provider_files
from kafka_rollout.model.host_state import StartFile, StartFileKind
from kafka_rollout.model.unclean_elections import ENABLE as _UNCLEAN

APPROVE = "Approve it with the plan, or correct the file first."
FILE_NOT_READ = FindingCode(
    "FILE-NOT-READ",
    INFO,
    "A line of a node's file differs from the value that its process uses. The restart brings it into effect.",
    APPROVE,
)
FILE_CHANGES_DATA = FindingCode(
    "FILE-CHANGES-DATA",
    WARNING,
    "A changed line of a node's file can lose records, or moves its directories, when the node restarts.",
    f"Check the line: lost records do not come back. {APPROVE}",
)
FILE_CHANGES_MEMBERSHIP = FindingCode(
    "FILE-CHANGES-MEMBERSHIP",
    WARNING,
    "A changed line of a node's file changes who the node is, or how the other nodes reach it, when it restarts.",
    f"Check that every other node expects it. {APPROVE}",
)
FILE_CHANGES_ACCESS = FindingCode(
    "FILE-CHANGES-ACCESS",
    WARNING,
    "A changed line of a node's file changes who may do what, when the node restarts: an authorizer, super users, a "
    "protocol of a listener, how clients prove who they are.",
    f"Check that the line gives nobody more access than intended. {APPROVE}",
)
FILE_CHANGED = FindingCode(
    "FILE-CHANGED",
    (INFO, WARNING),
    "A file that a node reads at its start was changed after its process had started. A warning for meta.properties, "
    "for a script that the unit executes, and for a server.properties that cannot be compared.",
    APPROVE,
)
FILE_CHANGE_UNKNOWN = FindingCode(
    "FILE-CHANGE-UNKNOWN",
    INFO,
    "The tool cannot see whether a file that a node reads at its start was changed after its process had started.",
    "Compare the file by hand if it can have been changed.",
)
PENDING_CHECK = Check(
    "pending-configuration",
    "Files that changed since the processes started",
    "restart.md#what-the-restart-brings-into-effect",
    (
        FILE_CHANGES_ACCESS,
        FILE_CHANGES_DATA,
        FILE_CHANGES_MEMBERSHIP,
        FILE_NOT_READ,
        FILE_CHANGED,
        FILE_CHANGE_UNKNOWN,
    ),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.RESTART),
    needs=(Need.NODES, Need.CONFIGS),
    examines=Examined.CONFIGS,
)
NEEDS_APPROVAL = frozenset({FILE_CHANGES_ACCESS.text, FILE_CHANGES_DATA.text, FILE_CHANGES_MEMBERSHIP.text})
"""Codes of changes that no run brings into effect unless the approved plan has them."""
_OF_THE_START = frozenset({StartFileKind.IDENTITY, StartFileKind.PROGRAM})
"""Files that decide who the node is, and which release and configuration it starts."""
_SYNONYMS = {"broker.id": "node.id", "node.id": "broker.id"}  # a line has one, Kafka shows both (populateSynonyms)
_DYNAMIC = frozenset({ConfigSource.NODE, ConfigSource.ALL_BROKERS})
_DEFAULT, _UNQUOTED, _IGNORED = "the default", "as in the file", "ignored by the running release"
_CHANGE = re.compile(r"([^=]+)=(.*) of node (\d+)")  # the subject of a change of one node
_AT = re.compile(rf"(?<=={_UNQUOTED}) of \S+(?= of node \d+$)")
_STARTS_WITHIN_S = 2.0  # the kernel's start times are exact to a second
_WRITES_IDENTITY_S = 120.0  # a node adds directory.id to meta.properties itself when it starts (KIP-858)
# More of these loses less. -1: without a limit.
_LIMITS = frozenset(
    {
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
        "log.retention.bytes",
        "log.local.retention.ms",
        "log.local.retention.bytes",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.max.compaction.lag.ms",
        "log.cleaner.min.compaction.lag.ms",
        "offsets.retention.minutes",
        "transactional.id.expiration.ms",
        "producer.id.expiration.ms",
        "min.insync.replicas",
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "transaction.state.log.min.isr",
        "transaction.state.log.replication.factor",
    }
)
_DATA = _LIMITS | {
    "log.cleanup.policy",
    "log.dirs",
    "log.dir",
    "metadata.log.dir",
    _UNCLEAN,
    "remote.log.storage.system.enable",
}
_MEMBERSHIP = frozenset(
    {
        "node.id",
        "broker.id",
        "process.roles",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.auto.join.enable",
        "zookeeper.metadata.migration.enable",
        "controller.listener.names",
        "listeners",
        "advertised.listeners",
        "broker.rack",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinceStart:
    """What is known about the nodes that restart, by node id. A node whose value is unknown is not in a mapping."""

    configs: NodeConfigs
    """The lines of its file."""
    in_use: Mapping[int, Mapping[str, Setting]] = field(default_factory=dict)
    """What its process uses."""
    files: Mapping[int, tuple[StartFile, ...]] = field(default_factory=dict)
    """What its next start reads."""
    started_at: Mapping[int, float] = field(default_factory=dict)
    """Of its process, by the clock of the files."""
    obeyed_later: frozenset[str] = frozenset()
    """Settings that only later releases of the plan have: the running one ignores their lines."""


class _Change(NamedTuple):
    name: str
    before: str
    after: str


def pending_findings(restarted: Collection[int], seen: SinceStart) -> Iterator[Finding]:
    """Yield one finding for each change, with the nodes of which it is true.

    Secrets and values of config providers cannot be compared: those that decide access count as changed with their
    file. A dynamic value counts more than the file, so its line changes nothing. DescribeConfigs does not show whether
    a setting without a value is a secret, so no line of such a setting is quoted, except those known not to be one.
    A line that the running release ignores is a change if a later release of the plan has its setting.
    """
    found: defaultdict[_Change, list[int]] = defaultdict(list)
    for node_id in sorted(restarted):
        if node_id in seen.in_use and node_id in seen.configs:
            lines, used = seen.configs[node_id], seen.in_use[node_id]
            ignored = {name: line for name, line in lines.items() if name in seen.obeyed_later and line.strip()}
            for name, line in ignored.items():
                is_known = name in _DATA | _MEMBERSHIP or (decides_access(name) and not is_secret_access(name))
                found[_Change(name, _IGNORED, line if is_known else _UNQUOTED)].append(node_id)
            others = {name: setting for name, setting in used.items() if name not in ignored}
            read = {name: line for name, line in lines.items() if name not in ignored}
            for change in _changes(read, others, partial(_file_changed_at, seen, node_id)):
                found[change].append(node_id)
    changed = {node_id for node_ids in found.values() for node_id in node_ids}
    for change, node_ids in sorted(found.items()):
        code = _code_of(change)
        if code is FILE_NOT_READ:
            yield code.found(f"setting {change.name}", _sentence(change, node_ids))
        else:  # the approver reads each of them, and a value that is changed again is another finding
            for node_id in node_ids:
                subject = f"{change.name}={change.after} of node {node_id}"
                yield code.found(subject, _sentence(change, [node_id]))
    yield from _files(restarted, seen, changed)


def read_approved(findings: Iterable[Finding]) -> dict[int, dict[str, str | None]]:
    """Return node id → setting → line of each change that an approver of a plan reads one by one; None: no line.

    Without the lines that no finding quotes.
    """
    found: defaultdict[int, dict[str, str | None]] = defaultdict(dict)
    for finding in findings:
        if finding.code in NEEDS_APPROVAL and (of := _CHANGE.fullmatch(finding.subject)):
            name, line, node_id = of.groups()
            if line != _UNQUOTED:
                found[int(node_id)][name] = None if line == _DEFAULT else line
    return dict(found)


def without_time(finding: Finding) -> Finding:
    """Return a finding without the time by which a secret is compared: for a file of known content."""
    return replace(finding, subject=_AT.sub("", finding.subject))


def _sentence(change: _Change, node_ids: Collection[int]) -> str:
    return f"{change.name} of {nodes(node_ids)} is {change.before} now, and {change.after} after the restart."


def _code_of(change: _Change) -> FindingCode:
    if decides_access(change.name):
        return FILE_CHANGES_ACCESS
    if change.name in _MEMBERSHIP:
        return FILE_CHANGES_MEMBERSHIP
    return FILE_CHANGES_DATA if change.name in _DATA and _can_lose(change) else FILE_NOT_READ


def _can_lose(change: _Change) -> bool:
    """A higher limit loses less. A value that is not a number is not compared."""
    if change.name == _UNCLEAN:  # false is also the default
        return change.after != _DEFAULT and not same_value(change.after, "false", ValueType.BOOLEAN)
    if change.name not in _LIMITS or not change.after.lstrip("-").isdecimal():
        return True
    if change.after == "-1":
        return False
    return not change.before.isdecimal() or int(change.after) < int(change.before)


def _is_newer(file: StartFile, started_at: float | None) -> bool:
    if file.changed_at is None or started_at is None:
        return False
    margin = _WRITES_IDENTITY_S if file.kind is StartFileKind.IDENTITY else _STARTS_WITHIN_S
    return file.changed_at > started_at + margin


def _file_changed_at(seen: SinceStart, node_id: int, name: str) -> float | None:
    """Return when server.properties, or a file from which the line of a setting takes its value, was changed; None if
    not since the start, or unknown, which has its own finding."""
    started_at = seen.started_at.get(node_id)
    paths = {path for setting, path in provider_files(seen.configs.get(node_id, {})) if setting == name}
    files = (
        file
        for file in seen.files.get(node_id, ())
        if not file.is_absent
        and (file.kind is StartFileKind.CONFIGURATION or (file.kind is StartFileKind.PROVIDED and file.path in paths))
    )
    return max((file.changed_at or 0.0 for file in files if _is_newer(file, started_at)), default=None)


def _files(restarted: Collection[int], seen: SinceStart, compared: Collection[int]) -> Iterator[Finding]:
    """Compare the times of files. Of server.properties, only where its lines show no difference or are unknown."""
    changed: defaultdict[tuple[StartFileKind, bool], dict[int, list[str]]] = defaultdict(dict)
    unknown: dict[int, list[str]] = {}
    removed: dict[int, list[str]] = {}
    for node_id in sorted(set(restarted) & seen.files.keys()):
        started_at = seen.started_at.get(node_id)
        for file in seen.files[node_id]:
            if file.changed_at is None or started_at is None:
                unknown.setdefault(node_id, []).append(file.path)
                continue
            if not _is_newer(file, started_at):
                continue
            if file.is_absent:
                removed.setdefault(node_id, []).append(file.path)
                continue
            is_configuration = file.kind is StartFileKind.CONFIGURATION
            if is_configuration and node_id in compared:
                continue
            is_unread = is_configuration and node_id not in seen.in_use
            changed[file.kind, is_unread].setdefault(node_id, []).append(file.path)
    for (kind, is_unread), by_node in changed.items():
        paths = sorted({path for found in by_node.values() for path in found})
        sentence = f"{few(paths)} of {nodes(by_node)} ({kind.value}) was changed after the process had started."
        if kind is StartFileKind.CONFIGURATION:
            sentence += (
                " The node does not report the values that it uses."
                if is_unread
                else " No value that can be compared differs; secrets and unknown settings cannot be compared."
            )
        yield FILE_CHANGED.found(
            f"{kind.value} of {nodes(by_node)}",
            f"{sentence} The restart brings it into effect.",
            severity=WARNING if is_unread or kind in _OF_THE_START else INFO,
        )
    by_files: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for node_id, paths in unknown.items():
        by_files[tuple(paths)].append(node_id)
    for of_files, node_ids in by_files.items():
        yield FILE_CHANGE_UNKNOWN.found(
            f"files of {nodes(node_ids)}",
            f"The tool cannot see when {few(of_files)} of {nodes(node_ids)} changed last.",
        )
    for node_id, paths in removed.items():
        yield FILE_CHANGE_UNKNOWN.found(
            f"removed files of node {node_id}",
            f"Node {node_id} reads {few(paths)} at its start, if it exists. It does not, and the folder above has "
            "changed since the process started: the process can have read it, and the next one does not.",
            "Check whether the file was removed. If the node needs it, restore it. Otherwise no action is needed.",
        )


def _changes(
    lines: Mapping[str, str], used: Mapping[str, Setting], changed_at: Callable[[str], float | None]
) -> Iterator[_Change]:
    """`changed_at`: when what a line of a setting says was changed; None: not since the start."""
    provided = {name for name, _ in provider_files(lines)}

    def after(name: str, line: str) -> str:
        """A secret is not shown; with the time, a later change of it is another finding."""
        if not (is_secret_access(name) or name in provided):
            return line
        at = changed_at(name)
        return _UNQUOTED if at is None else f"{_UNQUOTED} of {iso(at)}"

    for name, setting in used.items():
        line = lines.get(name, lines.get(_SYNONYMS.get(name, "")))
        if setting.source in _DYNAMIC:
            continue
        if setting.value == HIDDEN or (line is not None and is_reference(line)):
            if decides_access(name) and line is None:
                yield _Change(name, _shown(setting.value), _DEFAULT)
            elif line is not None and (decides_access(name) or name in _DATA | _MEMBERSHIP) and changed_at(name):
                yield _Change(name, _shown(setting.value), after(name, line))
        elif line is not None and not same_value(line, setting.value or "", setting.type):
            is_known = setting.value is not None or name in _DATA | _MEMBERSHIP or decides_access(name)
            yield _Change(name, _shown(setting.value), after(name, line) if is_known else _UNQUOTED)
        elif line is None and setting.source is ConfigSource.FILE:
            yield _Change(name, _shown(setting.value), _DEFAULT)
    for name, line in lines.items():  # Kafka lists those of a listener or an authorizer only where it has read a line
        if name not in used and decides_access(name) and line.strip():
            yield _Change(name, _shown(None), after(name, line))


def _shown(value: str | None) -> str:
    return "hidden" if value == HIDDEN else str(value or "empty")
