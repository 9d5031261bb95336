"""Python imports an installed PySpark from its folder, not from the archives that Spark puts first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from kafka_rollout_spark.python_path import without_archives

PY4J = "py4j-0.10.9.9"


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder of packages with PySpark, its archives, and py4j."""
    library = tmp_path / "pyspark" / "python" / "lib"
    library.mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").touch()
    (tmp_path / f"{PY4J}.dist-info").mkdir()
    for name in ("pyspark.zip", f"{PY4J}-src.zip", "other.zip"):
        (library / name).touch()
    return tmp_path


def archives(packages: Path) -> list[str]:
    library = packages / "pyspark" / "python" / "lib"
    return [str(library / name) for name in ("pyspark.zip", f"{PY4J}-src.zip")]


def test_the_archives_of_an_installed_pyspark_are_left_out(packages: Path) -> None:
    other = str(packages / "pyspark" / "python" / "lib" / "other.zip")
    assert without_archives([*archives(packages), "", other, "/x", str(packages)]) == ["", other, "/x", str(packages)]


@pytest.mark.parametrize("lacking", ["the folder on the path", "the package", "the release of py4j"])
def test_the_archives_of_another_pyspark_stay(packages: Path, lacking: str) -> None:
    """Spark on another host, which is no package: its archives are the only PySpark that fits its jars."""
    path = ["/x", *archives(packages), str(packages)]
    if lacking == "the folder on the path":
        path.remove(str(packages))
    elif lacking == "the package":
        (packages / "pyspark" / "__init__.py").unlink()
    else:
        (packages / f"{PY4J}.dist-info").rename(packages / "py4j-0.10.9.7.dist-info")
    assert without_archives(path) == path


@pytest.mark.parametrize("archive", ["/pyspark.zip", "/opt/pyspark.zip", "pyspark.zip", f"/app/{PY4J}-src.zip"])
def test_an_archive_that_a_site_has_copied_elsewhere_stays(archive: str) -> None:
    assert without_archives([archive, "/"]) == [archive, "/"]


def test_spark_s_own_archives_are_found(tmp_path: Path) -> None:
    package = Path(pyspark.__file__).parent
    path = [str(one) for one in sorted((package / "python" / "lib").glob("*.zip"))]
    assert len(path) == 2
    program = (
        "from kafka_rollout_spark.python_path import use_installed_modules\n"
        "use_installed_modules()\n"
        "import pyspark\n"
        "print(pyspark.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()) == package / "__init__.py"
