"""Kafka's releases and the metrics agents on this machine: fetched once, checked against the lock, shared by all runs.

    python -m kafka_rollout.releases.jars.cache 3.9.1 4.3.1 agents

Layout below the cache: `kafka/<release>-<lock>/libs/*.jar` and `agents/agents-<lock>/libs/*.jar`; <lock> are the first
digits of the lock's own SHA-256, so that checkouts with different locks share one cache. A folder appears whole, by one
rename, or not at all, so a killed fetch leaves nothing that looks finished; the next fetch keeps the jars that are
whole. Every process verifies the SHA-256 of the jars when it first uses them: about 45 ms of processor time a release.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, TransientError, UserError
from kafka_rollout.base.system.files import open_regular
from kafka_rollout.base.system.own_folders import new_own_folder, remove_own_folder
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.releases.documents.catalogue import release_files
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.maven import Module, Repository, open_repository

LOCKS = "releases/jars"
_ATTEMPTS = 3
_DIGESTS: dict[tuple[int, ...], str] = {}  # SHA-256 (hex) by device, inode, size, mtime and ctime in ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """Jars for `-javaagent:`."""

    jmx_exporter: Path
    jolokia: Path


@dataclass(frozen=True, slots=True)
class ReleaseCache:
    """Jars by release."""

    cache: Path
    """Downloaded jars."""
    include: Path
    """The project's folder with the locks (releases/jars/*.json)."""
    added: Path | None = None
    """The folder of the releases added on this machine, with their locks."""
    plugins: Path | None = None
    """The folder with the operator's jars of plugins, which are not locked."""

    @classmethod
    def from_settings(cls, settings: Settings) -> ReleaseCache:
        return cls(settings.cache, *settings.catalogue_folders, plugins=settings.plugins)

    @property
    def catalogue_folders(self) -> tuple[Path, ...]:
        return (self.include,) if self.added is None else (self.include, self.added)

    def libs(self, release: Release) -> Path:
        """Folder whose jars are a complete broker of the release; missing jars are fetched first.

        Raises UserError for a release without a lock, FatalError for a jar that is not the locked one.
        """
        return self._folder("kafka", str(release), f"Kafka {release}")

    def artifacts(self, release: Release) -> frozenset[str]:
        """Return the names of the artifacts of a broker's jars, such as `kafka-clients`; empty without a lock."""
        if release not in self.known():
            return frozenset()
        return frozenset(Module.parse(text).artifact for text in self._lock(str(release)))

    def agents(self) -> Agents:
        """The Prometheus JMX exporter and Jolokia, as Java agents."""
        folder = self._folder("agents", "agents", "metrics agents")
        return Agents(
            jmx_exporter=next(folder.glob("jmx_prometheus_javaagent-*.jar")),
            jolokia=next(folder.glob("jolokia-agent-jvm-*.jar")),
        )

    def jars(self, name: str) -> Path:
        """Return the folder with the jars of another lock."""
        return self._folder(name.partition("-")[0], name, name)

    def keep(self, name: str, draft: Path, locked: Mapping[str, str]) -> Path:
        """Move a folder with the jars of a new lock (`draft`/libs, on the cache's file system) into the cache."""
        home = self._home("kafka", name, locked)
        with exclusive(home.parent / f".{home.name}.lock", f"Kafka {name}"):
            if not (home / "libs").is_dir():
                draft.chmod(0o755)
                draft.rename(home)
        return home / "libs"

    def _home(self, kind: str, name: str, locked: Mapping[str, str]) -> Path:
        digest = hashlib.sha256(json.dumps(locked, sort_keys=True).encode()).hexdigest()
        return self.cache / kind / f"{name}-{digest[:8]}"

    def known(self) -> tuple[Release, ...]:
        return tuple(release_files(*self.catalogue_folders, of=LOCKS))

    def _folder(self, kind: str, name: str, title: str) -> Path:
        locked = self._lock(name)
        home = self._home(kind, name, locked)
        folder = home / "libs"
        if not folder.is_dir():
            with exclusive(home.parent / f".{home.name}.lock", title):
                if not folder.is_dir():  # another process can have fetched it
                    self._fetch(home, locked, title)
        _verify(folder, locked, title)
        return folder

    def _lock(self, name: str) -> Mapping[str, str]:
        """Module → SHA-256."""
        for folder in self.catalogue_folders:
            try:
                text = (folder / LOCKS / f"{name}.json").read_text()
            except FileNotFoundError:
                continue
            locked: dict[str, str] = json.loads(text)["sha256"]
            return locked
        known = ", ".join(map(str, self.known()))
        raise UserError(
            f"Kafka {name} has no lock for its jars.",
            remedy=f"Choose one of {known}, or add it with `kafka-rollout-derive add {name}`.",
        )

    def _fetch(self, home: Path, locked: Mapping[str, str], title: str) -> None:
        import tenacity  # only here: the cache is opened by commands that never download

        draft = home.parent / f".{home.name}-draft"  # a stopped fetch continues in it; this process has the lock
        seen, total, began = 0, len(locked), time.monotonic()
        digests = {Module.parse(text): digest for text, digest in locked.items()}

        def say(text: str) -> None:
            print(f"{title}: {text}", file=sys.stderr, flush=True)

        def count(_: str) -> None:
            nonlocal seen
            seen = min(seen + 1, total)  # a second attempt downloads some again
            if seen % 10 == 0:
                say(f"{seen} of {total} jars")

        def load(repository: Repository) -> None:
            paths = {module: draft / "libs" / module.file for module in digests}
            left = [one for one, path in paths.items() if not path.is_file() or sha256_of_jar(path) != digests[one]]
            repository.jars(left, draft / "libs", on_jar=count)

        say(f"downloading {total} jars")
        if not draft.exists():
            with new_own_folder(draft):
                pass
        try:
            retrying = tenacity.Retrying(
                retry=tenacity.retry_if_exception_type(TransientError),
                stop=tenacity.stop_after_attempt(_ATTEMPTS),
                before_sleep=lambda _: say("the download failed, trying again"),
                reraise=True,
            )
            with open_repository() as repository:
                retrying(load, repository)
            _verify(draft / "libs", locked, title)
            draft.chmod(0o755)
            if home.exists():  # an incomplete folder without jars
                remove_own_folder(home)
            draft.rename(home)
            say(f"{total} jars downloaded and verified in {time.monotonic() - began:.0f} s")
        except FatalError:
            with suppress(RefusedError):
                remove_own_folder(draft)
            raise


def _verify(folder: Path, locked: Mapping[str, str], title: str) -> None:
    """The folder holds exactly the locked jars, byte for byte."""
    expected = {Module.parse(text).file: digest for text, digest in locked.items()}
    found = {path.name for path in folder.iterdir()}
    remedy = f"Remove {folder.parent} and repeat the command. If it happens again, do not trust the network."
    for name, digest in sorted(expected.items()):
        if name not in found:
            raise FatalError(f"{title}: {name} is missing from {folder}.", remedy=remedy)
        if sha256_of_jar(folder / name) != digest:
            raise FatalError(f"{title}: {name} does not have the locked SHA-256 {digest}.", remedy=remedy)
    if strangers := sorted(found - expected.keys()):
        raise FatalError(f"{title}: {', '.join(strangers)} in {folder} is not in the lock.", remedy=remedy)


def sha256_of_jar(path: Path) -> str:
    """Read once in each process; afterwards the same inode, size and times mean the same bytes."""
    with os.fdopen(open_regular(path), "rb") as file:
        status = os.fstat(file.fileno())
        known = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if known not in _DIGESTS:
            _DIGESTS[known] = hashlib.file_digest(file, "sha256").hexdigest()
        return _DIGESTS[known]


@contextmanager
def exclusive(path: Path, title: str) -> Iterator[None]:
    """One process at a time; the kernel releases the lock when its holder exits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{title}: waiting for another process that downloads it", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(names: list[str]) -> int:
    """Download the releases (and `agents`) into the cache; print each folder."""
    settings = Settings.from_environment()
    cache = ReleaseCache.from_settings(settings)
    try:
        for name in names:
            print(cache.agents().jolokia.parent if name == "agents" else cache.libs(Release.parse(name)))
    except RolloutError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
