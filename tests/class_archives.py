"""Class archives (AppCDS) of Kafka releases and of Spark: a node or a Spark of a test starts with half the CPU time.

The archives belong to the tests alone: Java calls archives with agents "for testing purposes only". `$JAVA_HOME` of the
tests is a folder whose `bin/java` adds the archive of the release on the class path, if there is one. Java itself
checks that the archive fits its own build and the jars, and starts without it otherwise.

An archive of a release continues that of Java's own classes. A Java of jlink has none, so one is written for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.coordinator_logs.spark import submit
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm import java
from tests.fixture_logs import write_fixture_logs
from tests.paths import ROOT
from tools.demo.local_cluster import LocalCluster

_AGENTS_ALLOWED = "-XX:+UnlockDiagnosticVMOptions -XX:+AllowArchivingWithJavaAgent"
_QUIET = "-XX:-PrintWarnings -Xlog:cds=off -Xlog:cds+dynamic=off"
OFTEN = ("3.4.0", "3.4.1", "3.9.1", "4.2.1", "4.3.1")  # to write an archive takes what six starts of a node save
_STOP_S = 120.0  # the JVM writes the archive when it exits
_SPARK = "org.apache.spark.deploy.SparkSubmit"
_SCAN = "from kafka_rollout.cli.app import main; main()"
_WRAPPER = f"""#!/bin/sh
# Add the class archive of the Kafka release on the class path, or that of Spark.
case " $* " in
*" {_SPARK} "*)
  archive="FOLDER/SPARK.jsa"
  [ -s "$archive" ] && exec "JAVA" QUIET -XX:SharedArchiveFile="BASE$archive" "$@" ;;
esac
for argument in "$@"; do
  case "$argument" in
  */libs/\\**)
    release="${{argument%%/libs/*}}"
    archive="FOLDER/${{release##*/}}.jsa"
    [ -s "$archive" ] && exec "JAVA" OPTIONS -XX:SharedArchiveFile="BASE$archive" "$@" ;;
  esac
done
exec "JAVA" OWN "$@"
"""
_RECORDER = f"""#!/bin/sh
case " $* " in
*" {_SPARK} "*) exec "{{java}}" {_QUIET} -XX:ArchiveClassesAtExit="{{archive}}" "$@" ;;
esac
exec "{{java}}" "$@"
"""


class ClassArchives:
    """The archives of one Java, in the cache folder."""

    def __init__(self, cache: ReleaseCache, folder: Path) -> None:
        self.cache = cache
        self.java = java.java_binary()
        # Another checkout can have another script for the same cache.
        key = hashlib.sha256(os.fsencode(self.java) + _WRAPPER.encode())
        self.folder = folder / "class-archives" / key.hexdigest()[:8]
        # The archive has the paths of Spark's jars, and each checkout its own.
        spark = hashlib.sha256(f"{submit.spark_submit()} {version('pyspark')}".encode())
        self._spark = f"spark-{spark.hexdigest()[:8]}"

    def use(self) -> None:
        """Make `$JAVA_HOME` the folder that adds the archives; for this process and the processes it starts."""
        own = self._own_archive()
        words = {
            "FOLDER": str(self.folder),
            "SPARK": self._spark,
            "QUIET": _QUIET,
            "JAVA": str(self.java),
            "OPTIONS": f"{_AGENTS_ALLOWED} {_QUIET}",
            "BASE": f"{own}:" if own else "",
            "OWN": f"-XX:SharedArchiveFile={own} {_QUIET}" if own else "",
        }
        script = re.sub("|".join(words), lambda found: words[found[0]], _WRAPPER)
        home = self.folder / "home"
        wrapper = home / "bin" / "java"
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        draft = wrapper.with_name(f"java.{os.getpid()}")
        draft.write_text(script)
        draft.chmod(draft.stat().st_mode | stat.S_IXUSR)
        draft.replace(wrapper)
        os.environ["JAVA_HOME"] = str(home)
        java.java_home.cache_clear()

    def _own_archive(self) -> Path | None:
        """Return the archive of Java's own classes that was written here; None if this Java brings one, or cannot."""
        java_binary = str(self.java)
        if subprocess.run([java_binary, "-Xshare:on", "-version"], capture_output=True, check=False).returncode == 0:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        archive = self.folder / "own.jsa"
        with (self.folder / f"{archive.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists():
                draft = archive.with_suffix(".draft")
                subprocess.run(
                    [java_binary, "-Xshare:dump", f"-XX:SharedArchiveFile={draft}"], capture_output=True, check=False
                )
                draft.touch()
                draft.replace(archive)
        return archive if archive.stat().st_size else None

    def record_if_often(self, release: Release) -> None:
        """`record`, for a release of which `make test` starts enough nodes."""
        if str(release) in OFTEN:
            self.record(release)

    def record(self, release: Release) -> None:
        """Start and stop a node once to write the archive of a release; an empty file if Java cannot write one."""
        self._write(self.cache.libs(release).parent.name, partial(self._run_node, release))

    def record_spark(self) -> None:
        """Scan once to write the archive of Spark, as `record` does."""
        self._write(self._spark, self._run_spark)

    def _write(self, name: str, run: Callable[[Path], None]) -> None:
        """Let one process make the archive by a run of Java."""
        archive = self.folder / f"{name}.jsa"
        if archive.exists():
            return
        with (self.folder / f"{archive.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists():
                draft = archive.with_suffix(".draft")
                draft.unlink(missing_ok=True)
                run(draft)
                draft.touch()
                draft.replace(archive)

    def _run_node(self, release: Release, archive: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="kafka-rollout-classes-") as folder:
            cluster = LocalCluster.create(
                Path(folder), "classes", release, cache=self.cache, layout="combined", size=1, start=False
            )
            for node in cluster.spec.nodes:
                options = Path(str(node.directory)) / "jvm.options"
                options.write_text(f"{options.read_text()}-XX:ArchiveClassesAtExit={archive} {_AGENTS_ALLOWED}\n")
            try:
                cluster.start()
            except RolloutError:  # a Java without archives of its own: nothing is gained, nothing is lost
                archive.unlink(missing_ok=True)
            finally:
                cluster.stop(deadline_s=_STOP_S)

    def _run_spark(self, archive: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="kafka-rollout-classes-") as name:
            folder = Path(name)
            java_binary = folder / "java" / "bin" / "java"
            java_binary.parent.mkdir(parents=True)
            java_binary.write_text(_RECORDER.format(java=self.folder / "home" / "bin" / "java", archive=archive))
            java_binary.chmod(0o755)
            variables = {"JAVA_HOME": str(folder / "java"), "KAFKA_ROLLOUT_HOME": str(folder), "TMPDIR": name}
            logs = write_fixture_logs(folder, "4.3.1")
            subprocess.run(
                [sys.executable, "-P", "-c", _SCAN, "scan", "--log-dir", str(logs)],
                env={**os.environ, "PYTHONPATH": str(ROOT / "plugins"), **variables},
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=600,
                check=False,  # without an archive nothing is gained, and nothing is lost
            )
