"""Files are written whole with the rights that were asked for, and only regular files are opened."""

from __future__ import annotations

import os
import signal
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.files import (
    check_readable,
    is_private,
    open_below,
    open_regular,
    read_if_exists,
    read_regular,
    tail_of,
    write_file,
    write_whole,
    writing_whole,
)

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")


def rights(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_a_new_file_has_the_mode_that_is_asked_for_less_the_umask(tmp_path: Path) -> None:
    write_whole(tmp_path / "secret", b"x")
    write_whole(tmp_path / "shown", b"x", mode=0o644)
    assert [rights(tmp_path / name)[0] for name in ("secret", "shown")] == [0o600, 0o640]


@needs_root
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_file_gets_mode_and_owner_of_another_or_of_the_one_that_it_replaces(tmp_path: Path, mode: int) -> None:
    config = tmp_path / "server.properties"
    config.write_text("ssl.keystore.password=hunter2\n")
    config.chmod(mode)
    os.chown(config, NOBODY, NOBODY)
    write_whole(tmp_path / "copy", b"x", like=config)
    write_whole(config, b"y", like=config)
    assert rights(config) == rights(tmp_path / "copy") == (mode, NOBODY, NOBODY)
    assert config.read_bytes() == b"y"


@needs_root
def test_a_process_that_cannot_give_a_file_to_its_owner_changes_nothing() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        config = folder / "server.properties"
        config.write_text("a=b\n")
        child = os.fork()
        if child == 0:
            try:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                write_whole(config, b"y", like=config)
            except UserError as error:
                os._exit(0 if f"runs as user id {NOBODY}" in error.sentence and error.remedy else 2)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert config.read_text() == "a=b\n"
        assert os.listdir(folder) == ["server.properties"]


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write() -> None:
        with writing_whole(path) as file:
            file.write(b"new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write()
    assert os.listdir(tmp_path) == ["file"]
    assert path.read_bytes() == b"old"


@pytest.fixture
def in_time() -> Iterator[None]:
    """To open a FIFO waits until a process writes to it."""
    signal.alarm(20)
    yield
    signal.alarm(0)


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("kind", ["FIFO", "socket", "folder", "character device"])
def test_what_is_no_file_is_named_and_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.yaml"
    match kind:
        case "FIFO":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to("/dev/null")
    for read in (open_regular, read_regular, check_readable, lambda path: tail_of(path, 3)):
        with pytest.raises(UserError, match=rf"x\.yaml is a {kind}, not a file"):
            read(path)


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_path_that_no_file_can_have_is_named(tmp_path: Path, name: str) -> None:
    for read in (open_regular, read_regular, read_if_exists, check_readable, lambda path: tail_of(path, 3)):
        with pytest.raises(UserError, match=r"/a.+b' is not a path"):
            read(tmp_path / name)


@pytest.mark.parametrize("parts", [(".lock",), ("logs", "stdout.log")])
@pytest.mark.parametrize("trap", ["link", "hard link", "folder of a link", "fifo", "folder"])
def test_a_file_below_a_folder_of_another_user_is_not_that_of_a_third_one(
    tmp_path: Path, parts: tuple[str, ...], trap: str
) -> None:
    victim, home = tmp_path / "victim", tmp_path / "home"
    victim.write_bytes(b"secret")
    (tmp_path / "of-others").mkdir()
    path = home.joinpath(*parts)
    path.parent.mkdir(parents=True)
    match trap:
        case "link":
            path.symlink_to(victim)
        case "hard link":
            path.hardlink_to(victim)
        case "folder of a link":
            if len(parts) == 1:
                return
            path.parent.rmdir()
            path.parent.symlink_to(tmp_path / "of-others")
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
    with pytest.raises((UserError, IsADirectoryError)):
        open_below(home, *parts, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    assert victim.read_bytes() == b"secret"
    assert not list((tmp_path / "of-others").iterdir())


def test_a_file_below_a_folder_is_not_truncated(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one ")
    with os.fdopen(open_below(tmp_path, "log", flags=os.O_WRONLY | os.O_APPEND | os.O_TRUNC), "ab") as file:
        file.write(b"two")
    assert (tmp_path / "log").read_bytes() == b"one two"


@pytest.mark.parametrize(
    ("mode", "private"), [(0o700, True), (0o755, True), (0o775, False), (0o777, False), (0o1777, False)]
)
def test_a_folder_is_private_if_nobody_else_can_write_it(tmp_path: Path, mode: int, private: bool) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(mode)
    assert is_private(folder) is private
    assert is_private(folder / "new") is private
    (folder / "own").mkdir(mode=0o700)
    assert is_private(folder / "own") is (private or mode == 0o1777)


# --- a file that the user named for output ---


def test_a_link_stays_and_its_file_is_replaced_with_its_mode(tmp_path: Path) -> None:
    page, link = tmp_path / "www" / "report.html", tmp_path / "report.html"
    page.parent.mkdir()
    page.write_text("old and longer")
    page.chmod(0o644)
    link.symlink_to("www/report.html")
    write_file(link, b"new")
    assert link.is_symlink()
    assert (page.read_text(), stat.S_IMODE(page.stat().st_mode)) == ("new", 0o644)


def test_a_link_to_a_missing_file_makes_this_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


@pytest.mark.usefixtures("umask")
def test_a_new_file_has_the_mode_that_its_kind_needs_less_the_umask(tmp_path: Path) -> None:
    write_file(tmp_path / "result", b"new")
    write_file(tmp_path / "page", b"new", mode=0o666)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("result", "page")]
    assert modes == [0o600, 0o640]


def test_a_fifo_gets_the_content_and_stays(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    write_file(fifo, b"new")
    assert (os.read(reader, 10), stat.S_ISFIFO(fifo.stat().st_mode)) == (b"new", True)
    os.close(reader)


@needs_root
def test_a_device_stays(tmp_path: Path) -> None:
    null = tmp_path / "null"
    os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    write_file(null, b"new")
    assert stat.S_ISCHR(null.stat().st_mode)


@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_an_open_descriptor_gets_the_content(folder: str, tmp_path: Path) -> None:
    """`--output /dev/stdout | jq`, `--output >(jq)`, `--output /dev/stdout > file`."""
    ends = os.pipe()
    write_file(Path(folder, str(ends[1])), b"new")
    assert os.read(ends[0], 10) == b"new"
    for end in ends:
        os.close(end)
    with (tmp_path / "file").open("wb") as file:
        write_file(Path(folder, str(file.fileno())), b"new")
        assert os.fstat(file.fileno()).st_ino == (tmp_path / "file").stat().st_ino
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        write_file(tmp_path, b"new")
