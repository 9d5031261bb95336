"""Derives the lines of Kafka's own start scripts from unpacked archives."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from kafka_rollout.base.errors import FatalError, UserError
from kafka_rollout.nodes.runtimes.hosts.text_files import text_of
from kafka_rollout.releases.documents.catalogue import SCRIPTS, ScriptsFile
from kafka_rollout.releases.start_scripts import OWN_SCRIPTS, digest_of

_NAME = re.compile(r"(?:.*[-_])?(\d+\.\d+)\.\d+")


def add_scripts(catalogue: Path, archives: Iterable[Path]) -> ScriptsFile:
    """Add the lines of the scripts of unpacked archives to the file in the folder of a catalogue, and return it.

    Raises UserError for a folder that is not one of a release, and FatalError if the file cannot be written.
    """
    file = catalogue / SCRIPTS
    try:
        known = [ScriptsFile.model_validate_json(file.read_text())] if file.exists() else []
        releases = {one for each in known for one in each.minor_releases}
        digests = {one for each in known for one in each.digests}
        for archive in archives:
            release = _NAME.fullmatch(archive.resolve().name)
            texts = [archive / "bin" / name for name in OWN_SCRIPTS]
            if release is None or not all(text.is_file() for text in texts):
                raise UserError(
                    f"{archive} is not an unpacked archive of Kafka.",
                    remedy=f"Name a folder such as kafka_2.13-4.3.1, with {' and '.join(OWN_SCRIPTS)} in bin.",
                )
            releases.add(release[1])
            digests |= {digest_of(line) for text in texts for line in text_of(text.name, text.read_text()).lines}
        found = ScriptsFile(
            minor_releases=sorted(releases, key=lambda one: [int(part) for part in one.split(".")]),
            digests=sorted(digests),
        )
        catalogue.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{found.model_dump_json(indent=1)}\n")
    except OSError as error:
        raise FatalError(
            f"The start scripts could not be read or written: {error.filename}: {error.strerror}.",
            remedy="Check the permissions of this file, then repeat the command.",
        ) from None
    return found
