"""The lines of Kafka's own start scripts, from unpacked archives."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.start_scripts import StartScripts
from kafka_rollout_derivation.start_scripts import add_scripts

_TEXT = "#!/bin/bash\nif [ -z $X ]; then # a comment\n  SCALA_VERSION=2.13.14\n  KAFKA_HEAP_OPTS=-Xmx1G\nfi\n"


def archive(folder: Path, release: str, more: str = "") -> Path:
    home = folder / f"kafka_2.13-{release}"
    (home / "bin").mkdir(parents=True)
    for name in ("kafka-server-start.sh", "kafka-run-class.sh"):
        (home / "bin" / name).write_text(_TEXT + more)
    return home


def test_the_lines_of_several_releases_are_known(tmp_path: Path) -> None:
    add_scripts(tmp_path, [archive(tmp_path, "3.9.1")])
    found = add_scripts(tmp_path, [archive(tmp_path, "4.3.1", "exec new\n")])
    scripts = StartScripts(frozenset(found.digests), frozenset(found.minor_releases))
    assert found.minor_releases == ["3.9", "4.3"]
    assert all(map(scripts.has, ("if [ -z $X ]; then", "SCALA_VERSION=2.13.99", "exec  new", "fi")))
    assert not any(map(scripts.has, ("KAFKA_HEAP_OPTS=-Xmx8G", "ulimit -n 100000")))
    assert add_scripts(tmp_path, []) == found


def test_another_folder_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path / "kafka_2.13-4.3.1", archive(tmp_path, "4.3.1").rename(tmp_path / "kafka")):
        with pytest.raises(UserError, match="not an unpacked archive"):
            add_scripts(tmp_path, [folder])


def test_the_catalogue_has_them() -> None:
    scripts = get_catalogue(Settings.from_environment()).scripts
    assert scripts.has("if [ $# -lt 1 ];")
    assert not scripts.has("ulimit -n 100000")
    assert {"3.3", "3.9"} <= scripts.minor_releases
