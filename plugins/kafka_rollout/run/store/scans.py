"""The stored scans of a cluster with their alerts, and its scheduled checks.

The result, its page and its tables are documents below `scans/<cluster>/`. A scan is part of the history if it has a
row. The row is committed after the documents are written, and removed before they are removed.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Row, Select, delete, insert, select

from kafka_rollout.base.errors import FatalError, RolloutError, UserError
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.coordinator_logs.comparison import ScanSummary
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.run.store.artifacts import Artifacts, artifact_key
from kafka_rollout.run.store.database import Database
from kafka_rollout.run.store.history import sha256
from kafka_rollout.run.store.tables import checks, scans

KEPT = 60  # scans and checks of a cluster: two months of daily ones

_RESULT, _PAGE, _TABLES = "scan.json", "report.html", "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptScan:
    """One scan of the history; `name` is its time in UTC, such as 20261121T040000.000Z."""

    cluster: str
    name: str
    folder: str
    sha256: str
    """Of its result."""
    documents: Artifacts = field(repr=False, compare=False)

    @property
    def location(self) -> str:
        """Return the path or URL of the folder with its documents."""
        return self.documents.location(self.key(""))

    @property
    def page(self) -> str:
        """Return the path or URL of its page."""
        return f"{self.location}/{_PAGE}"

    def read_page(self) -> str:
        return self.documents.read(self.key(_PAGE)).decode()

    def load(self) -> ScanResult:
        """Return the result. Raises FatalError if it is damaged or missing, or was changed after it was stored."""
        content = self.documents.read(self.key(_RESULT))
        if sha256(content) != self.sha256:
            raise FatalError(
                f"Scan {self.name} of {self.cluster} in {self.location} was changed after it was stored: its hash does "
                "not match the scan history.",
                remedy="Find out who can write to KAFKA_ROLLOUT_ARTIFACTS, then scan again. Other scans can be used.",
            )
        try:
            return from_json(ScanResult, json.loads(content))
        except ValueError as error:
            raise FatalError(
                f"Scan {self.name} of {self.cluster} in {self.location} cannot be read ({type(error).__name__}).",
                remedy="Move its folder to another place. The other scans can still be used.",
            ) from None

    def key(self, name: str) -> str:
        """Return the key of a document; for an empty name, the key of the folder."""
        folder = artifact_key("scans", self.cluster, self.folder)
        return f"{folder}/{name}" if name else folder


class SqlScanHistory:
    """The scans of one cluster. `cluster`: its name in the inventory, or ScanResult.cluster."""

    def __init__(self, database: Database, documents: Artifacts, cluster: str) -> None:
        self.cluster = cluster
        self._database = database
        self._documents = documents

    def scans(self) -> tuple[KeptScan, ...]:
        """Return all stored scans, newest first."""
        return tuple(self._kept(row) for row in self._database.read(self._newest_first()))

    def newest(self, at_most: int) -> tuple[ScanResult, ...]:
        """Return the newest scans that can be read. A damaged scan is left out, so that the others can be used."""
        results = []
        for scan in self.scans()[:at_most]:
            with suppress(FatalError):
                results.append(scan.load())
        return tuple(results)

    def get(self, name: str) -> KeptScan:
        """Return a scan by its name, by unique first characters of its name, or `newest`.

        Raises UserError if there is no such scan, or more than one.
        """
        kept = self.scans()
        found = kept[:1] if name == "newest" else [scan for scan in kept if scan.name.startswith(name)]
        if len(found) != 1:
            if not kept:
                raise UserError(
                    f"Cluster {self.cluster} has no stored scan yet.",
                    remedy=f"Run kafka-rollout scan --cluster {self.cluster}.",
                )
            which = "no scan" if not found else f"{len(found)} scans"
            known = ", ".join(scan.name for scan in kept[:5]) or "none"
            raise UserError(f"Cluster {self.cluster} has {which} {name}.", remedy=f"The newest scans are: {known}.")
        return found[0]

    def keep(
        self, result: ScanResult, page: str, *, parquet: Path | None = None, at_most: int = KEPT, run_id: str = ""
    ) -> KeptScan:
        """Add a scan, and remove the oldest scans if there are more than `at_most`.

        `parquet`: folder with its tables, which is copied. `run_id`: id of the scheduled run; empty for a command.
        """
        moment = round(result.scanned_at * 1000)
        folder = f"{_name(moment)}-{secrets.token_hex(4)}"
        content = json.dumps(to_json(result)).encode()
        kept = KeptScan(cluster=self.cluster, name="", folder=folder, sha256=sha256(content), documents=self._documents)
        self._documents.write(kept.key(_RESULT), content)
        self._documents.write(kept.key(_PAGE), page.encode())
        if parquet is not None:
            self._documents.write_folder(kept.key(_TABLES), parquet)
        with self._database.serialized() as connection:
            taken = set(connection.execute(select(scans.c.name).where(scans.c.cluster == self.cluster)).scalars())
            while _name(moment) in taken:
                moment += 1  # two scans of one millisecond get different names
            values = {
                "name": _name(moment),
                "folder": folder,
                "run_id": run_id,
                "summary": json.dumps({**_summary(result), "sha256": kept.sha256}),
            }
            kept_at = self._database.now(connection)
            connection.execute(insert(scans).values(cluster=self.cluster, kept_at=kept_at, **values))
        for scan in self.scans()[at_most:]:
            with self._database.begin() as connection:
                connection.execute(delete(scans).where(scans.c.cluster == self.cluster, scans.c.name == scan.name))
            with suppress(RolloutError):  # the row is removed already; remaining documents only need space
                self._documents.remove_folder(scan.key(""))
        return replace(kept, name=_name(moment))

    def scheduled(self) -> tuple[ScanSummary, ...]:
        """Return the scans of scheduled runs, oldest first."""
        rows = self._database.read(self._newest_first(scans.c.run_id != ""))
        return tuple(sorted(map(_scanned, rows), key=lambda scan: scan.at))

    def newest_summary(self, *, is_scheduled: bool = False) -> ScanSummary | None:
        """Return the newest scan without its records, also one of a command unless `is_scheduled`; None without one."""
        rows = self._database.read(self._newest_first(*([scans.c.run_id != ""] if is_scheduled else [])).limit(1))
        return _scanned(rows[0]) if rows else None

    def summaries(self) -> tuple[ScanSummary, ...]:
        """Return all stored scans without their records, oldest first."""
        return tuple(_scanned(row) for row in reversed(self._database.read(self._newest_first())))

    def page_of_run(self, run_id: str) -> str | None:
        """Return the report of a run's newest scan; None if there is none, or if it was removed from the history."""
        rows = self._database.read(self._newest_first(scans.c.run_id == run_id).limit(1))
        try:
            return self._kept(rows[0]).read_page() if rows else None
        except FatalError:
            return None

    def _newest_first(self, *which: Any) -> Select[Any]:
        return select(scans).where(scans.c.cluster == self.cluster, *which).order_by(scans.c.name.desc())

    def _kept(self, row: Row[Any]) -> KeptScan:
        return KeptScan(
            cluster=self.cluster,
            name=row.name,
            folder=row.folder,
            sha256=str(json.loads(row.summary)["sha256"]),
            documents=self._documents,
        )


def _scanned(row: Row[Any]) -> ScanSummary:
    return from_json(
        ScanSummary, {**json.loads(row.summary), "at": row.kept_at, "run_id": row.run_id, "scan": row.name}
    )


def scanned_clusters(database: Database) -> tuple[str, ...]:
    """Return the names of the clusters that have stored scans, sorted."""
    return tuple(sorted(row.cluster for row in database.read(select(scans.c.cluster).distinct())))


def _name(moment_ms: int) -> str:
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(moment_ms // 1000))}.{moment_ms % 1000:03d}Z"


def _summary(result: ScanResult) -> dict[str, Any]:
    return {
        "scanned_at": result.scanned_at,
        "records": result.records,
        "log_bytes": result.log_bytes,
        "partitions": len(result.logs),
        "topics": sorted({log.topic for log in result.logs}),
        "verdicts": {str(release): str(verdict) for release, verdict in result.standing.items()},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCheck:
    """One check."""

    run_id: str
    at: float
    """Epoch seconds when it was stored."""
    document: Mapping[str, Any]
    """As `CheckReport.document` returns it."""


class SqlCheckHistory:
    """The scheduled checks of one cluster."""

    def __init__(self, database: Database, cluster: str) -> None:
        self.cluster = cluster
        self._database = database

    def keep(self, run_id: str, document: Mapping[str, Any], page: str, *, at_most: int = KEPT) -> None:
        """Store the check of a run in place of an earlier attempt. Remove the oldest checks above `at_most`."""
        with self._database.serialized() as connection:
            connection.execute(delete(checks).where(self._is_mine, checks.c.run_id == run_id))
            values = {"target": str(document["target"]), "body": json.dumps(document), "page": page}
            now = self._database.now(connection)
            connection.execute(insert(checks).values(cluster=self.cluster, run_id=run_id, at=now, **values))
            old = connection.execute(self._newest_first(checks.c.run_id).offset(at_most)).scalars().all()
            connection.execute(delete(checks).where(self._is_mine, checks.c.run_id.in_(old)))

    def newest(self, at_most: int = KEPT) -> tuple[KeptCheck, ...]:
        """Return the stored checks, newest first."""
        rows = self._database.read(self._newest_first(checks.c.run_id, checks.c.at, checks.c.body).limit(at_most))
        return tuple(KeptCheck(run_id=row.run_id, at=row.at, document=json.loads(row.body)) for row in rows)

    def newest_id(self) -> tuple[str, float] | None:
        """Return run id and time of the newest check; None without one."""
        rows = self._database.read(self._newest_first(checks.c.run_id, checks.c.at).limit(1))
        return (rows[0].run_id, rows[0].at) if rows else None

    def page_of_run(self, run_id: str) -> str | None:
        """Return the page of a run's check; None if there is none."""
        rows = self._database.read(select(checks.c.page).where(self._is_mine, checks.c.run_id == run_id))
        return rows[0].page if rows else None

    def _newest_first(self, *columns: Any) -> Select[Any]:
        return select(*columns).where(self._is_mine).order_by(checks.c.at.desc(), checks.c.run_id.desc())

    @property
    def _is_mine(self) -> Any:
        return checks.c.cluster == self.cluster
