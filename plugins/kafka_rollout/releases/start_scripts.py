"""Which lines of a start script are Kafka's own: the catalogue has digests of all lines of the scripts of its releases.

A line that the catalogue does not have is an operator's, or one of a release whose scripts were not read for it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

OWN_SCRIPTS = ("kafka-server-start.sh", "kafka-run-class.sh")
"""Names of the scripts that start a node, in `bin`."""
_SCALA = re.compile(r"(?<=\bSCALA_VERSION=)[\d.]+")  # with each release another one


@dataclass(frozen=True, slots=True)
class StartScripts:
    """The lines of Kafka's own start scripts."""

    digests: frozenset[str] = frozenset()
    minor_releases: frozenset[str] = frozenset()
    """Those whose scripts were read, such as `4.3`. A patch release has their lines."""

    def has(self, line: str) -> bool:
        """Return whether a script of one of the releases has the line."""
        return digest_of(line) in self.digests


def digest_of(line: str) -> str:
    """Return the digest of a line without its comment. White space counts as one blank."""
    words = " ".join(_SCALA.sub("", line).split())
    return hashlib.sha256(words.encode()).hexdigest()[:16]
