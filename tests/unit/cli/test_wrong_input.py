"""Wrong input, as operators type it: one sentence that names the problem, and one that names the fix."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kafka_rollout.cli.app import run_main
from kafka_rollout.clusters.inventory import dump_cluster
from tests.fakes.cluster import make_spec


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead_port: int) -> Path:
    """A project with the cluster `orders`, of which no node runs, and `far`, whose nodes cannot be managed."""
    (tmp_path / "clusters").mkdir()
    spec = make_spec(controllers=1, brokers=1, name="orders")
    nodes = [replace(node, directory=str(tmp_path / node.name)) for node in spec.nodes]
    nodes[0] = replace(nodes[0], controller_address=f"127.0.0.1:{dead_port}")
    nodes[1] = replace(nodes[1], broker_address=f"localhost:{dead_port}")
    (tmp_path / "clusters" / "orders.yaml").write_text(dump_cluster(replace(spec, nodes=tuple(nodes))))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port on which no process listens, and no process can begin to."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


NODES = 'nodes:\n- {id: 1, name: b1, roles: [broker], broker_address: "kafka-1:9092"}\n'
# The number of the case, the words, the exit code, the answer.
CASES = [
    (1, "", 2, "kafka-rollout needs a command. For all commands, see `kafka-rollout --help`."),
    (3, "upgrad -c orders", 2, "kafka-rollout has no command 'upgrad'. Did you mean 'upgrade'?"),
    (3, "downgrad -c orders", 2, "kafka-rollout has no command 'downgrad'. Did you mean 'downgrade'?"),
    (4, "rol", 2, "kafka-rollout has no command 'rol'. For all commands, see `kafka-rollout --help`."),
    (5, "rollbak", 2, "kafka-rollout has no command 'rollbak'. Did you mean 'rollback'?"),
    (6, "catalog list", 2, "kafka-rollout has no command 'catalog'. Did you mean 'catalogue'?"),
    (7, "validate", 2, "kafka-rollout has no command 'validate'. For all commands, see `kafka-rollout --help`."),
    (
        *(7, "stop -c orders", 2),
        "kafka-rollout stop needs --reason: reason as a sentence; stored in the run history. Add it.",
    ),
    (7, "finalize", 2, "kafka-rollout has no command 'finalize'. Did you mean 'features set --action upgrade-all'?"),
    (7, "check --bootstrap-server 127.0.0.1:1 --to 4.3.1 --only nope", 2,
     "There is no check nope. `kafka-rollout check --list` lists all checks."),
    (9, "verify", 2, "kafka-rollout verify needs --cluster NAME. Clusters: orders."),
    (10, "upgrade -c nope --to 4.3.1 --dry-run", 2,
     "The inventory contains no cluster nope. {folder}/clusters has orders."),
    (10, "verify -c order", 2,
     "The inventory contains no cluster order. Did you mean orders? {folder}/clusters has orders."),
    (11, "upgrade -c orders --to v4.3.1", 2,
     "'v4.3.1' is not a Kafka release. Write it as three numbers, for example 4.3.1."),
    (12, "upgrade -c orders --to 9.9.9 --dry-run", 2,
     "Release 9.9.9 is not in the catalogue. Choose another one, such as 3.3.2, 3.4.1, 3.5.2, 3.6.2, 3.7.2, 3.8.1, "
     "3.9.2, 4.0.2, 4.1.2, 4.2.2, 4.3.1, 4.4.0, or add it with `kafka-rollout-derive add 9.9.9`."),
    (13, "upgrade -c orders --to-release 4.3.1", 2,
     "kafka-rollout upgrade has no option --to-release. Did you mean --to?"),
    (14, "upgrade -c orders --to 4.3.1 --finalize never", 2,
     "--finalize cannot be 'never'. It must be one of later, after-approval."),
    (16, "upgrade -c orders --to 4.3.1 --pace 10m", 2,
     "--pace cannot be '10m'. It must be one of careful, normal, fast."),
    (16, "upgrade -c orders --to 4.3.1 --max-batch-size 0", 2,
     "--max-batch-size cannot be '0'. It must be a whole number from 1 to 1000."),
    (17, "upgrade -c orders --to 4.3.1 --pause-aftr node", 2,
     "kafka-rollout upgrade has no option --pause-aftr. Did you mean --pause-after?"),
    (18, "verify -c orders --dry-run", 2,
     "kafka-rollout verify has no option --dry-run, because it changes nothing. Remove the option."),
    (20, "verify -c orders", 1,
     "Node 11 (broker-11) at localhost:{dead} cannot be reached: connection refused. Check that it runs, that its "
     "address is right, and that the security settings are those of the listener."),
    (21, "upgrade -c orders --to 4.3.1", 2,
     "An upgrade needs a named approval. Add --as NAME --reason TEXT, or --dry-run."),
    (22, "upgrade -c orders --to 4.3.1 --as ada", 2, "An upgrade needs a reason. Add --reason TEXT, or --dry-run."),
    (22, "upgrade -c orders --to 4.3.1 --reason x", 2,
     "An upgrade needs the name of the approver. Add --as NAME, or --dry-run."),
    (23, "upgrade -c orders --to 4.3.1 --run nope", 2,
     "Cluster orders has no run nope. See its runs: kafka-rollout runs list --cluster orders"),
    (24, "retry -c orders --run nope", 2,
     "Cluster orders has no run nope. See its runs: kafka-rollout runs list --cluster orders"),
    (25, "downgrade -c orders --to 4.0.1 --to-level abc", 2,
     "'abc' is not a metadata.version. Use a number or a name, for example 25 or 4.0-IV3."),
    (26, "downgrade -c orders --to 4.0.1 --lowering never", 2,
     "--lowering cannot be 'never'. It must be one of online, live, offline."),
    (27, "runs report -c orders", 2, "Cluster orders has no run yet. Start one, for example with `upgrade --dry-run`."),
    (45, "inventory init --bootstrap-server 127.0.0.1:1 --name orders", 2,
     "The inventory has a cluster orders already. Choose another name with --name."),
    (46, "inventory init --bootstrap-server 127.0.0.1", 2,
     "'127.0.0.1' is not host:port of a broker. Use, for example, kafka-1:9092."),
    (46, "inventory init --bootstrap-server kafka-1:99092", 2,
     "'kafka-1:99092' is not host:port of a broker. Use, for example, kafka-1:9092."),
    (47, "inventory init --bootstrap-server 127.0.0.1:{dead}", 1,
     "Bootstrap server 127.0.0.1:{dead} cannot be reached: connection refused. Check that it runs, that its address is "
     "right, and that the security settings are those of the listener."),
    (48, "inventory init --bootstrap-server 127.0.0.1:{dead} --name Bad!", 2,
     "'Bad!' is not a name of a cluster. Use lower-case letters, digits, - and _."),
    (60, "features set -c orders --upgrade group.version", 2,
     "'group.version' is not in the form feature=level. Example: group.version=1."),
    (62, "features set -c orders", 2,
     "The request must contain either features or a release. List features to upgrade, downgrade or delete, or the "
     "release whose levels to set."),
    (64, "features set --action upgrade-all -c orders", 2,
     "A feature change needs a named approval. Add --as NAME --reason TEXT, or --dry-run."),
    (66, "metadata scan --log-dir {folder}/none --to-level 25", 2,
     "{folder}/none does not exist. Use a node's metadata.log.dir (by default the first of its log.dirs), or a copy of "
     "its __cluster_metadata-0."),
    (67, "metadata scan --log-dir {folder}/clusters --to-level 25", 2,
     "{folder}/clusters holds no metadata log: it has no folder __cluster_metadata-0. Use a node's metadata.log.dir "
     "(by default the first of its log.dirs), or a copy of its __cluster_metadata-0."),
    (70, "scan", 2, "A scan reads either a cluster or log directories. Add --cluster NAME or --log-dir DIR."),
    (75, "scan --log-dir {folder} --topic orders", 2,
     "orders is not a coordinator log. Coordinator logs: __consumer_offsets, __share_group_state, "
     "__transaction_state."),
    (71, "scan -c orders --log-dir x", 2,
     "A scan reads either a cluster or log directories. Remove --cluster, or all --log-dir."),
    (76, "scans report -c orders", 2,
     "Cluster orders has no stored scan yet. Run kafka-rollout scan --cluster orders."),
    (77, "scans report -c orders --against previous", 2,
     "Cluster orders has no stored scan yet. Run kafka-rollout scan --cluster orders."),
    (84, "verify -c orders --command-config none.properties", 2,
     "none.properties cannot be read: No such file or directory. Use the path of a client.properties file."),
    (84, "verify -c orders --command-config clusters", 2,
     "clusters is a folder, not a file. Use the path of a client.properties file."),
    (86, "groups watch -c orders --type foo", 2, "Unknown group type foo. Use consumer, share, streams."),
    (89, "rehearse -c orders --to 4.3.1 --backup none", 2,
     "The folder none of --backup does not exist. Name the folder that has a copy of each node's home."),
    (93, "unlock -c orders", 2,
     "kafka-rollout unlock needs --as: your name, one of the approvers; recorded with the shell user and the host. "
     "Add it."),
]  # fmt: skip


def answer(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code, and what standard error says."""
    code = run_main(words)
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err
    return code, said.err.strip()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}: {case[1]}")
def test_wrong_words_are_answered_with_the_problem_and_its_fix(
    folder: Path, dead_port: int, capsys: pytest.CaptureFixture[str], case: tuple[int, str, int, str]
) -> None:
    number, words, code, sentence = case
    known = {"folder": folder, "dead": dead_port}
    typed = words.format(**known).split()
    assert answer(typed, capsys) == (code, sentence.format(**known)), number


@pytest.mark.parametrize("words", ["--version", "-h", "verify -h", "help status", "help features set"])
def test_what_every_command_line_has_works(folder: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert answer(words.split(), capsys) == (0, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("runs list -c orders", "Cluster orders has no run yet."),
        ("scans list -c orders", "There is no stored scan yet. Run kafka-rollout scan --cluster NAME."),
    ],
)
def test_an_empty_list_says_so(folder: Path, capsys: pytest.CaptureFixture[str], words: str, said: str) -> None:
    assert run_main(words.split()) == 0
    assert capsys.readouterr().out.strip() == said


FILES = [
    (51, "name: x\nruntime: nonee\n" + NODES,
     "is wrong: runtime must be 'local_process', 'ssh_service' or 'none'. Example: include/clusters/local.yaml."),
    (52, "name: x\nruntime: none\n" + NODES.replace("broker_address", "broker_adress"),
     "is wrong: nodes[0].broker_adress is not a key of an inventory. Did you mean broker_address?"),
    (53, "name: x\nruntime: none\n" + NODES.replace("name: b1", "name: b1, password: x"),
     "contains a possible credential at nodes[0].password. Store it in the Airflow Connection and set connection_id to "
     "this Connection. A command can read it from a file."),
    (54, "name: x\nruntime: none\n" + NODES.replace(":9092", ""),
     "is wrong: nodes[0].broker_address must be host:port, for example kafka-1:9092. Correct it."),
    (55, "name: x\nruntime: none\n" + NODES + "- {id: 1, name: b2, roles: [broker], broker_address: 'kafka-2:9092'}\n",
     "is wrong: two nodes have the id 1. Correct it and repeat the command."),
    (29, "name: x: y\n", "is not YAML: mapping values are not allowed here in line 1. Correct the YAML."),
    (56, "", "describes no cluster. Use include/clusters/local.yaml as an example."),
    (57, "name: x\nruntime: none\n" + NODES.replace("[broker]", "[brokers]"),
     "is wrong: nodes[0].roles[0] must be 'broker' or 'controller'. Example: include/clusters/local.yaml."),
    (58, "name: x\nruntime: none\nscan_schedule: often\n" + NODES,
     "is wrong: at scan_schedule, 'often' is not a schedule: write five cron fields, @hourly, @daily, @weekly or "
     "never. Correct it and repeat the command."),
    (59, "name: x\nruntime: ssh_service\n" + NODES.replace("name: b1", "name: b1, host: kafka-1"),
     "is wrong: the cluster has no controller. Correct it and repeat the command."),
]  # fmt: skip


@pytest.mark.parametrize(("number", "text", "sentence"), FILES)
def test_a_wrong_inventory_says_why_when_its_cluster_is_asked_for_and_hides_no_other(
    folder: Path, capsys: pytest.CaptureFixture[str], number: int, text: str, sentence: str
) -> None:
    path = folder / "clusters" / "x.yaml"
    path.write_text(text)
    said = f"The inventory {path} {sentence}"
    assert answer(["verify", "--cluster", "x"], capsys) == (2, said), number
    assert run_main(["fleet"]) == 2
    listed = capsys.readouterr()
    assert "orders" in listed.out
    assert listed.err.strip() == said
    assert "files that cannot be read: x.yaml." in answer(["verify", "--cluster", "y"], capsys)[1]
    assert answer(["status", "--cluster", "orders"], capsys) == (0, "")


def test_nodes_that_this_machine_cannot_manage(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "clusters" / "far.yaml").write_text(
        "name: far\nruntime: none\n" + NODES.replace("kafka-1", "no-such-host.invalid")
    )
    assert answer(["upgrade", "-c", "far", "--to", "4.3.1", "--as", "ada", "--reason", "x"], capsys) == (
        3,
        "Cluster far has runtime none, so its nodes cannot be stopped, replaced or started. Use --dry-run for the plan."
        " To replace nodes, set runtime to local_process or ssh_service in the inventory.",
    )
    assert answer(["inventory", "rights", "-c", "far", "--of", "hosts"], capsys) == (
        2,
        "Cluster far has the runtime none, which uses no sudo. Call the command for a cluster with the runtime "
        "ssh_service.",
    )
    assert answer(["verify", "-c", "far"], capsys) == (
        1,
        "Node 1 (b1) at no-such-host.invalid:9092 cannot be reached: the host name no-such-host.invalid cannot be "
        "resolved. Correct the host name in the address.",
    )


SECURITY = [
    (78, "open.json", 0o644, "{}",
     "Security file open.json can be read by other users (mode 0644). Run: chmod 600 open.json"),
    (80, "a.properties", 0o600, "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI",
     "a.properties: the client libraries of this tool do not support sasl.mechanism=GSSAPI. Set sasl.mechanism to "
     "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, with a user for it."),
    (81, "a.json", 0o600, '{"security.protocol": "SSL"}',
     "Security file a.json has the unknown key security.protocol. Use protocol. The keys are protocol, mechanism, "
     "username, password, token_url, scope, token_ca_location, extensions, ca_location, certificate_location, "
     "key_location, key_password, check_hostname, controllers, traffic, prometheus. A client.properties file has the "
     "names of Java."),
    (81, "a.json", 0o600, '{"protocol": "TLS"}',
     "Security file a.json does not have usable security settings: protocol: it must be 'PLAINTEXT', 'SSL', "
     "'SASL_PLAINTEXT' or 'SASL_SSL'. Correct it."),
    (82, "a.json", 0o600, "{", "Security file a.json is not JSON. Correct it, or write a client.properties file."),
    (104, "a.properties", 0o600, "security.protocol=SSL\nssl.truststore.location=/no/ca.pem",
     "/no/ca.pem cannot be read: No such file or directory. Correct ssl.truststore.location in a.properties."),
    (104, "a.json", 0o600, '{"protocol": "SSL", "ca_location": "/no/ca.pem"}',
     "/no/ca.pem, ca_location in a.json, cannot be read: No such file or directory. Correct its path."),
]  # fmt: skip


@pytest.mark.parametrize("case", SECURITY, ids=lambda case: f"{case[0]}: {case[1]}")
def test_a_wrong_security_file(
    folder: Path, capsys: pytest.CaptureFixture[str], case: tuple[int, str, int, str, str]
) -> None:
    number, name, mode, text, sentence = case
    (folder / name).write_text(text)
    (folder / name).chmod(mode)
    with serving(silent) as port:  # that TLS files are missing is found with the first connection
        words = ["inventory", "init", "--bootstrap-server", f"127.0.0.1:{port}", "--command-config", name]
        assert answer(words, capsys) == (2, sentence), number


def closes(connection: socket.socket) -> None:
    connection.recv(1000)


def silent(connection: socket.socket) -> None:
    with suppress(OSError):
        while connection.recv(1000):
            pass


def sends_alert(connection: socket.socket) -> None:
    """What Java's TLS sends for a request in plain text; OpenSSL closes the connection."""
    connection.recv(1000)
    connection.sendall(bytes.fromhex("15030300020250"))


def speaks_http(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


class serving:
    """A loopback port that answers each connection in one way."""

    def __init__(self, answers: Any) -> None:
        self._answers = answers
        self._server = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> int:
        threading.Thread(target=self._serve, daemon=True).start()
        return int(self._server.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self._answers(connection)


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """TLS with a certificate that no client trusts."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kafka")])
    now = datetime.now(UTC)
    certificate = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(
        certificate.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def speaks_tls(context: ssl.SSLContext) -> Any:
    def talk(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(1000)

    return talk


SETTINGS = "(--command-config; in Airflow the cluster's Connection)"


def test_ports_that_are_not_a_listener_with_these_settings(
    folder: Path, tls_server: ssl.SSLContext, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "tls.properties").write_text("security.protocol=SSL\n")
    tls = ["--command-config", "tls.properties"]
    cases: list[tuple[int, Any, list[str], int, str]] = [
        (101, closes, [], 1,
         f"the node closed the connection. Does the listener need TLS or SASL? Add its settings {SETTINGS}."),
        (101, closes, tls, 1,
         f"the node closed the connection. Does the listener need SASL? Add its settings {SETTINGS}."),
        (101, speaks_tls(tls_server), [], 2,
         f"this port speaks TLS. Set security.protocol to SSL or SASL_SSL {SETTINGS}."),
        (102, sends_alert, [], 2,
         f"this port speaks TLS. Set security.protocol to SSL or SASL_SSL {SETTINGS}."),
        (102, speaks_http, [], 3, "this port speaks HTTP. Use the address of one of Kafka's listeners."),
        (102, speaks_http, tls, 2, f"this port does not speak TLS. Correct security.protocol {SETTINGS}."),
    ]  # fmt: skip
    for number, answers, more, code, sentence in cases:
        with serving(answers) as port:
            words = ["inventory", "init", "--bootstrap-server", f"127.0.0.1:{port}", *more]
            expected = f"Bootstrap server 127.0.0.1:{port} cannot be reached: {sentence}"
            assert answer(words, capsys) == (code, expected), number
    with serving(speaks_tls(tls_server)) as port:
        words = ["inventory", "init", "--bootstrap-server", f"127.0.0.1:{port}", *tls]
        assert answer(words, capsys) == (
            2,
            f"The certificate of Bootstrap server 127.0.0.1:{port} is not trusted: self-signed certificate. "
            f"Correct the CA file (ssl.truststore.location or ca_location of {SETTINGS[1:]}: it must have the "
            "certificate that issued this one.",
        )


def test_a_port_that_is_silent(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(silent) as port:
        assert answer(["inventory", "init", "--bootstrap-server", f"127.0.0.1:{port}"], capsys) == (
            1,
            f"Bootstrap server 127.0.0.1:{port} cannot be reached: no answer within 10.0 s. Check that it runs, that "
            "its address is right, and that the security settings are those of the listener.",
        )


def test_many_nodes_that_do_not_respond_are_a_few_sentences(
    folder: Path, dead_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = "".join(
        f"- {{id: {number}, name: b{number}, roles: [broker], broker_address: '127.0.{number}.1:{dead_port}'}}\n"
        for number in range(1, 201)
    )
    (folder / "clusters" / "large.yaml").write_text(f"name: large\nruntime: none\nnodes:\n{nodes}")
    code, said = answer(["verify", "-c", "large"], capsys)
    assert code == 1
    assert said.count("cannot be reached") == 3
    assert "197 more nodes do not respond." in said


def test_no_answer_has_the_words_of_a_validation_library(
    folder: Path, dead_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for _, words, _, _ in CASES:
        _, said = answer(words.format(folder=folder, dead=dead_port).split(), capsys)
        assert not [text for text in ("Value error", "Input should", "[Errno", "pydantic") if text in said], words


def test_names_of_the_environment(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", "/nonexistent")
    assert answer(["fleet"], capsys) == (
        2,
        "The folder /nonexistent for inventories does not exist. Set KAFKA_ROLLOUT_CLUSTERS to an existing folder.",
    )


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://db/rollout", "Use SQLite or PostgreSQL"),
        ("postgresql://rollout:secret@db/rollout", "Remove it from the URL"),
    ],
)
def test_a_wrong_database(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str, sentence: str
) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_DATABASE", url)
    code, said = answer(["db", "--check"], capsys)
    assert code == 2
    assert sentence in said
    assert "secret" not in said


def test_a_database_in_a_folder_that_does_not_exist_is_not_made(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_DATABASE", f"sqlite:///{folder}/nonexist/runs.db")
    for command in (["db", "--check"], ["db"]):
        code, said = answer(command, capsys)
        assert code == 2
        assert f"in the folder {folder}/nonexist, which does not exist" in said
        assert f"mkdir -m 0700 {folder}/nonexist" in said
    assert not (folder / "nonexist").exists()


def test_an_error_keeps_its_words_in_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(["upgrade", "-c", "orders", "--to", "4.3.1", "--as", "ada", "--json"]) == 2
    assert json.loads(capsys.readouterr().out) == {
        "error": {
            "kind": "invalid_input",
            "sentence": "An upgrade needs a reason.",
            "remedy": "Add --reason TEXT, or --dry-run.",
            "exit_code": 2,
        }
    }
