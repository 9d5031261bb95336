"""The Apache release by which a reported version is evaluated: builds of vendors, and patch releases without facts.

A node reports its version as text (metric app-info). It can be the build of a vendor (`7.9.1-ccs`), or an Apache patch
release that the catalogue does not have. Rules and the inventory map builds to Apache releases. A patch release without
facts is evaluated by its neighbours of the same minor line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from kafka_rollout.base.errors import UserError
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue, Release, VendorRule, VersionRange

_OF_ONE_RELEASE = {"release", "built_at", "gaps"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedRelease:
    """A version as a node reports it (`text`), and the release of the catalogue by which it is evaluated."""

    text: str
    release: Release | None
    """None if no rule covers the text; a release without facts if the catalogue has none of its minor line."""
    apache: str = ""
    """The Apache release or minor line (`3.9`) that it is based on."""
    vendor: str = ""
    """Of the rule, "" without one."""
    source: str = ""
    """Of the rule, "" without one."""
    overridden: bool = False
    """By the inventory."""
    neighbours: tuple[Release, ...] = ()
    """The releases by which it is evaluated, if its own facts are not known."""
    differing: tuple[str, ...] = ()
    """Facts that the neighbours disagree on."""


def identify_release(text: str, catalogue: Catalogue, overrides: Mapping[str, str]) -> ReportedRelease:
    """Return the release by which a reported version is evaluated. `overrides`: version → Apache release."""
    if text in overrides:
        return _of_release(text, Release.parse(overrides[text]), catalogue, overridden=True)
    if (plain := _parse(text)) is not None:
        return _of_release(text, plain, catalogue)
    for rule in catalogue.vendors:
        if match := re.fullmatch(rule.pattern, text):
            return _by_rule(text, match[1], rule, catalogue)
    return ReportedRelease(text=text, release=None)


def levels_text(supported: VersionRange) -> str:
    """Return the key of apache_releases for nodes that report no version."""
    return f"{METADATA_VERSION} {supported}"


def identify_by_levels(
    supported: Mapping[str, VersionRange], catalogue: Catalogue, overrides: Mapping[str, str]
) -> ReportedRelease:
    """Return the release by which a node without a reported version is evaluated, by the levels that it supports.

    `supported`: of ApiVersions. Each minor line supports other levels of metadata.version. The oldest patch release
    counts: it supports the fewest records. `overrides` has `levels_text` → Apache release.
    """
    levels = supported.get(METADATA_VERSION)
    if levels is None:
        return ReportedRelease(text="", release=None)
    text = levels_text(levels)
    if text in overrides:
        return identify_release(text, catalogue, overrides)
    line = tuple(one for one in catalogue if catalogue.get(one).features[METADATA_VERSION].supported == levels)
    if not line:
        return ReportedRelease(text=text, release=None)
    return _of_line(ReportedRelease(text=text, release=line[0], apache=_minor(line[0])), line, catalogue)


def _by_rule(text: str, base: str, rule: VendorRule, catalogue: Catalogue) -> ReportedRelease:
    if not rule.minors:
        return _of_release(text, Release.parse(base), catalogue, rule.vendor, rule.source)
    minor = rule.minors.get(base)
    line = tuple(release for release in catalogue if _minor(release) == minor)
    found = ReportedRelease(text=text, release=None, vendor=rule.vendor, source=rule.source)
    if minor is None or not line:
        return found
    # The oldest patch release: it supports the fewest records.
    return _of_line(replace(found, release=line[0], apache=minor), line, catalogue)


def _of_release(
    text: str, apache: Release, catalogue: Catalogue, vendor: str = "", source: str = "", *, overridden: bool = False
) -> ReportedRelease:
    found = ReportedRelease(
        text=text, release=apache, apache=str(apache), vendor=vendor, source=source, overridden=overridden
    )
    if apache in catalogue:
        return found
    line = [one for one in catalogue if _minor(one) == _minor(apache)]
    below, above = [one for one in line if one < apache], [one for one in line if one > apache]
    neighbours = (*below[-1:], *above[:1])
    return _of_line(replace(found, release=neighbours[0]), neighbours, catalogue) if neighbours else found


def _of_line(found: ReportedRelease, line: tuple[Release, ...], catalogue: Catalogue) -> ReportedRelease:
    """Return the release with its neighbours, and the names of the facts that they disagree on."""
    facts = [catalogue.get(release) for release in line]
    names = [field.name for field in fields(facts[0]) if field.name not in _OF_ONE_RELEASE]
    differing = (name for name in names if any(getattr(one, name) != getattr(facts[0], name) for one in facts))
    return replace(found, neighbours=line, differing=tuple(differing))


def _minor(release: Release) -> str:
    return f"{release.major}.{release.minor}"


def _parse(text: str) -> Release | None:
    try:
        return Release.parse(text)
    except UserError:
        return None
