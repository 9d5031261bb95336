"""Finds the jars of a release that has no lock: kafka_2.13 with its dependencies, and a logging binding.

Dependencies are read from the POMs. Of two versions of a module the newer one is used, as in Kafka's own build
(Gradle's conflict resolution). Source of the other rules: Maven's introduction to the dependency mechanism.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from kafka_rollout.base.errors import FatalError, RefusedError, UserError
from kafka_rollout.base.system.own_folders import new_own_folder, remove_own_folder
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache, sha256_of_jar
from kafka_rollout.releases.jars.maven import Module, ModulesMissingError, Repository, open_repository

# kafka_2.13's own dependencies have no binding of SLF4J: a broker without one runs but logs nothing.
LOGGING = {
    3: ("org.slf4j:slf4j-reload4j:1.7.36", "ch.qos.reload4j:reload4j:1.2.25"),
    4: ("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4", "org.apache.logging.log4j:log4j-core:2.25.4"),
}
_OLDEST = Release(3, 3, 0)  # the first release whose KRaft mode is for production (KIP-833)
_JARS = ("", "jar", "bundle")
_NOT_AT_RUN_TIME = ("test", "provided", "system", "import")
_Name = tuple[str, str]  # group and artifact; in an exclusion, * is every one
_Key = tuple[str, str, str, str]  # group, artifact, type, classifier


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
    draft = kafka / f".{release}-{secrets.token_hex(4)}"
    with new_own_folder(draft):
        pass
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
        with suppress(RefusedError):  # it is in the cache now
            remove_own_folder(draft)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dependency:
    """As written in a POM; an empty `scope` or version is that of the dependency management."""

    module: Module
    kind: str
    scope: str
    optional: bool
    excluded: frozenset[_Name]

    @property
    def key(self) -> _Key:
        return (self.module.group, self.module.artifact, self.kind, self.module.classifier)

    def managed_by(self, management: dict[_Key, _Dependency]) -> _Dependency:
        if (managed := management.get(self.key)) is None:
            return self
        return replace(
            self,
            module=replace(self.module, version=self.module.version or managed.module.version),
            scope=self.scope or managed.scope,
            optional=self.optional or managed.optional,
            excluded=self.excluded | managed.excluded,
        )

    @property
    def at_run_time(self) -> bool:
        return not self.optional and self.scope not in _NOT_AT_RUN_TIME and self.kind in _JARS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pom:
    """What a module's POM and its parents say."""

    properties: dict[str, str] = field(default_factory=dict)
    management: dict[_Key, _Dependency] = field(default_factory=dict)
    dependencies: tuple[_Dependency, ...] = ()


@dataclass(slots=True)
class _Poms:
    """Reads each POM once."""

    repository: Repository
    read: dict[Module, _Pom] = field(default_factory=dict)

    def of(self, module: Module) -> _Pom:
        """Errors: see Repository. Raises FatalError for a POM that cannot be parsed."""
        if module not in self.read:
            self.read[module] = self._parse(module)
        return self.read[module]

    def _parse(self, module: Module) -> _Pom:
        try:
            # expat limits entities, and the repository is trusted
            root = ElementTree.fromstring(self.repository.pom(module))  # noqa: S314
        except ElementTree.ParseError as error:
            raise FatalError(
                f"{module.pom} of the jar repository is not a POM: {error}.",
                remedy="Check the repository and the proxy.",
            ) from error
        parent = root.find("{*}parent")
        names = {"groupId": module.group, "artifactId": module.artifact, "version": module.version}
        above = _Pom() if parent is None else self.of(Module(*(_text(parent, name) for name in names)))
        properties = {
            **above.properties,
            **{one.tag.rpartition("}")[2]: (one.text or "").strip() for one in root.iterfind("{*}properties/{*}*")},
            **{f"{prefix}.{name}": value for name, value in names.items() for prefix in ("project", "pom")},
        }
        management: dict[_Key, _Dependency] = {}
        imported: dict[_Key, _Dependency] = {}
        for element in root.iterfind("{*}dependencyManagement/{*}dependencies/{*}dependency"):
            managed = _dependency(element, properties)
            if managed.scope == "import":  # a bill of materials; the first one that names a module applies
                imported = {**self.of(managed.module).management, **imported}
            else:
                management[managed.key] = managed
        management = {**above.management, **imported, **management}
        own = (_dependency(element, properties) for element in root.iterfind("{*}dependencies/{*}dependency"))
        dependencies = (*above.dependencies, *(one.managed_by(management) for one in own))
        return _Pom(properties=properties, management=management, dependencies=dependencies)


def find_dependencies(modules: Iterable[Module], repository: Repository) -> tuple[Module, ...]:
    """Return the modules and their runtime dependencies, one version of each, sorted. Errors: see Repository."""
    wanted, poms = tuple(modules), _Poms(repository)
    newest: dict[_Name, str] = {}
    while True:  # a newer version can bring other dependencies; the versions only rise, so this ends
        before = dict(newest)
        found: set[Module] = set()
        seen: set[tuple[Module, frozenset[_Name]]] = set()
        ahead = [(module, frozenset[_Name]()) for module in wanted]
        while ahead:
            module, excluded = ahead.pop()
            name = (module.group, module.artifact)
            newest[name] = max(newest.get(name, module.version), module.version, key=_order)
            module = replace(module, version=newest[name])
            if (module, excluded) in seen:
                continue
            seen.add((module, excluded))
            found.add(module)
            ahead += [
                (one.module, excluded | one.excluded)
                for one in poms.of(replace(module, classifier="")).dependencies
                if one.at_run_time and not _is_excluded(one.module, excluded)
            ]
        if newest == before:
            return tuple(sorted(found))


def _is_excluded(module: Module, excluded: frozenset[_Name]) -> bool:
    return any(group in ("*", module.group) and artifact in ("*", module.artifact) for group, artifact in excluded)


def _order(version: str) -> list[tuple[bool, int, str]]:
    """Order versions by their numbers; a word (a pre-release) is below a number."""
    parts = re.findall(r"\d+|[A-Za-z]+", version)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def _text(element: Element, name: str) -> str:
    return (element.findtext(f"{{*}}{name}") or "").strip()


def _dependency(element: Element, properties: dict[str, str]) -> _Dependency:
    def value(name: str, of: Element = element) -> str:
        text = _text(of, name)
        while (filled := re.sub(r"\$\{([^}]+)\}", lambda one: properties.get(one[1], one[0]), text)) != text:
            text = filled
        return text

    return _Dependency(
        module=Module(value("groupId"), value("artifactId"), value("version"), value("classifier")),
        kind=value("type") or "jar",
        scope=value("scope"),
        optional=value("optional") == "true",
        excluded=frozenset(
            (value("groupId", one), value("artifactId", one)) for one in element.iterfind("{*}exclusions/{*}exclusion")
        ),
    )
