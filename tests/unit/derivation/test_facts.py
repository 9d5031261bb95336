"""What the derivation of the catalogue reads from class files, on jars made here."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_rollout.releases.jvm.jvm import Jvm
from kafka_rollout_derivation import facts
from kafka_rollout_derivation.facts import logging_backend, lossy_downgrade_level
from kafka_rollout_derivation.gaps import NotDerivedError

CLASS = "org/apache/kafka/controller/FeatureControlManager.class"
REFUSES = b"... Unsafe metadata downgrade is not supported in this version. ..."


def libs(folder: Path, code: bytes, name: str = CLASS) -> Path:
    with zipfile.ZipFile(folder / "kafka-metadata-9.9.9.jar", "w") as jar:
        jar.writestr(name, code)
    return folder


def test_a_controller_that_refuses_lossy_downgrades_does_not_implement_kip_1155(tmp_path: Path) -> None:
    assert lossy_downgrade_level(libs(tmp_path, REFUSES)) is None
    assert lossy_downgrade_level(tmp_path, level=33) is None


def test_the_level_of_the_first_controller_that_does_not_refuse_is_a_gap_until_it_is_known(tmp_path: Path) -> None:
    with pytest.raises(NotDerivedError, match=r"may implement KIP-1155.*KIP_1155_LEVEL in derivation"):
        lossy_downgrade_level(libs(tmp_path, b"lowers"), level=None)
    assert lossy_downgrade_level(tmp_path, level=33) == 33


def test_a_release_whose_controller_is_elsewhere_is_not_taken_for_one_without_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(NotDerivedError, match="no FeatureControlManager"):
        lossy_downgrade_level(libs(tmp_path, b"", "org/apache/kafka/Other.class"), level=33)


def test_a_controller_that_was_moved_is_found_by_its_refusal(tmp_path: Path) -> None:
    assert lossy_downgrade_level(libs(tmp_path, REFUSES, "org/apache/kafka/controller/features/Manager.class")) is None


@pytest.mark.parametrize("name", ["kafka/utils/Log4j2Controller.class", "kafka/Kafka.class"])
def test_the_logging_backend_is_found_without_its_controller(tmp_path: Path, name: str) -> None:
    assert logging_backend(libs(tmp_path, b"org/apache/logging/log4j/Logger", name)) == "log4j2"


def test_a_release_with_an_unknown_logging_backend_has_a_gap(tmp_path: Path) -> None:
    with pytest.raises(NotDerivedError, match="no known backend"):
        logging_backend(libs(tmp_path, b"java/util/logging"))


def test_default_levels_are_those_of_the_release_and_not_its_newest_stable_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A level can be stable and a preview in one release: share.version 1 in 4.1."""
    monkeypatch.setattr(facts, "_production_version", lambda jvm: SimpleNamespace(featureLevel=lambda: 27))
    methods = [
        SimpleNamespace(
            getName=lambda name=name: name,
            getParameterTypes=lambda: [SimpleNamespace(getSimpleName=lambda: "MetadataVersion")],
            level=level,
        )
        for name, level in (("latestProduction", 1), ("defaultLevel", 0))
    ]
    share = SimpleNamespace(
        featureName=lambda: "share.version", getClass=lambda: SimpleNamespace(getMethods=lambda: methods)
    )
    jvm = cast("Jvm", SimpleNamespace(call=lambda method, *given: method.level))
    enum: list[Any] = [share]
    levels = facts._default_levels(jvm, enum, ("share.version", "metadata.version"))
    assert levels == {"metadata.version": 27, "share.version": 0}
    with pytest.raises(NotDerivedError, match=r"no default level for group\.version"):
        facts._default_levels(jvm, enum, ("share.version", "group.version"))
