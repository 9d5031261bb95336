"""The scans of a cluster, kept under $KAFKA_ROLLOUT_HOME/scans/<cluster>/<time>.

| file        | what                                       |
|-------------|--------------------------------------------|
| scan.json   | the result (ScanResult)                    |
| report.html | its page, with the trend up to it          |
| parquet/    | classes and findings as tables, if written |

A scan is put there whole or not at all, and taken away whole: a folder with a scan's time is complete.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kafka_rollout.adapters.system.files import original_name, safe_name, sync_folder, write_whole
from kafka_rollout.domain.coordinator_logs.scan import ScanResult
from kafka_rollout.domain.model.errors import FatalError, UserError

KEPT = 60  # scans of a cluster: two months of daily ones

_RESULT, _PAGE, _PARQUET = "scan.json", "report.html", "parquet"
_NAME = re.compile(r"\d{8}T\d{6}\.\d{3}Z")
_DRAFT = "."
_ABANDONED_S = 86_400.0  # a draft this old belongs to nobody any more


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptScan:
    """One scan of the history; `name` is its time in UTC, such as 20261121T040000.000Z."""

    cluster: str
    name: str
    folder: Path

    @property
    def page(self) -> Path:
        return self.folder / _PAGE

    @property
    def json_file(self) -> Path:
        return self.folder / _RESULT

    def load(self) -> ScanResult:
        try:
            return ScanResult.from_dict(json.loads(self.json_file.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise FatalError(
                f"Scan {self.name} of {self.cluster} in {self.json_file} cannot be read ({type(error).__name__}).",
                remedy="Move its folder away; the other scans stay.",
            ) from None


class ScanHistory:
    """The scans of one cluster. `name` is the inventory's, or what stands for it (ScanResult.cluster)."""

    def __init__(self, home: Path, cluster: str) -> None:
        self.cluster = cluster
        self.folder = home / "scans" / safe_name(cluster)

    def scans(self) -> tuple[KeptScan, ...]:
        """All that are kept, newest first."""
        names = (path.name for path in self.folder.iterdir()) if self.folder.is_dir() else ()
        kept = sorted((name for name in names if _NAME.fullmatch(name)), reverse=True)
        return tuple(KeptScan(cluster=self.cluster, name=name, folder=self.folder / name) for name in kept)

    def newest(self, at_most: int) -> tuple[ScanResult, ...]:
        """The newest scans that can be read: a damaged one must not keep the next from being shown and kept."""
        results = []
        for scan in self.scans()[:at_most]:
            with suppress(FatalError):
                results.append(scan.load())
        return tuple(results)

    def get(self, name: str) -> KeptScan:
        """The scan of that name, of a beginning of it that only one has, or `newest`; raises UserError."""
        scans = self.scans()
        found = scans[:1] if name == "newest" else [scan for scan in scans if scan.name.startswith(name)]
        if len(found) != 1:
            which = "no scan" if not found else f"{len(found)} scans"
            known = ", ".join(scan.name for scan in scans[:5]) or "none"
            raise UserError(f"Cluster {self.cluster} has {which} {name}.", remedy=f"The newest are: {known}.")
        return found[0]

    def keep(self, result: ScanResult, page: str, *, parquet: Path | None = None, at_most: int = KEPT) -> KeptScan:
        """Put a scan there; the oldest beyond `at_most` go. `parquet`: a folder with its tables, which is copied."""
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=self.folder))
        try:
            write_whole(draft / _RESULT, json.dumps(result.to_dict()).encode())
            write_whole(draft / _PAGE, page.encode())
            if parquet is not None:
                shutil.copytree(parquet, draft / _PARQUET)
            draft.chmod(0o755)  # mkdtemp's own is 0700
            name = self._publish(draft, result.scanned_at)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        self._clear(at_most)
        return KeptScan(cluster=self.cluster, name=name, folder=self.folder / name)

    def _publish(self, draft: Path, at: float) -> str:
        """Two scans of one millisecond get different names: a rename never replaces a folder that holds something."""
        moment = round(at * 1000)
        while True:
            name = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(moment // 1000))}.{moment % 1000:03d}Z"
            try:
                draft.rename(self.folder / name)
            except OSError:
                if not (self.folder / name).exists():
                    raise
                moment += 1
            else:
                sync_folder(self.folder)
                return name

    def _clear(self, at_most: int) -> None:
        for scan in self.scans()[at_most:]:
            gone = self.folder / f"{_DRAFT}{scan.name}"
            try:
                scan.folder.rename(gone)
            except OSError:  # another scan that ended now was faster
                continue
            shutil.rmtree(gone, ignore_errors=True)
        for path in self.folder.glob(f"{_DRAFT}*"):
            try:
                abandoned = time.time() - path.stat().st_mtime > _ABANDONED_S
            except OSError:
                continue
            if abandoned:
                shutil.rmtree(path, ignore_errors=True)


def scanned_clusters(home: Path) -> tuple[str, ...]:
    """Clusters that have a history, by name."""
    folder = home / "scans"
    names = sorted(original_name(path.name) for path in folder.iterdir()) if folder.is_dir() else []
    return tuple(name for name in names if ScanHistory(home, name).scans())
