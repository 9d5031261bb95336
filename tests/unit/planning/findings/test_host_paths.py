"""Findings about who can change what a run changes on a host."""

from __future__ import annotations

import stat
from dataclasses import replace

import pytest

from kafka_rollout.model.file_access import FileAccess
from kafka_rollout.model.host_state import HostFacts, HostPath, HostState, StartWrite
from kafka_rollout.model.topology import NodeSpec, PackageSpec, Role, ServiceSpec, paths_in
from kafka_rollout.planning.findings.hosts import path_findings
from tests.unit.builders import R431

FILE = "/etc/kafka/server.properties"
FOLDER, LINK, REGULAR = 0o040000, 0o120000, 0o100000


def path(name: str, mode: int = 0o755, owner: str = "root", kind: int = FOLDER) -> HostPath:
    return HostPath(path=name, mode=kind | mode, user_id=0 if owner == "root" else 997, owner=owner)


SAFE = [path(name) for name in ("/", "/etc", "/etc/kafka", "/opt", "/opt/releases")]
SAFE.append(path(FILE, 0o640, kind=REGULAR))


def found(*changed: HostPath, state: dict[str, object] | None = None, **service: object) -> list[tuple[str, str]]:
    paths = {one.path: one for one in (*SAFE, *changed)}
    host = HostState(
        name="kafka-4",
        unit="kafka.service",
        symlink="/opt/kafka",
        folders={},
        releases=frozenset(),
        symlink_can_switch=True,
        stop_timeout_s=300.0,
        login="rollout",
        paths=tuple(paths.values()),
    )
    spec = ServiceSpec(host="kafka-4", installation="/opt/releases/{release}", **service)  # type: ignore[arg-type]
    node = NodeSpec(node_id=4, name="kafka-4", roles=frozenset({Role.BROKER}), service=spec)
    seen = path_findings(node, replace(host, **(state or {})))  # type: ignore[arg-type]
    return [(one.code, f"{one.sentence} {one.remedy}") for one in seen]


def test_folders_of_root_give_no_finding() -> None:
    assert found() == []
    assert found(path(FILE, 0o640, "kafka", REGULAR)) == [], "its folder belongs to root"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (path("/etc/kafka", owner="kafka"), "/etc/kafka belongs to kafka with mode 755"),
        (path("/etc/kafka", 0o777), "/etc/kafka belongs to root with mode 777"),
        (path("/etc/kafka", 0o775), "/etc/kafka belongs to root with mode 775"),
        (path("/etc/kafka", 0o777, kind=LINK), "/etc/kafka is a symbolic link"),
        (path("/opt", owner="kafka"), "Root switches the link /opt/kafka"),
    ],
)
def test_root_writes_only_where_root_alone_can_change_the_path(changed: HostPath, says: str) -> None:
    ((code, sentence),) = found(changed)
    assert code == "HOST-PATH-UNSAFE"
    assert says in sentence


def test_a_home_that_others_cannot_enter_is_not_given_to_root() -> None:
    home = "/srv/kafka"
    ((_, text),) = found(path("/srv"), path(home, 0o700, "kafka"), symlink=f"{home}/kafka")
    assert f"Do not give {home} to root" in text
    assert "chown" not in text
    ((_, text),) = found(path("/srv"), path(home, 0o755, "kafka"), symlink=f"{home}/kafka")
    assert f"Run `chown root {home}`" in text


def test_a_folder_of_root_keeps_its_owner() -> None:
    ((_, text),) = found(path("/etc/kafka", 0o2770))
    assert text.endswith("Run `chmod go-w /etc/kafka`.") or "Run `chmod go-w /etc/kafka`. If" in text
    assert "chown" not in text
    ((_, text),) = found(path("/srv", 0o775), path("/srv/kafka", 0o775, "kafka"), symlink="/srv/kafka/kafka")
    assert "Run `chown root /srv/kafka` and `chmod go-w /srv /srv/kafka`." in text


def test_a_folder_in_which_others_or_the_process_write_is_not_closed() -> None:
    ((_, text),) = found(path("/srv", 0o1777), symlink="/srv/kafka")
    assert "Do not change /srv, into which other programs of the host write. Install Kafka in another" in text
    assert "chmod" not in text
    data = [path("/srv"), path("/srv/data", 0o755, "kafka")]
    states: tuple[dict[str, object], ...] = (
        {"facts": HostFacts(opened=("/srv/data/orders-0/1.log", "/srv/data/.lock"))},
        {"writes": (StartWrite(release=R431, path="/srv/data", place="/srv/data", access=FileAccess(), moves=False),)},
    )
    for state in states:
        ((_, text),) = found(*data, symlink="/srv/data/kafka", state=state)
        assert "Do not give /srv/data to root: Kafka writes into it" in text
        assert "chown" not in text
    below: dict[str, object] = {"facts": HostFacts(opened=("/srv/data/logs/server.log",))}
    ((_, text),) = found(*data, symlink="/srv/data/kafka", state=below)
    assert "Run `chown root /srv/data`" in text


def test_the_user_of_the_node_writes_a_configuration_that_belongs_to_this_user() -> None:
    own = [path("/etc/kafka", owner="kafka"), path(FILE, 0o640, "kafka", REGULAR)]
    assert found(*own, configuration_writer="user") == []
    assert [code for code, _ in found(configuration_writer="user")] == ["CONFIGURATION-OWNER"]
    assert found(path("/etc/kafka", owner="kafka"), managed_elsewhere=True) == []


@pytest.mark.parametrize("writer", ["root", "user"])
def test_a_configuration_that_is_a_link_has_no_copies_and_is_refused(writer: str) -> None:
    owner = "root" if writer == "root" else "kafka"
    paths = (path("/etc/kafka", owner=owner), path(FILE, 0o777, owner, LINK))
    ((code, sentence),) = found(*paths, configuration_writer=writer)
    assert code == "CONFIGURATION-IS-LINK"
    assert f"{FILE} on host kafka-4 is a symbolic link" in sentence
    assert found(*paths, configuration_writer=writer, managed_elsewhere=True) == [], "the run does not write it"


def test_an_archive_needs_a_folder_of_the_ssh_user_that_the_node_cannot_change() -> None:
    releases = path("/opt/releases", owner="rollout")
    brought: dict[str, object] = {"brought": frozenset({R431})}
    assert found(releases, state=brought, archive="/a/{release}") == []
    ((code, sentence),) = found(state={**brought, "can_unpack": False}, archive="/a/{release}")
    assert (code, "The SSH user rollout cannot write into /opt/releases" in sentence) == ("RELEASES-NOT-WRITABLE", True)
    ((code, sentence),) = found(path("/opt/releases", owner="kafka"), state=brought, archive="/a/{release}")
    assert (code, "kafka could redirect the files" in sentence) == ("HOST-PATH-UNSAFE", True)


def test_a_process_of_root_makes_the_ssh_user_root() -> None:
    ((code, sentence),) = found(state={"runs_as_root": True})
    assert (code, "The process of kafka.service on host kafka-4 runs as root" in sentence) == (
        "UNIT-RUNS-AS-ROOT",
        True,
    )


def test_rights_that_make_the_ssh_user_root_are_listed() -> None:
    ((code, sentence),) = found(state={"excess": ("(root) NOPASSWD: /usr/bin/tar x",)})
    assert code == "HOST-RIGHT-EXCESS"
    assert "(root) NOPASSWD: /usr/bin/tar x" in sentence


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            path("/usr/local/sbin/install", 0o777, kind=REGULAR),
            "Root uses /usr/local/sbin/install on host kafka-4",
        ),
        (path("/usr/local/sbin/install", owner="kafka", kind=REGULAR), "belongs to kafka"),
        (path("/usr/local/sbin", 0o775), "/usr/local/sbin belongs to root with mode 775"),
        (path("/srv/debs", owner="kafka"), "/srv/debs belongs to kafka"),
        (
            path("/srv/debs/kafka_8.3.1-1_all.deb", owner="kafka", kind=REGULAR),
            "kafka_8.3.1-1_all.deb belongs to kafka",
        ),
        (
            path("/srv/debs/kafka_7.9.1-1_all.deb", owner="kafka", kind=REGULAR),
            "kafka_7.9.1-1_all.deb belongs to kafka",
        ),
        (path("/usr/local/sbin/try", owner="kafka", kind=REGULAR), "Root uses /usr/local/sbin/try on host kafka-4"),
        (path("/etc/kafka.apt", owner="kafka", kind=REGULAR), "Root uses /etc/kafka.apt on host kafka-4"),
        (path("/opt", owner="kafka"), ""),
    ],
)
def test_root_runs_only_programs_that_root_alone_can_change(changed: HostPath, says: str) -> None:
    files = [f"/srv/debs/kafka_{version}_all.deb" for version in ("8.3.1-1", "7.9.1-1")]
    package = PackageSpec(
        install=("/usr/local/sbin/install", "/srv/debs/kafka_{version}_all.deb", "--config=/etc/kafka.apt"),
        check=("/usr/local/sbin/try", "{version}"),
        versions={"4.3.1": "8.3.1-1", "3.9.1": "7.9.1-1"},
    )
    assert package.root_paths == ("/usr/local/sbin/install", "/etc/kafka.apt", "/usr/local/sbin/try", *files)
    sentences = [sentence for code, sentence in found(changed, package=package) if code == "HOST-PATH-UNSAFE"]
    assert len(sentences) == (0 if not says else 2 if changed.path in ("/srv/debs", "/usr/local/sbin") else 1)
    assert says in "".join(sentences)


@pytest.mark.parametrize(
    ("end", "is_safe"),
    [
        (path("/usr/bin/dnf-3", 0o755, kind=REGULAR), True),
        (path("/opt/tools", 0o755, "kafka"), False),
        (path("/opt/tools", 0o775), False),
        (path("/opt/tools/install.sh", 0o755, "kafka", REGULAR), False),
        (path("/opt/tools/current", 0o777, "kafka", stat.S_IFLNK), True),
    ],
)
def test_a_program_that_is_a_link_is_followed_to_what_root_runs(end: HostPath, is_safe: bool) -> None:
    program = "/usr/local/sbin/install"
    package = PackageSpec(install=(program, "{version}"), check=("/usr/bin/true", "{version}"))
    link = path(program, 0o777, kind=stat.S_IFLNK)
    sentences = [
        sentence
        for code, sentence in found(link, state={"leads": {program: (path("/"), link, end)}}, package=package)
        if code == "HOST-PATH-UNSAFE"
    ]
    assert len(sentences) == (0 if is_safe else 1)
    assert is_safe or f"Root uses {program} on host kafka-4, a link, and {end.path} belongs to" in sentences[0]


@pytest.mark.parametrize(
    ("word", "paths"),
    [
        ("/srv/kafka_{version}_all.deb", ["/srv/kafka_{version}_all.deb"]),
        ("--config=/srv/x", ["/srv/x"]),
        ("-c/srv/x/", ["/srv/x"]),
        ("Dir::Etc=/srv/x", ["/srv/x"]),
        ("DPkg::Pre-Invoke::=/srv/x", ["/srv/x"]),
        ("PATH=/usr/bin:/srv/x", ["/usr/bin", "/srv/x"]),
        ("--setopt=reposdir=/etc/a,/srv/b", ["/etc/a", "/srv/b"]),
        ("--repofrompath=x,/srv/x", ["/srv/x"]),
        ("Dir::Etc::sourceparts=/dev/null", []),
        ("/", ["/"]),
        *((word, []) for word in ("kafka={version}-1", "kafka-{version}-1.x86_64", "Dpkg::Options::=--force-confold")),
    ],
)
def test_the_files_in_a_word_of_a_command_are_found(word: str, paths: list[str]) -> None:
    assert list(paths_in(word)) == paths


@pytest.mark.parametrize(
    "word",
    [
        *("./kafka.deb", "../kafka", ".", ".config", "--config=.x", "kafka_{version}.deb", "kafka.rpm", "debs/kafka"),
        *("--config=home/x", "Dir::Etc=etc/apt", "-cetc/x", "--file=kafka.deb", "~/kafka", "--config=~/x"),
        *(
            "/srv/a,b.deb",
            "--files=a.deb,/srv/b.deb",
            "/srv/kafka_1:2.deb",
            "https://example.com/kafka.rpm",
            "file:///srv/kafka.rpm",
        ),
    ],
)
def test_a_file_whose_place_is_not_known_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="has a relative path or a URL: write the absolute path of a file"):
        paths_in(word)
