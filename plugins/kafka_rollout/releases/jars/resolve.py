"""Finds the jars of a release that has no lock: kafka_2.13 with its dependencies, and a logging binding."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from kafka_rollout.base.errors import UserError
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache, sha256_of_jar
from kafka_rollout.releases.jars.dependencies import find_dependencies
from kafka_rollout.releases.jars.maven import Module, ModulesMissingError, open_repository

# kafka_2.13's own dependencies have no binding of SLF4J: a broker without one runs but logs nothing.
LOGGING = {
    3: ("org.slf4j:slf4j-reload4j:1.7.36", "ch.qos.reload4j:reload4j:1.2.25"),
    4: ("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4", "org.apache.logging.log4j:log4j-core:2.25.4"),
}
_OLDEST = Release(3, 3, 0)  # the first release whose KRaft mode is for production (KIP-833)


def resolve(
    modules: Iterable[str],
    folder: Path,
    *,
    transitive: bool = True,
    on_jar: Callable[[str], None] = lambda name: None,
    repository: str = "",
) -> dict[str, str]:
    """Download modules, with their dependencies if `transitive`; return module → SHA-256. Errors: see Repository.

    `repository`: URL of a Maven repository; "" is Maven Central. Each file is compared with the published SHA-1.
    """
    with open_repository(repository) as opened:
        wanted = tuple(map(Module.parse, modules))
        found = find_dependencies(wanted, opened) if transitive else wanted
        opened.jars(found, folder, published=True, on_jar=on_jar)
    return {str(module): sha256_of_jar(folder / module.file) for module in found}


def resolve_release(
    cache: ReleaseCache, release: Release, say: Callable[[str], None], *, repository: str = ""
) -> tuple[dict[str, str], Path]:
    """Download the jars of a release into the cache; return their lock (module → SHA-256) and the folder.

    Raises UserError for a release that does not exist or is too old. A failed download leaves nothing.
    """
    if release < _OLDEST:
        raise UserError(
            f"Kafka {release} is older than {_OLDEST}, the first release with KRaft for production.",
            remedy=f"Choose {_OLDEST} or newer.",
        )
    kafka = cache.cache / "kafka"
    kafka.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{release}-", dir=kafka))
    jars = 0

    def count_jar(name: str) -> None:
        nonlocal jars
        jars += 1
        if jars % 10 == 0:
            say(f"{jars} jars downloaded")

    try:
        logging = LOGGING[min(release.major, max(LOGGING))]
        modules = (f"org.apache.kafka:kafka_2.13:{release}", *logging)
        lock = resolve(modules, draft / "libs", on_jar=count_jar, repository=repository)
        return lock, cache.keep(str(release), draft, lock)
    except ModulesMissingError as error:
        raise UserError(
            f"The jars of Kafka {release} were not found: {error.sentence}",
            remedy="Choose a release of https://kafka.apache.org/downloads.",
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
