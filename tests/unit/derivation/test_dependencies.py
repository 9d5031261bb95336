"""Runtime dependencies by Maven's rules, with the newest of two versions."""

from __future__ import annotations

from typing import cast

import pytest

from kafka_rollout.base.errors import FatalError
from kafka_rollout.releases.jars.maven import Module, Repository
from kafka_rollout_derivation.resolve import find_dependencies


class Poms:
    """A repository of POMs: `group:artifact:version` → what stands in its project element."""

    def __init__(self, poms: dict[str, str]) -> None:
        self._poms = poms

    def pom(self, module: Module) -> bytes:
        return f'<project xmlns="http://maven.apache.org/POM/4.0.0">{self._poms[str(module)]}</project>'.encode()


def dependency(name: str, more: str = "") -> str:
    group, artifact, *version = name.split(":")
    written = f"<version>{version[0]}</version>" if version else ""
    ids = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
    return f"<dependency>{ids}{written}{more}</dependency>"


def dependencies(*written: str) -> str:
    return f"<dependencies>{''.join(written)}</dependencies>"


def managed(*written: str) -> str:
    return f"<dependencyManagement>{dependencies(*written)}</dependencyManagement>"


def excluding(group: str, artifact: str) -> str:
    ids = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
    return f"<exclusions><exclusion>{ids}</exclusion></exclusions>"


def found(poms: dict[str, str], *wanted: str) -> list[str]:
    repository = cast("Repository", Poms(poms))
    return [str(one) for one in find_dependencies(map(Module.parse, wanted), repository)]


def test_only_what_a_process_needs_is_followed() -> None:
    poms = {
        "g:app:1": dependencies(
            dependency("g:run:1", "<scope>runtime</scope>"),
            dependency("g:test:1", "<scope>test</scope>"),
            dependency("g:given:1", "<scope>provided</scope>"),
            dependency("g:option:1", "<optional>true</optional>"),
            dependency("g:native:1", "<type>so</type>"),
        ),
        "g:run:1": dependencies(dependency("g:deep:1", "<scope>compile</scope>")),
        "g:deep:1": "",
    }
    assert found(poms, "g:app:1") == ["g:app:1", "g:deep:1", "g:run:1"]


def test_the_newer_of_two_versions_is_used_with_its_own_dependencies() -> None:
    poms = {
        "g:app:1": dependencies(dependency("g:log:1.9"), dependency("g:far:1")),
        "g:far:1": dependencies(dependency("g:log:1.10")),
        "g:log:1.9": dependencies(dependency("g:old:1")),
        "g:log:1.10": dependencies(dependency("g:new:1")),
        "g:old:1": "",
        "g:new:1": "",
    }
    assert found(poms, "g:app:1") == ["g:app:1", "g:far:1", "g:log:1.10", "g:new:1"]


def test_a_pre_release_is_older_than_its_release() -> None:
    poms = {
        "g:app:1": dependencies(dependency("g:log:2.0-rc1"), dependency("g:far:1")),
        "g:far:1": dependencies(dependency("g:log:2.0.1")),
        "g:log:2.0-rc1": "",
        "g:log:2.0.1": "",
    }
    assert "g:log:2.0.1" in found(poms, "g:app:1")


def test_an_exclusion_holds_on_its_path_alone() -> None:
    poms = {
        "g:app:1": dependencies(dependency("g:left:1", excluding("*", "mail")), dependency("g:right:1")),
        "g:left:1": dependencies(dependency("g:mail:1"), dependency("g:kept:1")),
        "g:right:1": "",
        "g:kept:1": "",
        "g:mail:1": "",
    }
    assert found(poms, "g:app:1") == ["g:app:1", "g:kept:1", "g:left:1", "g:right:1"]
    poms["g:right:1"] = dependencies(dependency("g:mail:1"))
    assert "g:mail:1" in found(poms, "g:app:1")


def test_versions_come_from_the_parent_its_properties_and_a_bill_of_materials() -> None:
    poms = {
        "g:app:1": "<parent><groupId>g</groupId><artifactId>parent</artifactId><version>7</version></parent>"
        "<properties><own>${base}.2</own></properties>"
        + managed(dependency("g:bom:3", "<type>pom</type><scope>import</scope>"), dependency("g:far:${own}"))
        + dependencies(dependency("g:near:${project.version}"), dependency("g:far"), dependency("g:listed")),
        "g:parent:7": "<properties><base>5</base><own>0</own></properties>" + managed(dependency("g:listed:1")),
        "g:bom:3": managed(dependency("g:listed:9"), dependency("g:far:9")),
        "g:near:1": "",
        "g:far:5.2": "",
        "g:listed:9": "",
    }
    assert found(poms, "g:app:1") == ["g:app:1", "g:far:5.2", "g:listed:9", "g:near:1"]


def test_a_classifier_is_a_jar_of_its_own_with_the_modules_dependencies() -> None:
    poms = {
        "g:app:1": dependencies(dependency("g:net:2", "<classifier>linux</classifier>")),
        "g:net:2": dependencies(dependency("g:deep:1")),
        "g:deep:1": "",
    }
    assert found(poms, "g:app:1") == ["g:app:1", "g:deep:1", "g:net:2:linux"]


def test_a_page_instead_of_a_pom_is_one_sentence() -> None:
    with pytest.raises(FatalError, match=r"^app-1\.pom of the jar repository is not a POM: .+\. Check the repository"):
        found({"g:app:1": "<p>sign in"}, "g:app:1")
