"""Findings about what the next start of a node writes, and the user of its unit cannot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from kafka_rollout.base.findings import BLOCKER, INFO, WARNING, Finding, FindingCode
from kafka_rollout.base.wording import few
from kafka_rollout.model.file_access import FileAccess
from kafka_rollout.model.host_state import HostState, StartWrite
from kafka_rollout.model.topology import NodeSpec, ServiceSpec
from kafka_rollout.planning.findings.start_paths import START_FILE_FORBIDDEN, START_PATH_UNKNOWN
from kafka_rollout.releases.facts import Release

CODEC_NOT_LOADABLE = FindingCode(
    "CODEC-NOT-LOADABLE",
    (BLOCKER, WARNING),
    "The next process of a broker cannot load the libraries of zstd or snappy: java.io.tmpdir (default: /tmp), where "
    "it unpacks them, is mounted with noexec, does not exist, or is closed to its user. A warning if this is unknown.",
)
_SHOWN = 8


def start_write_findings(node: NodeSpec, host: HostState, releases: Sequence[Release]) -> Iterator[Finding]:
    """Yield the findings of one node."""
    service = node.service
    refused: defaultdict[tuple[Release, FileAccess], list[StartWrite]] = defaultdict(list)
    unknown: defaultdict[tuple[Release, str, str], list[StartWrite]] = defaultdict(list)
    for write in host.writes:
        if write.release not in releases:
            continue
        if write.codecs:
            continue
        if write.access.refused:
            refused[write.release, write.access].append(write)
        elif write.access.unknown:
            unknown[write.release, write.access.user, write.access.unknown].append(write)
    if service is None:
        return
    yield from _codec_findings(node, host, releases)
    for (release, access), writes in refused.items():
        is_needed = any(write.is_needed for write in writes)
        yield START_FILE_FORBIDDEN.found(
            f"node {node.node_id}, release {release}, writes, {access.place}",
            f"Node {node.node_id} writes {_names(writes)} at its start on Kafka {release}, and user {access.user} of "
            f"{host.unit} on host {host.name} {access.refused}. "
            + ("The node would not start, or would write no log." if is_needed else "The node would run and not log."),
            _remedy(service, host, release, access, writes),
            severity=BLOCKER if is_needed else WARNING,
        )
    for (release, user, why), writes in unknown.items():
        moves = any(write.moves for write in writes)
        yield START_PATH_UNKNOWN.found(
            f"node {node.node_id}, release {release}, writes, {why}",
            f"The SSH user cannot see whether user {user} of {host.unit} on host {host.name} can write "
            f"{_names(writes)} as the start of node {node.node_id} on Kafka {release} does: {why}.",
            f"Check as root that {user} can: `sudo -u {user} test -w FOLDER`.",
            severity=WARNING if moves else INFO,
        )


def _codec_findings(node: NodeSpec, host: HostState, releases: Sequence[Release]) -> Iterator[Finding]:
    """Yield one for each folder with its reason, whatever the releases are."""
    found: dict[tuple[str, FileAccess, tuple[str, ...]], None] = {}
    for write in host.writes:
        if write.codecs and write.release in releases and (write.access.refused or write.access.unknown):
            found[write.path, write.access, write.codecs] = None
    for path, access, codecs in found:
        names = " and ".join(codecs)
        does = f"user {access.user} of {host.unit} on host {host.name}"
        fact = f"{does} {access.refused}" if access.refused else f"it is unknown whether {does} can: {access.unknown}"
        yield CODEC_NOT_LOADABLE.found(
            f"node {node.node_id}, {path}",
            f"Node {node.node_id} unpacks the libraries of {names} to {path} at their first use, and loads them there: "
            f"{fact}. The process that runs can have done this earlier. After its next start, also after a rollback, "
            f"the node would run and refuse each batch with {' or '.join(codecs)}.",
            "Choose a folder on a file system without noexec, such as /var/lib/kafka-tmp. Run `install -d -m 0700 -o "
            f"{access.user} FOLDER` as root, and add `-Djava.io.tmpdir=FOLDER` to KAFKA_OPTS of the unit (`systemctl "
            f"edit {host.unit}`, then `systemctl daemon-reload`). The run restarts the node with it. Then plan again.",
            severity=BLOCKER if access.refused else WARNING,
            covers=(path, access.refused or access.unknown),
        )


def _names(writes: Sequence[StartWrite]) -> str:
    return few(list(dict.fromkeys(write.path for write in writes)), limit=_SHOWN)


def _remedy(
    service: ServiceSpec, host: HostState, release: Release, access: FileAccess, writes: Sequence[StartWrite]
) -> str:
    places = few(list(dict.fromkeys(write.place for write in writes)), limit=_SHOWN)
    edit = f"the unit (`systemctl edit {service.unit}`, then `systemctl daemon-reload`)"
    logs = [write for write in writes if write.is_log]
    if "read-only" in access.refused:
        name = "Name a folder that no run switches (LOG_DIR for logs), and write" if logs else "Write"
        return f"{name} `ReadWritePaths=` with the folder into {edit}. Then plan again."
    if not all(write.moves for write in writes):
        return f"Let {access.user} write {places} on the host (`chown`, or `install -d` for a folder), then plan again."
    if not logs:
        return (
            f"Name a path in {edit} that no run switches and that {access.user} can write, or leave the output to the "
            "journal. Then plan again."
        )
    folder = f"/var/log/{service.unit.removesuffix('.service')}"
    make = min((write.place for write in logs), key=len)
    log_file = " Correct log_file in the inventory, and restart the node." if service.log_file else ""
    there = (
        ""
        if release in host.brought
        else f" Or run `install -d -o {access.user} {make}` there, and for each release of the run."
    )
    return (
        f"On the host, run `install -d -o {access.user} {folder}` as root, and write `Environment=LOG_DIR={folder}` "
        f"into {edit}; no restart is needed before the run.{log_file}{there} Then plan again."
    )
