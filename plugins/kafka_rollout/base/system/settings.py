"""Settings of this project: the only reader of the environment.

| variable                 | content                                                   | default                  |
|--------------------------|-----------------------------------------------------------|--------------------------|
| KAFKA_ROLLOUT_CLUSTERS   | folder of the inventories (*.yaml)                        | see below                |
| KAFKA_ROLLOUT_HOME       | this machine's files: database, private/, locks/          | ~/.kafka-rollout         |
| KAFKA_ROLLOUT_DATABASE   | URL of the run history, leases and scans (no password)    | SQLite in the home       |
| KAFKA_ROLLOUT_DATABASE_PASSWORD_FILE | file with the password, mode 0600             | libpq's own (PGPASSFILE) |
| KAFKA_ROLLOUT_ARTIFACTS  | folder or object store URL of reports and scan results    | the home                 |
| KAFKA_ROLLOUT_CACHE      | releases of Kafka and agents, shared by all               | ~/.cache/kafka-rollout   |
| KAFKA_ROLLOUT_SPARK_MASTER | master of the scans: local[N], spark://host:port        | local[2]                 |
| KAFKA_ROLLOUT_PORTS      | ports for local clusters and their Airflow                | 20000-32767              |
| KAFKA_ROLLOUT_REHEARSE   | 0: this machine makes no copies of clusters               | it does                  |
| KAFKA_ROLLOUT_DEBUG      | 1: the command line shows the trace of an error           | sentences only           |
| KAFKA_ROLLOUT_CATALOGUE  | releases that `catalogue add` added, next to the project's | catalogue/ in the home  |
| KAFKA_ROLLOUT_INCLUDE    | catalogue, message definitions, metrics agents, templates | see below                |

A wheel has include/ as data of this package; its inventories are in $KAFKA_ROLLOUT_HOME/clusters. In a checkout both
are below include/.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_DATA = Path(__file__).resolve().parents[2] / "data"  # only in a wheel: the build copies include/ there
_CHECKOUT = Path(__file__).resolve().parents[4] / "include"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`include` holds the catalogue (releases/) and the message definitions (schemas/).

    `catalogue`: folder of the releases that were added on this machine; None: below the home folder.
    """

    clusters: Path
    home: Path
    cache: Path
    include: Path
    spark_master: str = "local[2]"
    database: str = ""
    database_password_file: Path | None = None
    artifacts: str = ""
    ssh_config: Path = Path("~/.ssh/config")
    catalogue: Path | None = None
    rehearse: bool = True

    @property
    def added_releases(self) -> Path:
        """The folder into which `catalogue add` writes: releases/ and schemas/, as in include/."""
        return self.catalogue or self.home / "catalogue"

    @property
    def catalogue_folders(self) -> tuple[Path, Path]:
        """The folders with the facts of releases; for a release in both, the first one counts."""
        return self.include, self.added_releases

    @property
    def database_url(self) -> str:
        """The database's URL: a SQLite file in the home folder by default."""
        return self.database or f"sqlite:///{self.home / 'kafka-rollout.db'}"

    @property
    def artifacts_url(self) -> str:
        """A folder or a URL: the home folder by default."""
        return self.artifacts or str(self.home)

    @property
    def shared_folder(self) -> Path:
        """The folder of the artifacts, which all workers share; the home folder if they are in an object store."""
        folder = self.artifacts.removeprefix("file://")
        return self.home if not folder or "://" in folder else Path(folder).expanduser()

    @classmethod
    def from_environment(cls) -> Settings:
        def path(variable: str, default: Path) -> Path:
            return Path(os.environ.get(variable) or default).expanduser().resolve()

        home = path("KAFKA_ROLLOUT_HOME", Path("~/.kafka-rollout"))
        installed = _DATA.is_dir()
        password_file = os.environ.get("KAFKA_ROLLOUT_DATABASE_PASSWORD_FILE")
        return cls(
            clusters=path("KAFKA_ROLLOUT_CLUSTERS", (home if installed else _CHECKOUT) / "clusters"),
            home=home,
            cache=path("KAFKA_ROLLOUT_CACHE", Path("~/.cache/kafka-rollout")),
            include=path("KAFKA_ROLLOUT_INCLUDE", _DATA if installed else _CHECKOUT),
            spark_master=os.environ.get("KAFKA_ROLLOUT_SPARK_MASTER") or "local[2]",
            database=os.environ.get("KAFKA_ROLLOUT_DATABASE") or "",
            database_password_file=Path(password_file).expanduser() if password_file else None,
            artifacts=os.environ.get("KAFKA_ROLLOUT_ARTIFACTS") or "",
            catalogue=path("KAFKA_ROLLOUT_CATALOGUE", home / "catalogue"),
            ssh_config=path("KAFKA_ROLLOUT_SSH_CONFIG", Path("~/.ssh/config")),
            rehearse=os.environ.get("KAFKA_ROLLOUT_REHEARSE") != "0",
        )


def read_port_range() -> str | None:
    return os.environ.get("KAFKA_ROLLOUT_PORTS")


def is_debug() -> bool:
    return os.environ.get("KAFKA_ROLLOUT_DEBUG") == "1"
