"""The request for a scan of coordinator logs, and the arguments of its Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_rollout.domain.model.releases import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """A scan of a live cluster or of the directories `log_dirs`. Credentials are passed only as the path of a file.

    `cluster`: its name in the inventory, or a label. `releases`: empty for all of the catalogue. `live`: also count the
    current records; `classes_only`: do not parse the records. `new_group_coordinator`: evaluate for brokers that enable
    it; the brokers of a live cluster are queried.
    """

    cluster: str
    json_file: Path
    bootstrap_servers: str = ""
    log_dirs: tuple[Path, ...] = ()
    security_file: Path | None = None
    parquet: Path | None = None
    topics: tuple[str, ...] = ()
    releases: tuple[Release, ...] = ()
    fail_on: tuple[Release, ...] = ()
    live: bool = False
    classes_only: bool = False
    new_group_coordinator: bool = False

    def arguments(self) -> list[str]:
        """Return the command line of the job."""
        options: tuple[tuple[str, Sequence[object]], ...] = (
            ("--cluster", (self.cluster,)),
            ("--json", (self.json_file,)),
            ("--bootstrap-servers", (self.bootstrap_servers,)),
            ("--security-file", (self.security_file,)),
            ("--parquet", (self.parquet,)),
            ("--log-dir", self.log_dirs),
            ("--topic", self.topics),
            ("--release", self.releases),
            ("--fail-on", self.fail_on),
        )
        arguments = [word for option, values in options for value in values if value for word in (option, str(value))]
        flags = {
            "--live": self.live,
            "--classes-only": self.classes_only,
            "--new-group-coordinator": self.new_group_coordinator,
        }
        return [*arguments, *(option for option, wanted in flags.items() if wanted)]
