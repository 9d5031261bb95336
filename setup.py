"""Copies include/ into the wheel as data of the package. In an editable install it is read where it is."""

from pathlib import Path
from shutil import copytree

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithData(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            copytree(Path("include"), Path(self.build_lib) / "kafka_rollout" / "data", dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithData})
