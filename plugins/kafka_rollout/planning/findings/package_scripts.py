"""Findings about scripts of packages that can close what a node uses to the user of its unit, after its stop."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_rollout.base.findings import WARNING, Finding, FindingCode
from kafka_rollout.base.wording import few_quoted
from kafka_rollout.model.host_state import HostState
from kafka_rollout.model.node_log import hide_credentials
from kafka_rollout.model.topology import NodeSpec

PACKAGE_CHANGES_ACCESS = FindingCode(
    "PACKAGE-CHANGES-ACCESS",
    WARNING,
    "A script of a package changes the owner or the mode of a path that a node uses, after its stop, and its unit does "
    "not run as the new owner. Or the scripts of a package are unknown.",
)


def package_script_findings(node: NodeSpec, host: HostState) -> Iterator[Finding]:
    """Yield the findings of one node."""
    subject, closing = f"node {node.node_id}", host.closing_lines
    if closing.lines:
        shown = [hide_credentials(one) for one in closing.lines]
        yield PACKAGE_CHANGES_ACCESS.found(
            subject,
            f"{host.unit} on host {host.name} runs as user {closing.user}, and the packages of Kafka have lines that "
            f"can close paths of node {node.node_id} to it: {few_quoted(shown)}. An "
            "installation runs them after the stop, and so does a rollback. The node does not start if they do.",
            f"Check each line. If one takes a path from {closing.user}, let the unit run as the owner that the line "
            "sets (User=), or use a folder that no package names. Otherwise no action is needed: the approval of the "
            "plan accepts the lines.",
            covers=shown,
        )
    if closing.unread:
        yield PACKAGE_CHANGES_ACCESS.found(
            f"{subject}, unread scripts",
            f"Host {host.name} does not show the scripts of {' and of '.join(closing.unread)}. They run as root after "
            f"the stop, and can close paths of node {node.node_id} to user {closing.user} of {host.unit}.",
            "Read them (`dpkg-deb --info PACKAGE.deb postinst`, `rpm -qp --scripts PACKAGE.rpm`), and look for chown "
            "and chmod of the folders of the node.",
            covers=closing.unread,
        )
