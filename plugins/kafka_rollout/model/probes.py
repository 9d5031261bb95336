"""Negative probes: what the classes of a release must refuse, asked with the configuration of a node."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ProbeOutcome(StrEnum):
    REFUSED = "refused"
    ACCEPTED = "accepted"
    UNKNOWN = "unknown"  # the classes could not be asked, or also refused what is right


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One wrong credential at a listener of a node."""

    listener: str
    mechanism: str
    what: str
    """A noun phrase, such as `a wrong password`."""
    outcome: ProbeOutcome
    reason: str = ""
    """Why the outcome is unknown, a sentence."""
    is_own: bool = False
    """The listener has an own callback handler, which is not a class of Kafka, so that it was not asked."""
