"""A private PostgreSQL server for tests: Debian's binaries, a folder and a Unix socket of its own, no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka_rollout.run.store.database import Database

_USER = "nobody"  # initdb and the server refuse to run as root
_WAIT_S = "120"


def postgres_binaries() -> Path:
    """Debian's newest server; raises FileNotFoundError with the way to install it."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    if not found:
        raise FileNotFoundError("There is no PostgreSQL server. Run `make setup-postgres`.")
    return found[-1].parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Postgres:
    """A running server; its superuser is `rollout`, and every user of the machine may connect.

    `address`: of its TCP port 5432 too, if it has one.
    """

    folder: Path
    address: str = ""

    def url(self, database: str) -> str:
        return f"postgresql://rollout@{self.address}/{database}{'' if self.address else f'?host={self.folder}'}"

    def create_database(self) -> str:
        """A new empty database; its URL."""
        name = f"d{uuid.uuid4().hex}"
        self.sql(f"CREATE DATABASE {name}", "postgres")
        return self.url(name)

    def create_upgraded_database(self) -> str:
        """A new database with this version's tables; its URL."""
        url = self.create_database()
        Database(url).upgrade()
        return url

    def sql(self, statement: str, database: str) -> str:
        command = [str(postgres_binaries() / "psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", statement]
        options = {**os.environ, "PGHOST": str(self.folder), "PGUSER": "rollout", "PGDATABASE": database}
        return subprocess.run(command, env=options, check=True, capture_output=True, text=True).stdout.strip()

    def control(self, *words: str) -> None:
        """pg_ctl: start, stop, restart."""
        # Durability is what the kill tests are about: fsync stays on.
        settings = (
            f"-c listen_addresses='{self.address}' -c unix_socket_directories={self.folder} -c max_connections=200"
        )
        command = [str(postgres_binaries() / "pg_ctl"), "-D", str(self.folder / "data"), "-w", "-t", _WAIT_S]
        command += ["-l", str(self.folder / "log"), "-o", settings, *words]
        subprocess.run(_unprivileged(command), check=True, stdout=subprocess.DEVNULL, cwd="/")


@contextmanager
def running_postgres(address: str = "") -> Iterator[Postgres]:
    """A server that is stopped and removed at the end. `address`: for the hosts of a test bed."""
    folder = Path(tempfile.mkdtemp(prefix="kafka-rollout-postgres-", dir="/tmp"))
    server = Postgres(folder=folder, address=address)
    folder.chmod(0o755)
    if os.geteuid() == 0:
        shutil.chown(folder, _USER)
    initdb = [str(postgres_binaries() / "initdb"), "-D", str(folder / "data"), "-U", "rollout", "-A", "trust"]
    try:
        subprocess.run(_unprivileged([*initdb, "-E", "UTF8", "--no-locale"]), check=True, capture_output=True, cwd="/")
        if address:
            with (folder / "data" / "pg_hba.conf").open("a") as rules:
                rules.write("host all all samenet trust\n")
        server.control("start")
        try:
            yield server
        finally:
            server.control("-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged(command: list[str]) -> list[str]:
    if os.geteuid() != 0:
        return command
    return ["setpriv", "--reuid", _USER, "--regid", "nogroup", "--clear-groups", *command]
