"""The excerpt of a log: around the last error, and without credentials."""

from __future__ import annotations

import time

import pytest

from kafka_rollout.model.node_log import LogPart, cut_excerpt, hide_credentials, read_part

INFO = "[2026-11-26 03:04:05,000] INFO all is well (kafka.Server)"
ERROR = "[2026-11-26 03:04:06,000] ERROR Exiting Kafka (kafka.Kafka$)"
TRACE = ("java.io.IOException: disk", "\tat kafka.log.Log.load(Log.scala:1)", "Caused by: java.io.EOFException: end")


def test_the_excerpt_has_the_last_error_with_its_stack_trace_and_what_was_before() -> None:
    lines = [INFO] * 200 + [ERROR, *TRACE] + [INFO] * 60
    found = cut_excerpt(lines)
    assert found == (*[INFO] * 10, ERROR, *TRACE, *[INFO] * 26)
    assert cut_excerpt([INFO] * 200) == (INFO,) * 40
    assert cut_excerpt(["an unknown layout", *TRACE]) == ("an unknown layout", *TRACE)
    assert cut_excerpt([]) == ()


NAMES = (
    *(
        "ssl.key.password",
        "ssl.key.pass",
        "pwd",
        "passwd",
        "passphrase",
        "client_secret",
        "oauth.token",
        "apiKey",
        "AccountKey",
    ),
    *("aws.access-key", "ssl.keystore.key", "user_admin", "sasl.password", "db.credentials", "SharedAccessSignature"),
)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("ssl.keystore.password=abc, ssl.x=1", "ssl.keystore.password=[hidden], ssl.x=1"),
        ('{"token": "a b", "id": 1}', '{"token": [hidden], "id": 1}'),
        ("\tsasl.jaas.config = ScramLoginModule required username=u password=p;", "\tsasl.jaas.config = [hidden]"),
        ("connect to https://u:p@host/x", "connect to https://[hidden]@host/x"),
        ("Authorization: Bearer abc.def", "Authorization: [hidden]"),
        ('{"Authorization": "Basic dTpw"}', '{"Authorization": [hidden]'),
        ("ssl.keystore.key=-----BEGIN PRIVATE KEY-----MIIEvQ", "ssl.keystore.key=[hidden]"),
        ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ==", "[hidden]"),
        ('user_admin="hunter2" user_bob="bobsecret"', "user_admin=[hidden] user_bob=[hidden]"),
        ("sasl.password\\:x", "sasl.password\\:[hidden]"),
        ("keytool -storepass abc -list", "keytool -storepass [hidden] -list"),
        (
            "Invalid value hunter2 for configuration ssl.keystore.password: bad",
            "Invalid value [hidden] for configuration ssl.keystore.password: [hidden]",
        ),
        ("curl -u admin:hunter2 https://x", "curl -u admin:[hidden] https://x"),
        ("the claims of eyJhbGciOiJSUzI1NiJ9.eyJzdWIi.c2ln expired", "the claims of [hidden] expired"),
        ("eyJhbGciOiJSUzI1NiJ9.eyJzdW", "[hidden]"),
        (
            "salt=abc,stored_key=def,server_key=ghi,iterations=4096",
            "salt=[hidden],stored_key=[hidden],server_key=[hidden],iterations=4096",
        ),
        ("ScramCredential(salt=abc, storedKey=def, serverKey=ghi, iterations=4096)", None),
        ("TokenInformation{tokenId='x'}, hmac=[hunter2]}", None),
        ("basic.auth.user.info=key:hunter2", "basic.auth.user.info=[hidden]"),
        ("confluent.license=hunter2", "confluent.license=[hidden]"),
        ("ldap.bind.pw=hunter2", "ldap.bind.pw=[hidden]"),
        ("Failed to load keystore with password hunter2", "Failed to load keystore with password [hidden]"),
        ('PASSWORD "hunter2" SCRAM', "PASSWORD [hidden] SCRAM"),
        ("jdbc:oracle:thin:scott/hunter2@h", "jdbc:oracle:thin:scott/[hidden]@h"),
        ("auth super:hunter2", "auth super:[hidden]"),
        ("+ curl --user ops:hunter2 https://lb/drain", "+ curl --user ops:[hidden] https://lb/drain"),
        ("+ curl --user=ops:hunter2 https://lb/drain", "+ curl --user=ops:[hidden] https://lb/drain"),
        ("sshpass -p hunter2 ssh lb", "sshpass -p [hidden] ssh lb"),
        ("ldapsearch -x -D cn=ops -w hunter2 -b dc=a", "ldapsearch -x -D cn=ops -w [hidden] -b dc=a"),
        ("mysql -u ops -phunter2 -e drain", "mysql -u ops -p[hidden] -e drain"),
        ("mysql -p -e drain", "mysql -p -e drain"),
        (
            "for https://a.net/repomd.xml?sp=rl&sig=hunter2%3D [a]",
            "for https://a.net/repomd.xml?sp=rl&sig=[hidden] [a]",
        ),
        ("Set-Cookie: session=hunter2; Path=/", "Set-Cookie: [hidden]"),
        (
            "Keystore was tampered with, or password was incorrect",
            "Keystore was tampered with, or password was incorrect",
        ),
        ("super.users=User:admin", "super.users=User:admin"),
        ("Login failure: the password is not valid", "Login failure: the password is not valid"),
    ],
)
def test_possible_credentials_are_hidden(line: str, shown: str | None) -> None:
    found = hide_credentials(line)
    assert shown is None or found == shown
    assert not any(secret in found for secret in ("hunter2", "abc", "def", "ghi")), found


@pytest.mark.parametrize(
    "word",
    ["team.orders-", "password", "a.b-", "-p", "mysql ", "ldapsearch ", "user_", "Invalid value ", " pass", "x\t="],
)
def test_a_line_that_a_client_makes_long_is_hidden_in_time(word: str) -> None:
    line = ("ERROR Preparing to rebalance group " + word * 32_767)[:32_767]
    begin = time.process_time()
    assert len(cut_excerpt([line] * 40)) == 40
    assert time.process_time() - begin < 10


def test_a_credential_whose_setting_is_cut_off_is_hidden() -> None:
    failed = (
        "[2026-11-28 07:00:01,000] ERROR [GroupMetadataManager brokerId=1] Error loading offsets from "
        "__consumer_offsets-7 (kafka.coordinator.group.GroupMetadataManager)"
    )
    for blanks in (300, 9000):
        cause = f"a.ConfigException: Invalid value hunter2{' ' * blanks} for configuration ssl.key.password: bad"
        assert "hunter2" not in cut_excerpt([cause])[0]
        seen = read_part(None, LogPart(pid=1, started_at=1.0, is_first=True, lines=(failed, cause)))
        (error,) = seen.failed.values()
        assert "Invalid value [hidden]" in error


SECRETS = ("hunter2", "two words", "a,b;c", 'quo"te', "p\\=q", "x=y", "äö")
PATTERNS = (
    *(f"{name}{sign}{{}}" for name in NAMES for sign in ("=", ": ", " = ", "\\=", "\\:")),
    "Authorization: {}",
    "proxy-authorization: Digest {}",
    "sasl.jaas.config=org.apache.kafka.PlainLoginModule required username=u password={};",
    "-----BEGIN ENCRYPTED PRIVATE KEY-----{}",
    "Invalid value {} for configuration ssl.key.password",
)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("before", ["", "ERROR ", "x=1, ", "(a.B) {"])
def test_no_part_of_a_credential_is_shown(pattern: str, before: str) -> None:
    for secret in SECRETS:
        shown = hide_credentials(before + pattern.format(secret))
        assert "[hidden]" in shown
        assert secret not in shown.removeprefix(before).replace("[hidden]", "").replace(
            pattern.partition("{")[0], ""
        ), shown


@pytest.mark.parametrize(
    "option", ["-storepass", "-keypass", "-srcstorepass", "--password", "--client-secret", "-token"]
)
def test_the_value_of_an_option_is_not_shown(option: str) -> None:
    assert "hunter2" not in hide_credentials(f"keytool {option} hunter2 -v")
    assert "two words" not in hide_credentials(f"keytool {option} 'two words' -v")


@pytest.mark.parametrize(
    "line",
    [
        INFO,
        ERROR,
        *TRACE,
        "Loaded 3 log segments in 5 ms",
        "node.id=1, log.dirs=/data",
        "keys=5, partitions=3",
    ],
)
def test_other_lines_are_shown(line: str) -> None:
    assert hide_credentials(line) == line
