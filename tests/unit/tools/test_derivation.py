"""What the derivation of the catalogue reads from class files, on jars made here."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from kafka_rollout.domain.model.errors import FatalError
from tools.derivation.features import lossy_downgrade_level

CLASS = "org/apache/kafka/controller/FeatureControlManager.class"
REFUSES = b"... Unsafe metadata downgrade is not supported in this version. ..."


def libs(folder: Path, code: bytes, name: str = CLASS) -> Path:
    with zipfile.ZipFile(folder / "kafka-metadata-9.9.9.jar", "w") as jar:
        jar.writestr(name, code)
    return folder


def test_a_controller_that_refuses_lossy_downgrades_does_not_implement_kip_1155(tmp_path: Path) -> None:
    assert lossy_downgrade_level(libs(tmp_path, REFUSES)) is None
    assert lossy_downgrade_level(tmp_path, level=33) is None


def test_the_first_controller_that_does_not_refuse_stops_the_derivation_until_the_level_is_known(
    tmp_path: Path,
) -> None:
    with pytest.raises(FatalError, match="may implement KIP-1155") as stopped:
        lossy_downgrade_level(libs(tmp_path, b"lowers"), level=None)
    assert "KIP_1155_LEVEL in tools/derivation/features.py" in stopped.value.remedy
    assert lossy_downgrade_level(tmp_path, level=33) == 33


def test_a_release_whose_controller_is_elsewhere_is_not_taken_for_one_without_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="no FeatureControlManager"):
        lossy_downgrade_level(libs(tmp_path, b"", "org/apache/kafka/Other.class"), level=33)
