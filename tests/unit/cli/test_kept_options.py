"""What a run keeps of the command that started it, so that the printed commands work as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.cli import app as cli
from kafka_rollout.cli import options, show
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.run.events import Called, events_of
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.printed import filled_in, printed_commands
from tests.records import run_history, run_ids

Shell = Callable[..., tuple[int, str]]
UPGRADE = "upgrade --cluster fake --to 4.3.1"
APPROVED = "--as alice --reason test --yes"
REFUSED = "--as mallory --reason test --yes"
PLAIN = "--no-scan --no-rehearse"


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    file = tmp_path / "client.properties"
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def used() -> list[ClientSecurity | None]:
    """The credentials of each call."""
    return []


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(R391)


@pytest.fixture
def shell(
    tmp_path: Path,
    cluster: FakeCluster,
    used: list[ClientSecurity | None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shell:
    clusters = tmp_path / "clusters"
    clusters.mkdir()
    nodes = tuple(replace(node, directory=str(tmp_path / node.name)) for node in cluster.spec.nodes)
    (clusters / "fake.yaml").write_text(dump_cluster(replace(cluster.spec, nodes=nodes)))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(clusters))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))

    @contextmanager
    def opened(name: str, run: str, security: ClientSecurity | None, settings: Any) -> Iterator[Any]:
        used.append(security)
        yield fake_ports(cluster, tmp_path / "home", run_id=run)

    monkeypatch.setattr(options, "open_cluster_ports", opened)

    def call(*words: str) -> tuple[int, str]:
        code = cli.run_main(" ".join(words).split())
        said = capsys.readouterr()
        return code, said.out + said.err

    return call


def kept(tmp_path: Path) -> tuple[str, tuple[Called, ...]]:
    (run,) = run_ids(tmp_path / "home", "fake")
    return run, events_of(run_history(tmp_path / "home", "fake", run).events(), Called)


def read(called: Called) -> dict[str, Any]:
    return {name: json.loads(value) for name, value in called.options.items()}


def test_a_continued_run_keeps_the_options_that_it_was_started_with(tmp_path: Path, shell: Shell) -> None:
    began = shell(UPGRADE, PLAIN, "--pace fast --accept-unavailable tmp-*", REFUSED)
    assert began[0] == 3
    run, (first,) = kept(tmp_path)
    named = {"target": "4.3.1", "scan": False, "rehearse": False, "pace": "fast"}
    assert read(first) == {**named, "accept_unavailable": ["tmp-*"]}
    code, said = shell(UPGRADE, "--run", run, "--pace careful", APPROVED)
    assert code == 0, said
    _, (_, second) = kept(tmp_path)
    assert read(second) == {**read(first), "pace": "careful"}
    assert "gate after node 2: check 1 of 5 passed" in said


def test_an_empty_text_takes_a_kept_list_back(tmp_path: Path, shell: Shell) -> None:
    shell(UPGRADE, PLAIN, "--accept-unavailable tmp-*", REFUSED)
    run, _ = kept(tmp_path)
    code, said = shell(UPGRADE, "--run", run, "--accept-unavailable=", APPROVED)
    assert code == 0, said
    assert [read(called)["accept_unavailable"] for called in kept(tmp_path)[1]] == [["tmp-*"], [""]]


def test_a_dry_run_does_not_hide_a_run_that_was_approved(tmp_path: Path, shell: Shell) -> None:
    assert shell(UPGRADE, PLAIN, "--pause-after first-node", APPROVED)[0] == 130
    run, before = kept(tmp_path)
    code, said = shell(UPGRADE, "--run", run, "--dry-run --no-scan")
    assert (code, "Omit --run to start a new dry run." in said) == (2, True)
    assert kept(tmp_path) == (run, before)


def test_the_call_that_watched_a_node_does_not_answer_the_pause_after_it(
    tmp_path: Path, shell: Shell, cluster: FakeCluster
) -> None:
    """The first call was killed while the node soaked: nobody has looked at the node since."""
    killed: list[bool] = []

    def kill(seconds: float) -> None:
        if cluster.stops and not killed:
            killed.append(True)
            raise SystemError("killed")

    sleep, cluster.clock.on_sleep = cluster.clock.on_sleep, kill
    shell(UPGRADE, PLAIN, "--pause-after first-node", APPROVED)
    cluster.clock.on_sleep = sleep
    run, _ = kept(tmp_path)
    for stops in ([2], [2, 3, 1, 11, 12, 13]):
        code, said = shell(UPGRADE, "--run", run, APPROVED)
        assert (code, cluster.stops) == (130 if stops == [2] else 0, stops), said


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("", "--pause-after first-node"),
        ("--pause-after node", "--pause-after="),
        ("--pause-after first-node", "--pause-after node"),
    ],
)
def test_a_term_that_the_kept_plan_has_in_another_way_is_refused(
    tmp_path: Path, shell: Shell, cluster: FakeCluster, first: str, later: str
) -> None:
    shell(UPGRADE, PLAIN, first, REFUSED)
    run, _ = kept(tmp_path)
    code, said = shell(UPGRADE, "--run", run, later, APPROVED)
    option, planned = re.split("[ =]", later)[0], first.partition(" ")[2] or "none"
    assert (code, cluster.stops) == (2, [])
    assert said.endswith(f"another value of {option}: {planned}. Omit {option}, or start a new run.\n")


@pytest.mark.parametrize("option", ["pin-min-insync-replicas", "traffic"])
def test_a_kept_switch_is_taken_back(tmp_path: Path, shell: Shell, option: str) -> None:
    shell(UPGRADE, PLAIN, f"--{option}", REFUSED)
    run, (first,) = kept(tmp_path)
    (name,) = {name for name, value in read(first).items() if value is True}
    code, said = shell(UPGRADE, "--run", run, f"--no-{option}", REFUSED)
    assert code == 3, said
    assert read(kept(tmp_path)[1][-1])[name] is False


def test_the_history_of_a_continued_run_is_read_once_for_its_last_call(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell(UPGRADE, PLAIN, REFUSED)
    run, _ = kept(tmp_path)
    asked, kept_call = [], options.kept_call

    def recorded(*given: Any) -> Called:
        asked.append(given)
        return kept_call(*given)

    monkeypatch.setattr(options, "kept_call", recorded)
    assert shell(UPGRADE, "--run", run, REFUSED)[0] == 3
    assert len(asked) == 1


def test_a_dry_run_is_carried_out_with_its_options_by_the_command_that_it_prints(
    tmp_path: Path, shell: Shell, credentials: Path, used: list[ClientSecurity | None]
) -> None:
    code, said = shell(UPGRADE, PLAIN, "--pace careful --dry-run --command-config", str(credentials))
    _, (called,) = kept(tmp_path)
    assert (code, read(called)) == (0, {"target": "4.3.1", "scan": False, "rehearse": False, "pace": "careful"})
    (command,) = printed_commands(said)
    assert command.startswith(f"upgrade --command-config {credentials} --to 4.3.1 --cluster fake --run 1")
    code, said = shell(filled_in(command), "--yes")
    assert code == 0, said
    assert "soaks: 0 of 600 s" in said
    assert len({one and one.mechanism for one in used}) == 1


def test_each_command_that_a_secured_run_prints_works_as_it_is_pasted(
    tmp_path: Path, shell: Shell, cluster: FakeCluster, credentials: Path, used: list[ClientSecurity | None]
) -> None:
    """It stops at its pause and at a node that fails, then it is rolled back. Only names and reasons are filled in."""
    cluster.cannot_start.add((3, R431))
    first = (UPGRADE, PLAIN, "--pace fast --pause-after first-node", APPROVED)
    said = [shell(*first, "--command-config", str(credentials))[1]]
    run, _ = kept(tmp_path)
    pasted: dict[str, int] = {}
    while new := [one for one in printed_commands("\n".join(said)) if one not in pasted]:
        code, text = shell(filled_in(new[0]), "--yes" if "--as" in new[0] else "")
        assert code in {0, 3, 130}, (new[0], text)
        pasted[new[0]] = code
        said += [text, *(shell(words, "--cluster fake --run", run)[1] for words in ("status", "runs report"))]
    assert {words.split()[0] for words in pasted} == {"upgrade", "retry", "rollback"}
    assert {node.running for node in cluster.nodes.values()} == {R391}
    assert None not in used, "each call that reached the cluster had the credentials"


def test_a_run_keeps_the_path_of_its_credentials_and_never_their_text(
    tmp_path: Path, shell: Shell, credentials: Path, used: list[ClientSecurity | None]
) -> None:
    assert shell(UPGRADE, PLAIN, REFUSED, "--command-config", str(credentials))[0] == 3
    run, (called,) = kept(tmp_path)
    assert called.command_config == str(credentials)
    assert shell(UPGRADE, "--run", run, REFUSED)[0] == 3
    assert used[0] is not None
    assert used[1] == used[0]
    credentials.unlink()
    code, said = shell(UPGRADE, "--run", run, APPROVED)
    assert (code, str(credentials) in said) == (2, True)


def test_a_relative_path_is_kept_as_an_absolute_one(
    tmp_path: Path, shell: Shell, credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(credentials.parent)
    assert shell(UPGRADE, PLAIN, REFUSED, "--command-config", credentials.name)[0] == 3
    assert kept(tmp_path)[1][0].command_config == str(credentials)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Try kafka-rollout check --cluster a.", "Try kafka-rollout check --command-config '/a b' --cluster a."),
        ("`kafka-rollout features set --run 1`", "`kafka-rollout features set --command-config '/a b' --run 1`"),
        ("kafka-rollout status --cluster a", "kafka-rollout status --cluster a"),
        ("kafka-rollout verify says so", "kafka-rollout verify says so"),
        ("kafka-rollout verify --command-config x --to 1", "kafka-rollout verify --command-config x --to 1"),
    ],
)
def test_printed_commands_name_the_file_with_the_credentials_of_the_call(text: str, shown: str) -> None:
    def of_call() -> str:
        show.name_credentials(Path("/a b"))
        return show.as_text(text)

    assert copy_context().run(of_call) == shown
    assert show.as_text(text) == text


def test_the_commands_that_reach_a_cluster_are_known() -> None:
    def found(command: Any, words: list[str]) -> Iterator[str]:
        if hasattr(command, "commands"):
            for name, one in command.commands.items():
                yield from found(one, [*words, name])
        elif any("--command-config" in one.opts for one in command.params):
            yield " ".join(words)

    reach = {one for name in cli.COMMANDS for one in found(cli._load(name), [name])}
    on_request = {"fleet", "runs report"}  # only with --live; only with --write, which has those of the run
    assert reach - on_request == set(show.WITH_CREDENTIALS)
