"""What the derivation of the catalogue reads from class files, on jars made here."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from kafka_rollout.adapters.derivation.features import logging_backend, lossy_downgrade_level
from kafka_rollout.adapters.derivation.gaps import NotDerivedError

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
    with pytest.raises(NotDerivedError, match=r"may implement KIP-1155.*KIP_1155_LEVEL in adapters/derivation"):
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
