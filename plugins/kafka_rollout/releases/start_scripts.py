"""Which lines of a start script are Kafka's own: the catalogue has digests of all lines of the scripts of its releases.

A line that the catalogue does not have is an operator's, or one of a release whose scripts were not read for it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

OWN_SCRIPTS = ("kafka-server-start.sh", "kafka-run-class.sh")
"""Names of the scripts that start a node, in `bin`."""
COMMANDS = frozenset(
    {
        *OWN_SCRIPTS,
        *(f"connect-{name}.sh" for name in ("distributed", "mirror-maker", "standalone")),
        *("kafka-acls.sh", "kafka-broker-api-versions.sh", "kafka-cluster.sh", "kafka-configs.sh"),
        *("kafka-console-consumer.sh", "kafka-console-producer.sh", "kafka-consumer-groups.sh"),
        *("kafka-consumer-perf-test.sh", "kafka-delegation-tokens.sh", "kafka-delete-records.sh"),
        *("kafka-dump-log.sh", "kafka-features.sh", "kafka-get-offsets.sh", "kafka-leader-election.sh"),
        *("kafka-log-dirs.sh", "kafka-metadata-quorum.sh", "kafka-metadata-shell.sh", "kafka-producer-perf-test.sh"),
        *("kafka-reassign-partitions.sh", "kafka-server-stop.sh", "kafka-storage.sh"),
        *("kafka-streams-application-reset.sh", "kafka-topics.sh", "kafka-transactions.sh"),
        *("kafka-verifiable-consumer.sh", "kafka-verifiable-producer.sh", "trogdor.sh"),
    }
)
"""Names of the files in `bin` that an archive of each release has. A site can give its own scripts similar names."""
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
