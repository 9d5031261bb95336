"""`kafka-rollout-derive`: adds releases to the catalogue of kafka-rollout, or compares the catalogue with the jars."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kafka_rollout.base.errors import RefusedError, RolloutError
from kafka_rollout.base.outside_text import escape_invisible
from kafka_rollout.base.system.settings import Settings, is_debug
from kafka_rollout.base.wording import few
from kafka_rollout.planning.findings.advisories import review_findings
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout_derivation.adding import add_release, check_release
from kafka_rollout_derivation.start_scripts import add_scripts

_ADD = """Download the jars of releases from Maven Central, derive the facts from them, verify them and write them to
$KAFKA_ROLLOUT_CATALOGUE (default: catalogue/ below $KAFKA_ROLLOUT_HOME). If the command fails, it writes nothing. A
fact that cannot be derived becomes a gap of the release: a plan that needs it has a blocker."""
_CHECK = "Derive the facts of releases of the catalogue again from their jars, and compare them with the catalogue."
_SCRIPTS = """Add the lines of Kafka's own start scripts to the catalogue, as digests. A plan then knows which lines of
start scripts on a host are not an operator's. Each folder is an unpacked archive of Kafka, such as kafka_2.13-4.3.1."""
_LIMIT = 10_000  # characters of a line


def main() -> None:
    """Entry point. Prints one sentence on standard error for an error, and exits with the code of its class."""
    sys.exit(run_main(sys.argv[1:]))


def run_main(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code, as `kafka-rollout` has them."""
    given = _parser().parse_args(arguments)
    try:
        result = given.run(given, Settings.from_environment())
    except RolloutError as error:
        if is_debug():
            raise
        _print(f"{error.sentence} {error.remedy}", sys.stderr)
        return error.exit_code
    if given.json:
        print(json.dumps(result, indent=2))
    if result.get("differences"):
        different = [name for names in result["differences"].values() for name in names]
        _print(
            f"The catalogue differs from what the jars show: {few(different)}. Restore these files, or derive the "
            "releases again with `kafka-rollout-derive add`.",
            sys.stderr,
        )
        return RefusedError.exit_code
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="kafka-rollout-derive", description=__doc__.partition(": ")[2])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (("add", _add, _ADD), ("check", _check, _CHECK), ("scripts", _scripts, _SCRIPTS)):
        command = commands.add_parser(name, help=text.partition(". ")[0], description=text)
        if run is _scripts:
            command.add_argument("folders", nargs="+", metavar="FOLDER", type=Path, help="Unpacked archives of Kafka.")
        else:
            command.add_argument("releases", nargs="+", metavar="RELEASE", help="Kafka releases, for example 4.4.1.")
        command.add_argument("--json", action="store_true", help="Print the result as JSON on standard output.")
        command.set_defaults(run=run)
    return parser


def _scripts(given: Namespace, settings: Settings) -> dict[str, Any]:
    scripts = add_scripts(settings.added_releases, given.folders)
    _say(f"{len(scripts.digests)} lines of the scripts of {', '.join(scripts.minor_releases)}")
    return {"minor_releases": scripts.minor_releases}


def _add(given: Namespace, settings: Settings) -> dict[str, Any]:
    gaps = {}
    for release in map(Release.parse, given.releases):
        facts = add_release(settings, release, _progress(release))
        level = facts.features[METADATA_VERSION].supported
        names = f"{facts.metadata_version_name(level.min)} to {facts.metadata_version_name(level.max)}"
        built = facts.built_at or "an unknown day"
        _say(f"{release}: added, {facts.coordinator_class}, metadata.version {level} ({names}), built {built}")
        for finding in review_findings(get_catalogue(), [release]):
            _say(f"{finding.sentence} {finding.remedy}")
        gaps[str(release)] = dict(facts.gaps)
        for fact, reason in facts.gaps.items():
            _say(f"{release}: gap: {fact}: {reason}")
    return {"added": list(gaps), "gaps": gaps}


def _check(given: Namespace, settings: Settings) -> dict[str, Any]:
    different = {}
    for release in map(Release.parse, given.releases):
        names = check_release(settings, release, _progress(release))
        _say(f"{release}: {few(names) if names else 'as derived from its jars'}")
        if names:
            different[str(release)] = names
    return {"ok": not different, "differences": different}


def _progress(release: Release) -> Callable[[str], None]:
    return lambda text: _say(f"Kafka {release}: {text}")


def _say(text: str) -> None:
    _print(text, sys.stderr)


def _print(text: str, to: Any) -> None:
    print(escape_invisible(text, limit=_LIMIT), file=to)


if __name__ == "__main__":
    main()
