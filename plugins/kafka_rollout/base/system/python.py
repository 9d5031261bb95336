"""Python processes of this project: all of them start here, so that none executes code of the current folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path("/")  # only root can write there; a child never resolves a relative path below a folder of others

# `python -m` and a script put the current folder or the script's folder first into sys.path: there a file of another
# user, such as secrets.py, would replace a module. The variable is inherited, so it also covers Spark's workers.
SAFE_PATH: Mapping[str, str] = {"PYTHONSAFEPATH": "1"}


class PythonProcess(NamedTuple):
    """How a Python process is started: in the folder `/`, without the current folder in its sys.path."""

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path = FOLDER

    def start(self, **streams: Any) -> subprocess.Popen[str]:
        """Start it. `streams`: arguments of Popen for its pipes and its session."""
        return subprocess.Popen(self.command, env=self.environment, cwd=self.folder, text=True, **streams)


def python_process(
    words: Sequence[str], environment: Mapping[str, str], *, within: Sequence[str] = ()
) -> PythonProcess:
    """Return the process of this interpreter with these arguments. Paths in them must be absolute.

    `within`: command that runs another one, such as unshare.
    """
    return PythonProcess([*within, interpreter(), *words], {**environment, **SAFE_PATH})


def interpreter() -> str:
    return sys.executable


def module_path() -> dict[str, str]:
    """Return the variable with which a child finds the modules that this process finds.

    Of a task of Airflow, this includes the folder of its plugins.
    """
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if os.path.isabs(path))}
