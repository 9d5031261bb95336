"""Mounts of a unit, with what `systemctl show` of systemd 252 prints, and folders of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import pytest

from kafka_rollout.model.host_state import UnitMount
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.nodes.runtimes.hosts.unit_mounts import read_unit_mounts
from kafka_rollout.releases.facts import Release
from tests.fakes.host import FakeHost
from tests.fakes.local_host import without_root
from tests.unit.nodes.runtimes.test_service import NODE, runtime_on

TMP = ("/tmp", "/var/tmp")  # noqa: S108 - of the unit
NONE = {
    **dict.fromkeys(("BindPaths", "BindReadOnlyPaths", "TemporaryFileSystem", "RootDirectory"), ""),
    "PrivateTmp": "no",
    "ProtectHome": "no",
}


class Host:
    """The host of a node. `shown`: what systemd shows of its unit."""

    def __init__(self, shown: Mapping[str, str]) -> None:
        self.shown = shown

    @property
    def shell(self) -> Host:
        return self

    def run(self, node: object, command: str | Sequence[str], *, text: str = "") -> Done:
        if "systemctl show" in command:
            return Done(0, "".join(f"{name}={value}\n" for name, value in self.shown.items()).encode(), "")
        ran = subprocess.run(
            [*without_root(), "sh", "-c", str(command)], input=text.encode(), capture_output=True, check=False
        )
        return Done(ran.returncode, ran.stdout, ran.stderr.decode())


def read(**shown: str) -> tuple[UnitMount, ...] | None:
    return read_unit_mounts(cast(HostCommands, Host({**NONE, **shown})), NODE)


def seen(**shown: str) -> dict[str, bool]:
    found = read(**shown)
    assert found is not None
    return {one.path: one.is_same for one in found}


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that the SSH user can enter."""
    with TemporaryDirectory(prefix="mounts-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_folder_that_is_bound_from_elsewhere_shows_other_files(home: Path) -> None:
    for name in ("fast", "data", "same"):
        (home / name).mkdir()
    (home / "link").symlink_to("same")
    binds = [f"{home}/fast:{home}/data:rbind", f"{home}/link:{home}/same:rbind"]
    binds += [f"{home}/same:{home}/link:rbind", f"-{home}/gone:{home}/x:rbind"]
    found = read(BindPaths=" ".join(binds), BindReadOnlyPaths=f"{home}/gone2:{home}/gone2:norbind")
    assert found is not None
    assert [(one.setting, one.path, one.place, one.is_same) for one in found] == [
        (f"BindPaths={binds[0]}", f"{home}/data", f"{home}/data", False),
        (f"BindPaths={binds[1]}", f"{home}/same", f"{home}/same", True),
        (f"BindPaths={binds[2]}", f"{home}/link", f"{home}/same", True),
        (f"BindReadOnlyPaths={home}/gone2:{home}/gone2:norbind", *[f"{home}/gone2"] * 2, True),
    ]


def test_a_folder_that_the_ssh_user_cannot_see_is_the_same_only_by_its_name(home: Path) -> None:
    (home / "hidden/data").mkdir(parents=True)
    (home / "hidden").chmod(0o700)
    (home / "link").symlink_to("hidden/data")
    binds = f"{home}/hidden/data:{home}/hidden/data:rbind {home}/link:{home}/hidden/data:rbind -{home}/link:/x:rbind"
    found = read(BindPaths=binds)
    assert found is not None
    assert [(one.place, one.is_same) for one in found] == [
        (f"{home}/hidden/data", True),
        (f"{home}/hidden/data", False),
        ("/x", False),
    ]


def test_each_setting_that_shows_other_files_is_read() -> None:
    assert seen() == {}
    assert seen(TemporaryFileSystem="/var:ro /srv") == {"/var": False, "/srv": False}
    assert seen(RootDirectory="/srv/root") == {"/": False}
    assert seen(RootDirectory="/") == {"/": True}
    assert seen(RootImage="/x.raw") == {"/": False}
    assert seen(MountImages="/a.raw:/b") == {"/b": False}
    assert seen(ExtensionImages="/e.raw") == seen(ExtensionDirectories="/e") == {"/usr": False, "/opt": False}
    assert seen(PrivateTmp="yes") == seen(PrivateTmp="disconnected") == dict.fromkeys(TMP, False)
    assert seen(ProtectHome="tmpfs") == {"/home": False, "/root": False, "/run/user": False}
    assert seen(ProtectHome="yes") == seen(ProtectHome="read-only") == {}, "closed is no other file"


@pytest.mark.parametrize(
    "shown", [{"BindPaths": '/mnt/a b:/srv/x:"/mnt/a b:/srv/x":rbind'}, {"TemporaryFileSystem": "x y"}]
)
def test_a_text_with_several_readings_is_unknown(shown: dict[str, str]) -> None:
    assert read(**shown) is None


def test_a_host_that_shows_no_mounts_is_unknown() -> None:
    assert read_unit_mounts(cast(HostCommands, Host({"BindPaths": ""})), NODE) is None
    state = runtime_on(FakeHost(mounts={"BindPaths": "x"})).host(NODE, [Release(4, 3, 1)])
    assert (state.mounts, state.unknown) == ((), ("the mounts of kafka.service (`systemctl show`)",))
