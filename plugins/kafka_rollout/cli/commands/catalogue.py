"""Releases that the tool supports. Their facts are derived from the released jars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import few
from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson
from kafka_rollout.planning.findings.advisories import review_findings
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import METADATA_VERSION, Release, ReleaseFacts

app = typer.Typer(
    help="Releases that the tool supports. Their facts are derived from the released jars.", no_args_is_help=True
)

Names = Annotated[list[str], typer.Argument(metavar="RELEASE...", help="Kafka releases, for example 4.4.1.")]


@app.command("list")
def list_releases(as_json: AsJson = False) -> None:
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
    others = [f"{name} {one.supported}" for name, one in sorted(facts.features.items()) if name != METADATA_VERSION]
    return [f"{METADATA_VERSION} {_levels(facts)}", *others]


def _levels(facts: ReleaseFacts) -> str:
    level = facts.features[METADATA_VERSION].supported
    return f"{level} ({facts.metadata_version_name(level.min)} to {facts.metadata_version_name(level.max)})"


@app.command("add")
def add(releases: Names, as_json: AsJson = False) -> None:
    """Add releases: download the jars from Maven Central, derive the facts from them, verify them and write them.

    The facts are written to $KAFKA_ROLLOUT_CATALOGUE (default: catalogue/ below $KAFKA_ROLLOUT_HOME). If the command
    fails, it writes nothing. A fact that cannot be derived becomes a gap of the release: a plan that needs it has a
    blocker.
    """
    from kafka_rollout.derivation.adding import add_release

    gaps = {}
    for release in [Release.parse(text) for text in releases]:
        facts = add_release(Settings.from_environment(), release, _progress(release))
        built = facts.built_at or "an unknown day"
        show.out.print(f"{release}: added, {facts.coordinator_class}, metadata.version {_levels(facts)}, built {built}")
        for finding in review_findings(get_catalogue(), [release]):
            show.say(f"{finding.sentence} {finding.remedy}")
        gaps[str(release)] = facts.gaps
        for fact, reason in facts.gaps.items():
            show.out.print(show.as_text(f"{release}: gap: {fact}: {reason}"), soft_wrap=True)
    if as_json:
        show.print_json({"added": list(gaps), "gaps": gaps})


@app.command("check")
def check(releases: Names, as_json: AsJson = False) -> None:
    """Derive the facts of releases of the catalogue again from their jars, and compare them with the catalogue."""
    from kafka_rollout.derivation.adding import check_release

    differing = []
    found = {}
    for release in [Release.parse(text) for text in releases]:
        differences = check_release(Settings.from_environment(), release, _progress(release))
        differing += differences
        found[str(release)] = differences
        show.say(f"{release}: {few(differences) if differences else 'as derived from its jars'}")
    if as_json:
        show.print_json({"ok": not differing, "differences": found})
    if differing:
        raise RefusedError(
            f"The catalogue differs from what the jars show: {few(differing)}.",
            remedy="Restore these files, or derive the releases again with `kafka-rollout catalogue add`.",
        )


def _progress(release: Release) -> Callable[[str], None]:
    return lambda text: show.err.print(f"Kafka {release}: {text}", highlight=False)
