"""Where Python finds PySpark. Spark puts archives of it first, whose modules each process compiles again.

That is 0.35 seconds of processor time in the driver, in the daemon and in each worker. A PySpark that pip installed has
the same modules beside its archives, compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

_ARCHIVES = ("pyspark.zip", "py4j-*-src.zip")


def use_installed_modules() -> None:
    """Leave out the archives of an installed PySpark. To call before the first import of it."""
    sys.path[:] = without_archives(sys.path)


def without_archives(path: Sequence[str]) -> list[str]:
    """Return the path without the archives of a PySpark whose folder is on it too, with the same release of py4j."""
    return [entry for entry in path if not _is_twice(Path(entry), path)]


def _is_twice(entry: Path, path: Sequence[str]) -> bool:
    if not any(map(entry.match, _ARCHIVES)):
        return False
    package = entry.parent.parent.parent  # of pyspark/python/lib
    py4j = (f"{one.name.removesuffix('-src.zip')}.dist-info" for one in entry.parent.glob(_ARCHIVES[1]))
    return (
        str(package.parent) in path
        and (package / "__init__.py").is_file()
        and all((package.parent / name).is_dir() for name in py4j)
    )
