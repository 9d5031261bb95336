"""Findings about a changed logging configuration in the folder of a release, which the switch of the release replaces.

Without KAFKA_LOG4J_OPTS the start script reads config/log4j.properties, from 4.0 on config/log4j2.yaml.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from kafka_rollout.base.findings import BLOCKER, WARNING, Finding, FindingCode
from kafka_rollout.base.wording import few
from kafka_rollout.model.host_state import HostState
from kafka_rollout.model.logging_files import LoggingFile
from kafka_rollout.model.node_log import hide_credentials
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import Release

_SHOWN = 5
LOG_CONFIG_REPLACED = FindingCode(
    "LOG-CONFIG-REPLACED",
    (WARNING, BLOCKER),
    "The switch of the release replaces a logging configuration that was changed in the folder of the running release. "
    "A blocker if log_file of the inventory is a file that only this configuration writes.",
)
_FILE = re.compile(r"\b(?:File|fileName)\s*[:=]\s*[\"']?([^\"'\s]+)")
_PATTERN = re.compile(r"[:=]\s*[\"']?([^\"'=]*%m[^\"']*)")
_LAYOUT = re.compile(r"\b\w*Layout\w*(?=\s*:?\s*$)")
_LINE = re.compile(r"((?:-\s+)?[\w.\"']+\s*[:=]\s*)(.*)")
_SAFE = re.compile(
    r"(?:\b(?:file|filename|filepattern|datepattern|conversionpattern|pattern|level|ref|append|type|maxfilesize|size)"
    r"[\"']?|log4j\.(?:root)?logger\S*|\.appenders?\.\w+)\s*[:=]\s*$",
    re.IGNORECASE,
)
_LOG_FOLDER = "-Dkafka.logs.dir="
_REFERENCE = re.compile(r"\$\{(?:sys:)?kafka\.logs\.dir\}")
_OF_SCRIPT = re.compile(r"/bin/\.\.(?=/|$)")
# Kafka's own configuration, in both libraries.
_OWN_FILES = frozenset(
    f"{name}.log"
    for name in ("server", "state-change", "kafka-request", "log-cleaner", "controller", "kafka-authorizer")
)
_OWN_PATTERN = "[%d] %p %m (%c)%n"


def logging_file_findings(node: NodeSpec, host: HostState, releases: Sequence[Release]) -> Iterator[Finding]:
    """Yield the findings of one node. Without `releases`, those of a switch to Kafka's own configuration."""
    service = node.service
    if service is None:
        return
    folder = next((one for one in host.facts.arguments if one.startswith(_LOG_FOLDER)), "").removeprefix(_LOG_FOLDER)
    for release in (*releases,) or (None,):
        files = host.logging.get(release)
        if files is None or (files.then is not None and files.then.lines == files.now.lines):
            continue
        now, then = files.now, files.then
        subject = f"node {node.node_id}" + ("" if release is None else f", release {release}")
        place = "Kafka's own" if then is None else then.path
        fact = (
            f"Node {node.node_id} on host {host.name} logs as {_path(now.path)} says, in the folder of the running "
            f"release. After the switch its start script reads {place if then is None else _path(place)}"
        )
        remedy = (
            f"Copy {_path(now.path)} to a folder that no run switches, in the form of the library of each release, and "
            "name it in KAFKA_LOG4J_OPTS of the unit. Or change the file in the folder of the next release too."
        )
        written = {_path(one) for one in _files(now, folder)} - {_path(one) for one in _files(then, folder)}
        if release is not None and service.log_file is not None and _path(service.log_file) in written:
            yield LOG_CONFIG_REPLACED.found(
                f"{subject}, log_file",
                f"{fact}, which does not write {service.log_file}. The gates read this file.",
                f"{remedy} Or set log_file of the inventory to a file that both write.",
                severity=BLOCKER,
            )
        elif lost := [*sorted(written), *_lost_lines(now, then)]:
            shown = few(list(dict.fromkeys(map(_shown, lost))), limit=_SHOWN)
            yield LOG_CONFIG_REPLACED.found(f"{subject}, logging", f"{fact}, which does not have: {shown}.", remedy)


def _shown(line: str) -> str:
    """Return a line without its value, unless it says what is logged where: an appender can have logins and keys."""
    match = _LINE.match(line)
    if match is None or _SAFE.search(match[1]):
        return hide_credentials(line)
    return f"{match[1]}[hidden]" if match[2] else line


def _lost_lines(now: LoggingFile, then: LoggingFile | None) -> list[str]:
    """Return the lines, or for two libraries the layouts, that the other file does not have."""
    if then is not None and then.path.rpartition(".")[2] == now.path.rpartition(".")[2]:
        return [line for line in now.lines if line not in then.lines]
    return [*sorted(_patterns(now) - _patterns(then)), *sorted(_layouts(now) - _layouts(then))]


def _files(file: LoggingFile | None, folder: str) -> set[str]:
    names = {f"{folder}/{name}" for name in _OWN_FILES}
    if file is not None:
        names = {_REFERENCE.sub(lambda _: folder, name) for line in file.lines for name in _FILE.findall(line)}
    return {name for name in names if name.startswith("/")}


def _patterns(file: LoggingFile | None) -> set[str]:
    if file is None:
        return {_OWN_PATTERN}
    return {pattern.strip() for line in file.lines for pattern in _PATTERN.findall(line)}


def _layouts(file: LoggingFile | None) -> set[str]:
    found = {name for line in (file.lines if file is not None else ()) for name in _LAYOUT.findall(line)}
    return found | {"PatternLayout"}


def _path(path: str) -> str:
    return posixpath.normpath(_OF_SCRIPT.sub("", path))
