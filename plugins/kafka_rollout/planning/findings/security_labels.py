"""Findings about SELinux labels of a release that differ from those of the running one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kafka_rollout.base.findings import BLOCKER, WARNING, Finding, FindingCode
from kafka_rollout.base.wording import few
from kafka_rollout.model.host_state import HostState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import Release

SECURITY_LABEL_DIFFERS = FindingCode(
    "SECURITY-LABEL-DIFFERS",
    (WARNING, BLOCKER),
    "SELinux enforces its rules on a host, and files of the next release have another type than those of the running "
    "one. A blocker for types of home and temporary folders, whose programs systemd must not execute.",
)
_MOVED = re.compile(r"(?:\w+_home|user_home_dir|\w*tmp|unlabeled)_t")


def security_label_findings(node: NodeSpec, host: HostState, releases: Sequence[Release]) -> Iterator[Finding]:
    """Yield the findings of one node."""
    now = host.labels.get(None, {})
    for release in releases:
        then = host.labels.get(release, {})
        changed = {file: (now[file], kind) for file, kind in then.items() if file in now and now[file] != kind}
        if changed:
            folder = host.folders[release]
            is_moved = any(_MOVED.fullmatch(kind) for _, kind in changed.values())
            shown = few([f"{file} has {kind} (now {before})" for file, (before, kind) in changed.items()])
            outcome = f" systemd does not execute such files, so node {node.node_id} would not start."
            yield SECURITY_LABEL_DIFFERS.found(
                f"node {node.node_id}, release {release}",
                f"SELinux enforces its rules on host {host.name}, and files in {folder} have other types than those "
                f"of the running release: {shown}.{outcome if is_moved else ''}",
                f"Run `restorecon -RFv {folder}` as root, and compare the types with `ls -Z`. Then plan again.",
                severity=BLOCKER if is_moved else WARNING,
            )
