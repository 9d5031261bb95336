"""What a scan of the coordinator logs reads and evaluates, as arguments of the Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_rollout.domain.model.releases import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """What to scan: a live cluster, or the directories `log_dirs`. Credentials only as the path of a file.

    `cluster` is the inventory's name, or what stands for it. `releases` empty: all of the catalogue. `live`: tell also
    which records are the newest of their key; `classes_only`: do not look into the records. `new_group_coordinator`:
    judge as brokers that are told to start it; a live cluster's brokers are asked whether they are.
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
        """The job's command line."""
        arguments = ["--cluster", self.cluster, "--json", str(self.json_file)]
        if self.bootstrap_servers:
            arguments += ["--bootstrap-servers", self.bootstrap_servers]
        if self.security_file:
            arguments += ["--security-file", str(self.security_file)]
        if self.parquet:
            arguments += ["--parquet", str(self.parquet)]
        several: tuple[tuple[str, Sequence[object]], ...] = (
            ("--log-dir", self.log_dirs),
            ("--topic", self.topics),
            ("--release", self.releases),
            ("--fail-on", self.fail_on),
        )
        for option, values in several:
            for value in values:
                arguments += [option, str(value)]
        flags = {
            "--live": self.live,
            "--classes-only": self.classes_only,
            "--new-group-coordinator": self.new_group_coordinator,
        }
        return [*arguments, *(option for option, wanted in flags.items() if wanted)]
