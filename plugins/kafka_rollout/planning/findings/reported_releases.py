"""Findings about nodes whose version is evaluated by another release: vendors' builds, unknown patch releases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kafka_rollout.base.findings import BLOCKER, INFO, WARNING, Check, Finding, FindingCode
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import Catalogue
from kafka_rollout.releases.reported import ReportedRelease, identify_release

RELEASE_MAPPED = FindingCode(
    "RELEASE-MAPPED", (INFO, WARNING), "A node runs the build of a vendor. A warning if only its minor line is known."
)
RELEASE_BY_NEIGHBOURS = FindingCode(
    "RELEASE-BY-NEIGHBOURS",
    (WARNING, BLOCKER),
    "A node runs a patch release that is not in the catalogue. A blocker if the nearest releases differ.",
)
REPORTED_CHECK = Check(
    "reported-versions",
    "Versions that the nodes report",
    "inventory.md#builds-of-vendors",
    (RELEASE_MAPPED, RELEASE_BY_NEIGHBOURS),
)


def reported_release_findings(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState) -> Iterator[Finding]:
    """Yield the findings of each version that the nodes report and that is not a release of the catalogue."""
    by_text: defaultdict[str, list[int]] = defaultdict(list)
    for node_id, node in sorted(state.nodes.items()):
        if node.version:
            by_text[node.version].append(node_id)
    for text, ids in sorted(by_text.items()):
        found = identify_release(text, catalogue, cluster.apache_releases)
        who = f"{nodes(ids).capitalize()} {'reports' if len(ids) == 1 else 'report'} version {text}"
        if found.release is not None and found.release in catalogue:
            yield from _mapped(who, found)
            yield from _by_neighbours(who, found)


def _mapped(who: str, found: ReportedRelease) -> Iterator[Finding]:
    if not found.vendor and not found.overridden:
        return
    basis = (
        f"the inventory maps it to {found.apache}" if found.overridden else f"{found.vendor}, based on {found.apache}"
    )
    exact = found.overridden or not found.neighbours
    differing = ""
    if not exact and found.differing:
        differing = f" The patch releases of {found.apache} differ in: {few(found.differing)}."
    yield RELEASE_MAPPED.found(
        f"release {found.text}",
        f"{who}: {basis}. It is evaluated as Apache Kafka {found.release}, and a rollback installs this release."
        f"{differing}",
        "No action needed." if exact else _override(found),
        severity=INFO if exact else WARNING,
    )


def _by_neighbours(who: str, found: ReportedRelease) -> Iterator[Finding]:
    if not found.neighbours or "." not in found.apache[found.apache.find(".") + 1 :]:
        return  # a minor line has its own finding
    names = " and ".join(map(str, found.neighbours))
    sentence = f"{who}. Kafka {found.apache} is not in the catalogue. It is evaluated as {found.release}, by {names}."
    remedy = f"Add it with `kafka-rollout catalogue add {found.apache}`."
    subject = f"release {found.text}"
    if found.differing:
        differing = f"{sentence} These releases differ in: {few(found.differing)}."
        yield RELEASE_BY_NEIGHBOURS.found(subject, differing, remedy, severity=BLOCKER)
    else:
        yield RELEASE_BY_NEIGHBOURS.found(subject, sentence, remedy, severity=WARNING)


def _override(found: ReportedRelease) -> str:
    return (
        f"Find the Apache patch release of this build, and set apache_releases in the inventory: "
        f'{{"{found.text}": "{found.neighbours[-1]}"}}, for example.'
    )
