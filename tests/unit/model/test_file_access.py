"""The modes of files and folders decide as the kernel decides."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kafka_rollout.model.file_access import FileMode, UnitUser, Use, access_of

KAFKA = UnitUser(name="kafka", user_id=1501, group_ids=frozenset({1501, 1600}))
ROOT = UnitUser(name="root", user_id=0, passes_modes=True)


def file(mode: int, owner: int = 1500, group: int = 1500, *, path: str = "/x/f", has_acl: bool = False) -> FileMode:
    return FileMode(path=path, mode=mode, user_id=owner, group_id=group, has_acl=has_acl)


FOLDER = file(0o755, path="/x")


@pytest.mark.parametrize(
    ("mode", "use", "can"),
    [
        (file(0o644), Use.READ, True),
        (file(0o640), Use.READ, False),
        (file(0o640, group=1600), Use.READ, True),
        (file(0o604, group=1600), Use.READ, False),  # the group alone decides
        (file(0o077, owner=1501), Use.READ, False),  # and so does the owner
        (file(0o644), Use.EXECUTE, False),
        (file(0o711), Use.EXECUTE, True),
        (file(0o711, path="/x/start.sh"), Use.EXECUTE, False),  # a shell reads it
        (file(0o755, path="/x/start.sh"), Use.EXECUTE, True),
        (file(0o711), Use.ENTER, True),
        (file(0o711), Use.LIST, False),
        (file(0o000), Use.REACH, True),
        (file(0o644, owner=1501), Use.WRITE, True),
        (file(0o644), Use.WRITE, False),
        (file(0o755, owner=1501), Use.CREATE, True),
        (file(0o622), Use.CREATE, False),  # a name is made only in a folder that can be entered
        (file(0o775, group=1600), Use.CREATE, True),
        (file(0o640, has_acl=True), Use.READ, None),
        (file(0o604, has_acl=True), Use.READ, None),
        (file(0o710, has_acl=True), Use.READ, False),  # the mask permits it to no user of the list
        (file(0o400, owner=1501, has_acl=True), Use.READ, True),
    ],
)
def test_the_first_class_that_fits_decides(mode: FileMode, use: Use, can: bool | None) -> None:
    access = access_of(KAFKA, [FOLDER], mode, use)
    assert (access.refused == "" if access.unknown == "" else None) == can
    assert access.place == ("" if can is not False else mode.path)


def test_the_first_folder_that_refuses_is_named_also_behind_an_unknown_one() -> None:
    private = file(0o750, path="/x")
    assert access_of(KAFKA, [FOLDER, private], file(0o777), Use.READ).refused == (
        "cannot enter /x (mode 0750, owner 1500, group 1500)"
    )
    assert access_of(KAFKA, ["/hidden", private], "/x/f", Use.READ).place == "/x"
    assert access_of(KAFKA, [FOLDER, "/hidden"], file(0o777), Use.READ).unknown == "the mode of /hidden is not known"


def test_root_needs_one_right_to_execute_and_no_other() -> None:
    assert access_of(ROOT, [file(0o000)], file(0o000), Use.READ).refused == ""
    assert access_of(ROOT, [], file(0o100), Use.EXECUTE).refused == ""
    assert access_of(ROOT, [], file(0o666), Use.EXECUTE).place == "/x/f"


@pytest.mark.parametrize(("is_on_noexec", "expected"), [(True, (True, False)), (None, (False, True))])
def test_a_file_system_can_refuse_to_execute(is_on_noexec: bool | None, expected: tuple[bool, bool]) -> None:
    mode = FileMode(path="/x/f", mode=0o755, user_id=0, group_id=0, is_on_noexec=is_on_noexec)
    for user in (KAFKA, ROOT):
        access = access_of(user, [], mode, Use.EXECUTE)
        assert (bool(access.refused), bool(access.unknown)) == expected
        assert access_of(user, [], mode, Use.READ).refused == ""


def test_a_unit_does_not_see_what_its_sandbox_hides() -> None:
    user = UnitUser(name="kafka", user_id=1501, hidden=("/run/user",))
    assert access_of(user, [], file(0o777, path="/run/user/1/x"), Use.READ).place == "/run/user/1/x"
    assert access_of(user, [], file(0o777, path="/run/users/x"), Use.READ).refused == ""


def test_a_unit_sees_what_is_bound_into_a_hidden_folder() -> None:
    user = UnitUser(name="kafka", user_id=1501, hidden=("/users",), bound=("/users/kafka",))
    assert access_of(user, [], file(0o644, path="/users/kafka/x"), Use.READ).refused == ""
    assert access_of(user, [], file(0o640, path="/users/kafka/x"), Use.READ).place == "/users/kafka/x"
    assert access_of(user, [], file(0o644, path="/users/kafka2/x"), Use.READ).place == "/users/kafka2/x"


def test_an_unknown_user_is_no_refusal() -> None:
    user = UnitUser(name="kafka", unknown="no id")
    assert access_of(user, [file(0o000)], file(0o000), Use.READ).unknown == "no id"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a command as another user")
def test_the_kernel_decides_in_the_same_way() -> None:
    with TemporaryDirectory(prefix="file-access-") as name:
        home = Path(name)
        home.chmod(0o755)
        for number in range(0o1000):
            path = home / f"{number:04o}"
            path.touch()
            os.chown(path, *[(1501, 7), (7, 1600), (7, 7)][number % 3])
            path.chmod(number)
        script = "import os, sys\nfor name in sys.argv[1:]: print(*(int(os.access(name, how)) for how in (4, 1)))"
        names = [str(path) for path in sorted(home.iterdir())]
        for user, groups in ((KAFKA, [1600]), (ROOT, [])):
            done = subprocess.run(
                ["/usr/bin/env", "python3", "-c", script, *names],
                capture_output=True,
                text=True,
                check=True,
                user=user.user_id,
                group=user.user_id,
                extra_groups=groups,
            )
            for path, line in zip(names, done.stdout.splitlines(), strict=True):
                status = os.stat(path)
                mode = FileMode(path=path, mode=status.st_mode & 0o777, user_id=status.st_uid, group_id=status.st_gid)
                ours = [access_of(user, [], mode, use).refused == "" for use in (Use.READ, Use.EXECUTE)]
                assert f"{ours[0]:d} {ours[1]:d}" == line, path


@pytest.mark.parametrize(
    ("closed", "opened", "path", "use", "shown"),
    [
        (("/",), ("/usr", "/opt/kafka_2.13-3.9.1"), "/opt/kafka_2.13-4.3.1/bin/x.sh", Use.EXECUTE, "NoExecPaths=/ "),
        (("/",), ("/usr", "/opt/kafka_2.13-*"), "/opt/kafka_2.13-4.3.1/bin/x.sh", Use.EXECUTE, ""),
        (("/",), ("/opt",), "/opt/kafka_2.13-4.3.1/bin/x.sh", Use.EXECUTE, ""),
        (("/opt/rel",), ("/opt",), "/opt/rel/kafka/bin/x.sh", Use.EXECUTE, "NoExecPaths=/opt/rel "),
        (("/opt/rel",), (), "/opt/release/kafka/bin/x.sh", Use.EXECUTE, ""),
        (("/",), (), "/opt/kafka/libs/x.jar", Use.READ, ""),
    ],
)
def test_a_program_is_executed_where_the_unit_permits_it(
    closed: tuple[str, ...], opened: tuple[str, ...], path: str, use: Use, shown: str
) -> None:
    user = UnitUser(name="kafka", user_id=1501, unexecutable=closed, executable=opened)
    access = access_of(user, [FOLDER], file(0o755, path=path), use)
    assert (access.refused != "", shown in access.refused) == (shown != "", True)
    assert access.place == (path if shown else "")


def test_what_the_unit_cannot_enter_is_refused_also_to_root() -> None:
    for user in (KAFKA, ROOT):
        closed = replace(user, inaccessible=("/opt/rel",))
        access = access_of(closed, [FOLDER], file(0o644, path="/opt/rel/kafka/libs"), Use.READ)
        assert access.refused == "cannot enter /opt/rel (InaccessiblePaths= of the unit)"
        assert access_of(closed, [FOLDER], file(0o644, path="/opt/x"), Use.READ).refused == ""
