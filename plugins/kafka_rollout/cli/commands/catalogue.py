"""Releases that the tool supports."""

from __future__ import annotations

from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import METADATA_VERSION, ReleaseFacts


def catalogue(as_json: AsJson = False) -> None:
    """List the supported releases: coordinator class, metadata.version, Java, features."""
    known = get_catalogue()
    if as_json:
        show.print_json({str(r): known.get(r) for r in known})
        return
    rows: list[tuple[object, ...]] = []
    for release in known:
        facts = known.get(release)
        java = "unknown" if facts.java_minimum is None else f"{facts.java_minimum}+"
        first, *others = _features(facts)
        rows.append((release, facts.coordinator_class.value, java, first))
        rows += [("", "", "", feature) for feature in others]
    show.print_table(("Release", "KIP-915 class", "Java", "Features"), rows)
    for release in known:
        for fact, reason in known.get(release).gaps.items():
            show.say(f"{release}: gap: {fact}: {reason}")


def _features(facts: ReleaseFacts) -> list[str]:
    """The features with their levels, metadata.version first. One fits into a line of 80 columns."""
    level = facts.features[METADATA_VERSION].supported
    names = f"{facts.metadata_version_name(level.min)} to {facts.metadata_version_name(level.max)}"
    others = [f"{name} {one.supported}" for name, one in sorted(facts.features.items()) if name != METADATA_VERSION]
    return [f"{METADATA_VERSION} {level} ({names})", *others]
