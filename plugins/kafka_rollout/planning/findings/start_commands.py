"""Findings about commands of Kafka that the unit of a node runs before each start: the next release runs them.

Many units format the log directories with `kafka-storage.sh format --ignore-formatted`, which reads its options also if
there is nothing to format (StorageTool).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kafka_rollout.base.findings import BLOCKER, WARNING, Finding, FindingCode
from kafka_rollout.model.host_state import HostState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import Catalogue, Release

START_COMMAND = FindingCode(
    "START-COMMAND",
    (BLOCKER, WARNING),
    "The unit runs a command of Kafka before each start (ExecStartPre=). A blocker if the next release refuses its "
    "options.",
)
_COMMAND = re.compile(r"([^\s'\";]*bin/)(kafka-[a-z-]+)(\.sh)?(?=\s|$|['\";])([^;&|]*)")
# Archives have the commands of Kafka as `.sh`, packages without it in these folders.
_OF_PACKAGES, _OF_SITE = ("/usr/bin/", "/bin/"), "/usr/local/"
_FORMAT_SINCE = {
    **dict.fromkeys(("--standalone", "-s", "--initial-controllers", "-I"), Release(3, 9, 0)),
    **dict.fromkeys(("--no-initial-controllers", "-N"), Release(3, 9, 0)),
    **dict.fromkeys(("--feature", "-f"), Release(3, 8, 0)),
    **dict.fromkeys(("--add-scram", "-S"), Release(3, 5, 0)),
}
"""Option of `kafka-storage.sh format` → the first release that has it."""
_VERSION = re.compile(r"(?:--release-version|-r)[=\s]+['\"]?([\w.-]+)")
_SHORT = re.compile(r"(\d+\.\d+)(?:\.\d+)?")
_PROGRAMS_OF_STARTS = ("kafka-server-start", "kafka-run-class")


def start_command_findings(
    catalogue: Catalogue, node: NodeSpec, host: HostState, releases: Sequence[Release]
) -> Iterator[Finding]:
    """Yield the findings of one node."""
    for release in releases:
        for command in () if host.starts_installed(release) else host.start_commands:
            for folder, program, suffix, options in _COMMAND.findall(command):
                is_own = suffix or folder in _OF_PACKAGES or folder.startswith(("$", f"{host.symlink}/"))
                if program in _PROGRAMS_OF_STARTS or folder.startswith(_OF_SITE) or not is_own:
                    continue
                is_format = program == "kafka-storage" and options.split()[:1] == ["format"]
                why = _why_refused(catalogue, release, options) if is_format else ""
                if is_format and not why and not re.search(r"\s(--feature|-f|--add-scram|-S)\b", options):
                    continue  # no release refuses the other options for directories that have a format
                yield _found(node, host, release, program, why)


def _found(node: NodeSpec, host: HostState, release: Release, program: str, why: str) -> Finding:
    result = f", and {why}. systemd would not start the node." if why else ", and this command can fail."
    return START_COMMAND.found(
        f"node {node.node_id}, release {release}, {program}",
        f"{host.unit} on host {host.name} runs {program} of Kafka {release} before the start of node {node.node_id}"
        f"{result}",
        f"Remove the option or the command from ExecStartPre= (`systemctl edit {host.unit}`): log directories with a "
        "format do not need it. Run `systemctl daemon-reload`, then plan again."
        if why
        else f"Run the command of Kafka {release} on a host that is not part of the cluster.",
        severity=BLOCKER if why else WARNING,
    )


def _why_refused(catalogue: Catalogue, release: Release, options: str) -> str:
    words = {word.partition("=")[0] for word in options.split()}
    if later := sorted(word for word in words & _FORMAT_SINCE.keys() if release < _FORMAT_SINCE[word]):
        return f"Kafka {release} does not have the option {later[0]}"
    if (found := _VERSION.search(options)) is None:
        return ""
    names = [one.name for one in catalogue.get(release).metadata_versions]
    short = _SHORT.fullmatch(found[1])
    is_known = any(name.startswith(f"{short[1]}-IV") for name in names) if short else found[1] in names
    return "" if is_known else f"Kafka {release} does not have the release version {found[1]}"
