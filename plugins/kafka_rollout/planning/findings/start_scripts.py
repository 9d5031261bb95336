"""Findings about lines of start scripts that a switch of the release drops: what operators wrote into Kafka's scripts.

Such a line can do anything: raise a limit of the process, set a variable that the configuration or a library reads,
start another program. So the lines are compared, and none of them is understood: an approver decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafka_rollout.base.findings import BLOCKER, WARNING, Finding, FindingCode
from kafka_rollout.base.wording import few, few_quoted
from kafka_rollout.model.host_state import HostState
from kafka_rollout.model.jvm_options import NextOptions, ScriptLine
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.start_scripts import StartScripts

START_SCRIPT_EDITED = FindingCode(
    "START-SCRIPT-EDITED",
    (WARNING, BLOCKER),
    "A start script in the folder of the running release has lines that neither Kafka's own script nor that of the "
    "next release has. A blocker if a line sets a variable that the configuration reads (`${env:…}`).",
)


def edited_script_findings(
    scripts: StartScripts, node: NodeSpec, host: HostState, releases: Sequence[Release]
) -> Iterator[Finding]:
    """Yield the findings of one node. Without `releases`, those of a switch to Kafka's own scripts."""
    service = node.service
    if service is None or service.package is not None:
        return
    for release in (*releases,) or (None,):
        if release is not None and host.starts_installed(release):
            continue
        options = host.options.get(release, NextOptions())
        subject = f"node {node.node_id}" + ("" if release is None else f", release {release}")
        then = "another release" if release is None else f"Kafka {release}"
        found = [one for one in options.dropped if not scripts.has(one.text)]
        for needed in (True, False):
            lines = [one for one in found if bool(one.sets & host.environment_names) == needed]
            if lines:
                yield START_SCRIPT_EDITED.found(
                    f"{subject}, {'variables' if needed else 'other lines'} of start scripts",
                    f"The start scripts of node {node.node_id} on host {host.name} have lines that are not known as "
                    f"Kafka's own, and that {_where(options, then)}: {_shown(lines)}.{_needed(lines, host)}"
                    f"{_why_unknown(scripts, host)}",
                    f"Write what they do into the unit (`systemctl edit {service.unit}`: LimitNOFILE=, UMask=, "
                    "Environment=), then run `systemctl daemon-reload`, and remove the lines from the script. Or make "
                    f"the same change in the scripts of {then}. If the node does not need them, remove them.",
                    severity=BLOCKER if needed and release is not None else WARNING,
                    covers=map(str, lines),
                )
        if options.unread and not options.unclear:
            yield START_SCRIPT_EDITED.found(
                f"{subject}, unread start scripts",
                f"The SSH user cannot read {few(options.unread)} on host {host.name}, so it is unknown whether {then} "
                f"starts node {node.node_id} without lines that an operator wrote into these scripts.",
                "Let the SSH user read the scripts, then plan again.",
                covers=options.unread,
            )


def _where(options: NextOptions, then: str) -> str:
    unread = " of which the SSH user cannot read all" if options.unread else ""
    return f"those of {then}{',' if unread else ''}{unread}{',' if unread else ''} do not have"


def _shown(lines: Sequence[ScriptLine]) -> str:
    return few_quoted(map(str, lines))


def _why_unknown(scripts: StartScripts, host: HostState) -> str:
    running = host.installed
    if running is None or f"{running.major}.{running.minor}" in scripts.minor_releases:
        return ""
    return (
        f" The catalogue does not have the scripts of {running}, so lines of Kafka can be among them "
        "(`kafka-rollout-derive scripts` adds them)."
    )


def _needed(lines: Sequence[ScriptLine], host: HostState) -> str:
    names = sorted({name for one in lines for name in one.sets & host.environment_names})
    return f" The configuration reads {few(names)} from the environment." if names else ""
