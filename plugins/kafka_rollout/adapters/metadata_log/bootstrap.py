"""bootstrap.checkpoint at a lower level: every start reads it, and an older release fails on a level above its own.

Kafka applies its levels only to an empty log, so a change of the file does not change the cluster's state.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from kafka_rollout.adapters.metadata_log.backup import Files, changing
from kafka_rollout.adapters.metadata_log.facts import known_releases
from kafka_rollout.adapters.metadata_log.folder import BOOTSTRAP, MetadataFolder, read_file, stopped_node
from kafka_rollout.adapters.metadata_log.images import image_classes
from kafka_rollout.adapters.releases.cache import ReleaseCache
from kafka_rollout.adapters.releases.catalogue import load_catalogue
from kafka_rollout.adapters.system.files import sha256_of
from kafka_rollout.domain.model.errors import RefusedError
from kafka_rollout.domain.model.releases import METADATA_VERSION, Release


def lower_bootstrap(
    folder: MetadataFolder, out: Path, *, level: int, target: Release, cache: ReleaseCache
) -> Path | None:
    """Write the node's bootstrap.checkpoint, with no level above `level` and the target's, to a file in `out`.

    Returns the file; None if the node has no bootstrap.checkpoint. Nodes with the same records share one file. Raises
    RefusedError if the classes of the target cannot read it.
    """
    if folder.bootstrap is None:
        return None
    final = out / f"bootstrap-{_records_sha256(folder.bootstrap)[:16]}-{level}-{target}.checkpoint"
    if final.exists():
        return final
    with tempfile.TemporaryDirectory(prefix=".kafka-rollout-", dir=out) as name:
        old, new = Path(name) / "old", Path(name) / "new"
        old.mkdir()
        new.mkdir()
        shutil.copy(folder.bootstrap, old / BOOTSTRAP)
        known = load_catalogue(cache.include).get(target).features
        highest = {**{one.name: one.supported.max for one in known.values()}, METADATA_VERSION: level}
        with image_classes(cache, known_releases(cache.include)[-1]) as classes:
            changed = classes.lower_bootstrap(old, new, highest)
        if not changed:
            shutil.copy(old / BOOTSTRAP, new / BOOTSTRAP)
        with image_classes(cache, target) as classes:
            why = classes.bootstrap_problem(new)
        if why is not None:
            raise RefusedError(
                f"Kafka {target} cannot read {folder.bootstrap} at level {level}: {why.rstrip('.')}.",
                remedy="Nothing was changed. Report this as an error of the program.",
            )
        (new / BOOTSTRAP).chmod(0o600)
        (new / BOOTSTRAP).rename(final)
    return final


def _records_sha256(path: Path) -> str:
    """Digest without the timestamps, which differ on every node."""
    digest = hashlib.sha256()
    for batch in read_file(path, last=False):
        for record in batch.records:
            if not batch.is_control:
                digest.update(len(record.value).to_bytes(4) + record.value)
    return digest.hexdigest()


def replace_bootstrap(folder: MetadataFolder, *, level: int, target: Release, cache: ReleaseCache) -> Path | None:
    """Replace a stopped node's bootstrap.checkpoint by a lowered one, whole or not at all.

    Returns the copy of the old file, in the same folder; None if no level had to be lowered.
    """
    if folder.bootstrap is None:
        return None
    files = Files()
    with stopped_node(folder), tempfile.TemporaryDirectory(prefix="kafka-rollout-") as name:
        lowered = lower_bootstrap(folder, Path(name), level=level, target=target, cache=cache)
        digest = sha256_of(folder.bootstrap)
        if lowered is None or sha256_of(lowered) == digest:
            return None
        with changing(folder.root):
            backup = folder.root / f"{BOOTSTRAP}.{digest[:16]}.before-downgrade"
            if not backup.exists():
                files.copy(folder.bootstrap, backup)
            files.copy(lowered, folder.bootstrap, like=backup)
            files.sync(folder.root)
    return backup
