"""Settings of this project: the only reader of the environment. docs/settings.md is written from VARIABLES."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kafka_rollout.base.errors import UserError

_MOST = 100_000
_PATHS = {
    f"KAFKA_ROLLOUT_{name}"
    for name in ("CLUSTERS", "HOME", "DATABASE_PASSWORD_FILE", "CACHE", "CATALOGUE", "INCLUDE", "SSH_CONFIG")
}
_RELATIVE_SQLITE = re.compile(r"(sqlite(?:\+\w+)?:///)([^/].*)")
_DATA = Path(__file__).resolve().parents[2] / "data"  # only in a wheel: the build copies include/ there
_CHECKOUT = Path(__file__).resolve().parents[4] / "include"


class Variable(NamedTuple):
    """An environment variable for a reader, in Markdown."""

    meaning: str
    default: str


VARIABLES: Mapping[str, Variable] = {
    "KAFKA_ROLLOUT_CLUSTERS": Variable(
        "folder of the [inventories](inventory.md) (`*.yaml`)",
        "`include/clusters` of a checkout; `$KAFKA_ROLLOUT_HOME/clusters` of a wheel",
    ),
    "KAFKA_ROLLOUT_HOME": Variable("files of this machine: the SQLite database, private files", "`~/.kafka-rollout`"),
    "KAFKA_ROLLOUT_DATABASE": Variable(
        "URL of the [database](operations.md#the-database) of run histories, locks and scans, without a password",
        "SQLite in the home folder",
    ),
    "KAFKA_ROLLOUT_DATABASE_PASSWORD_FILE": Variable(
        "file with the password of the database, mode 0600", "none: libpq's own (`PGPASSFILE`)"
    ),
    "KAFKA_ROLLOUT_ARTIFACTS": Variable(
        "folder or object store URL (`s3://bucket/folder`) of reports and scan results; a folder also contains the "
        "journals of the test traffic, and the running releases that the trigger forms show",
        "the home folder",
    ),
    "KAFKA_ROLLOUT_CACHE": Variable("Kafka releases and metrics agents", "`~/.cache/kafka-rollout`"),
    "KAFKA_ROLLOUT_CATALOGUE": Variable(
        "releases that `kafka-rollout-derive add` added. Several Airflow workers need the same folder",
        "`$KAFKA_ROLLOUT_HOME/catalogue`",
    ),
    "KAFKA_ROLLOUT_PLUGINS": Variable(
        "jars of [plugins](upgrade.md#plugins), in the class path of Kafka's classes on this machine and of local "
        "processes",
        "`$KAFKA_ROLLOUT_HOME/plugins`",
    ),
    "KAFKA_ROLLOUT_INCLUDE": Variable(
        "catalogue, message definitions, metrics agents and templates",
        "`include` of a checkout; the package's own data of a wheel",
    ),
    "KAFKA_ROLLOUT_SSH_CONFIG": Variable(
        "SSH configuration for [nodes on hosts](hosts.md) on the command line", "`~/.ssh/config`"
    ),
    "KAFKA_ROLLOUT_SPARK_MASTER": Variable(
        "[Spark master](operations.md#airflow-and-spark-on-several-hosts) of scans on the command line, and of an "
        "incremental scan that is too long to be read without Spark: `local[N]` or `spark://host:port`",
        "`local[2]`",
    ),
    "KAFKA_ROLLOUT_SPARK_FROM_MIB": Variable(
        "size of coordinator logs in MiB from which a scan uses Spark; smaller ones are read in the task itself; "
        "`0`: always",
        "`8`",
    ),
    "KAFKA_ROLLOUT_REHEARSE": Variable(
        "`0`: this machine makes no copies of clusters, and runs are not [rehearsed](rehearsal.md)", "`1`"
    ),
    "KAFKA_ROLLOUT_REHEARSE_GIB": Variable("most GiB that a [rehearsal](rehearsal.md) copies from hosts", "`10`"),
    "KAFKA_ROLLOUT_REHEARSE_MINUTES": Variable("most minutes in which a rehearsal copies from hosts", "`30`"),
    "KAFKA_ROLLOUT_LIVE_STATE": Variable(
        "`0`: the [page of a cluster](console.md#kafka-now) does not query clusters from Airflow's API server", "`1`"
    ),
    "KAFKA_ROLLOUT_PORTS": Variable(
        "ports of local clusters and their Airflow: of demos and [rehearsals](rehearsal.md). If two demos run at the "
        "same time, give each a separate range: another process can take the ports of a stopped node",
        "`20000-32767`",
    ),
    "KAFKA_ROLLOUT_DEBUG": Variable("`1`: the command line prints the stack trace of an error", "only sentences"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`include` holds the catalogue (releases/) and the message definitions (schemas/)."""

    clusters: Path
    home: Path
    cache: Path
    include: Path
    spark_master: str = "local[2]"
    spark_from_mib: int = 8
    database: str = ""
    database_password_file: Path | None = None
    artifacts: str = ""
    ssh_config: Path = Path("~/.ssh/config")
    catalogue: Path | None = None
    """Folder of the releases that were added on this machine; None: below the home folder."""
    plugins: Path | None = None
    rehearse: bool = True
    rehearse_gib: int = 10
    rehearse_minutes: int = 30
    live_state: bool = True

    @property
    def spark_from_bytes(self) -> int:
        """The size of coordinator logs from which a scan uses Spark."""
        return self.spark_from_mib << 20

    @property
    def added_releases(self) -> Path:
        """The folder into which `kafka-rollout-derive add` writes: releases/ and schemas/, as in include/."""
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
        return self.home if not folder or "://" in folder else Path(folder)

    @classmethod
    def from_environment(cls) -> Settings:
        def path(variable: str, default: Path) -> Path:
            return Path(_read(variable)) if _read(variable) else default.expanduser().resolve()

        home = path("KAFKA_ROLLOUT_HOME", Path("~/.kafka-rollout"))
        installed = _DATA.is_dir()
        password_file = _read("KAFKA_ROLLOUT_DATABASE_PASSWORD_FILE")
        return cls(
            clusters=path("KAFKA_ROLLOUT_CLUSTERS", (home if installed else _CHECKOUT) / "clusters"),
            home=home,
            cache=path("KAFKA_ROLLOUT_CACHE", Path("~/.cache/kafka-rollout")),
            include=path("KAFKA_ROLLOUT_INCLUDE", _DATA if installed else _CHECKOUT),
            spark_master=_read("KAFKA_ROLLOUT_SPARK_MASTER") or "local[2]",
            spark_from_mib=_number("KAFKA_ROLLOUT_SPARK_FROM_MIB", 8, least=0),
            database=_read("KAFKA_ROLLOUT_DATABASE"),
            database_password_file=Path(password_file) if password_file else None,
            artifacts=_read("KAFKA_ROLLOUT_ARTIFACTS"),
            catalogue=path("KAFKA_ROLLOUT_CATALOGUE", home / "catalogue"),
            plugins=path("KAFKA_ROLLOUT_PLUGINS", home / "plugins"),
            ssh_config=path("KAFKA_ROLLOUT_SSH_CONFIG", Path("~/.ssh/config")),
            rehearse=_read("KAFKA_ROLLOUT_REHEARSE") != "0",
            rehearse_gib=_number("KAFKA_ROLLOUT_REHEARSE_GIB", 10),
            rehearse_minutes=_number("KAFKA_ROLLOUT_REHEARSE_MINUTES", 30),
            live_state=_read("KAFKA_ROLLOUT_LIVE_STATE") != "0",
        )


def _number(variable: str, default: int, *, least: int = 1) -> int:
    text = _read(variable) or str(default)
    if not text.isdecimal() or not least <= int(text) <= _MOST:
        raise UserError(f"{variable} is {text}.", remedy=f"Set it to a whole number from {least} to {_MOST:,}.")
    return int(text)


def read_port_range() -> str:
    """Return the range of ports as it is set; empty if it is not set."""
    return _read("KAFKA_ROLLOUT_PORTS")


def is_debug() -> bool:
    return _read("KAFKA_ROLLOUT_DEBUG") == "1"


def read_variables(but: Collection[str] = ()) -> dict[str, str]:
    """Return the variables of VARIABLES that are set, for a child process, except those named `but`.

    Their paths are absolute: a child runs in another folder.
    """
    return {name: text for name in VARIABLES if name not in but and (text := _read(name))}


def _read(name: str) -> str:
    """Return a variable of VARIABLES as it is set, paths absolute; empty if it is not set."""
    text = os.environ.get(name) or ""
    if text and (name in _PATHS or (name == "KAFKA_ROLLOUT_ARTIFACTS" and "://" not in text)):
        return str(Path(text).expanduser().resolve())
    relative = _RELATIVE_SQLITE.fullmatch(text) if name == "KAFKA_ROLLOUT_DATABASE" else None
    return f"{relative[1]}{Path(relative[2]).resolve()}" if relative else text
