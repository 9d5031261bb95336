"""Whether the next process of a broker can load the libraries that it unpacks, before its stop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.planning.findings.start_writes import start_write_findings
from kafka_rollout.releases.facts import Release
from tests.fakes.host import FakeHost
from tests.unit.nodes.runtimes.test_service import NODE, runtime_on

R431 = Release(4, 3, 1)
BLOCKED, WARNED = [("CODEC-NOT-LOADABLE", "blocker")], [("CODEC-NOT-LOADABLE", "warning")]
TMP = "/tmp"  # noqa: S108 - of the host
OPEN, CLOSED = "drwxrwxrwt. 1 0 0", "drwxr-xr-x. 1 0 0"


def found(*options: str, **host: object) -> list[tuple[str, str]]:
    words = "".join(f"arg {one}\n" for one in options)
    jvm = f'env "KAFKA_OPTS={" ".join(options)}"\narg java\narg -Da=b c\n{words}'
    fake = replace(FakeHost(jvm=jvm, words=("java", "-Da=b c", *options)), **host)
    state = runtime_on(fake).host(NODE, [R431])
    problems = list(start_write_findings(NODE, state, (R431,)))
    return [(one.code, one.severity.value) for one in problems if one.code == "CODEC-NOT-LOADABLE"]


def test_a_folder_that_is_mounted_with_noexec_closed_or_gone_stops_the_plan() -> None:
    assert found() == []
    assert found(noexec={TMP}) == BLOCKED
    assert found(modes={"/": CLOSED, TMP: CLOSED}) == BLOCKED
    assert found(gone={TMP}) == BLOCKED


@pytest.mark.parametrize(
    ("options", "noexec", "expected"),
    [
        (("-Djava.io.tmpdir=/srv/tmp",), {TMP}, []),
        (("-Djava.io.tmpdir=/srv/tmp",), {"/srv/tmp"}, BLOCKED),
        (("-DZstdTempFolder=/srv/tmp",), {TMP}, BLOCKED),
        (("-DZstdTempFolder=/srv/tmp", "-Dorg.xerial.snappy.tempdir=/srv/tmp"), {TMP}, []),
        (("-DZstdTempFolder=/srv/tmp", "-Dorg.xerial.snappy.tempdir=/srv/tmp"), {"/srv/tmp"}, BLOCKED),
        (("-DZstdNativePath=/srv/libzstd.so", "-Dorg.xerial.snappy.use.systemlib=true"), {TMP}, []),
    ],
)
def test_the_folders_of_the_next_start_are_asked(
    options: tuple[str, ...], noexec: set[str], expected: list[tuple[str, str]]
) -> None:
    assert found(*options, noexec=noexec, modes={"/": CLOSED, "/srv": CLOSED, "/srv/tmp": OPEN, TMP: OPEN}) == expected


def test_snappy_makes_its_folder_and_zstd_does_not() -> None:
    modes = {"/": CLOSED, "/srv": OPEN, TMP: OPEN}
    assert found("-Dorg.xerial.snappy.tempdir=/srv/tmp", gone={"/srv/tmp"}, modes=modes) == []
    assert found("-DZstdTempFolder=/srv/tmp", gone={"/srv/tmp"}, modes=modes) == BLOCKED


def test_a_private_folder_is_of_the_file_system_of_the_host() -> None:
    private = {"PrivateTmp": "yes"}
    assert found(mounts=private, modes={"/": CLOSED, TMP: CLOSED}) == []
    assert found(mounts=private, noexec={TMP}) == BLOCKED
    assert found(f"-Djava.io.tmpdir={TMP}/kafka", mounts=private) == BLOCKED  # it is empty at the start
    assert found(mounts={"PrivateTmp": "disconnected"}, noexec={TMP}) == []
    assert found(mounts={"TemporaryFileSystem": f"{TMP}:mode=1777"}) == WARNED


def test_the_sentence_names_what_the_node_refuses() -> None:
    state = runtime_on(FakeHost(noexec={TMP})).host(NODE, [R431])
    (told,) = (one for one in start_write_findings(NODE, state, (R431,)) if one.code == "CODEC-NOT-LOADABLE")
    assert f"cannot load libraries from {TMP}: its file system is mounted with noexec" in told.sentence
    assert "refuse each batch with zstd or snappy" in told.sentence
    assert "-Djava.io.tmpdir=FOLDER" in told.remedy
