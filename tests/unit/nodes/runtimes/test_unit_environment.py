"""A file of EnvironmentFile= has the variables that systemd 252 reads (`30-systemd-environment-d-generator`)."""

from __future__ import annotations

import pytest

from kafka_rollout.nodes.runtimes.hosts.unit_environment import UnclearError, jvm_words, parse_file, parse_shown

OPTS, HEAP = "KAFKA_OPTS", "KAFKA_HEAP_OPTS"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('KAFKA_OPTS="-Da=b -Dc=d"\nKAFKA_HEAP_OPTS="-Xmx1G"\n', {OPTS: "-Da=b -Dc=d", HEAP: "-Xmx1G"}),
        ('KAFKA_OPTS=-Durls="https://idp/token" -Dx=y\n', {OPTS: '-Durls="https://idp/token" -Dx=y'}),
        ("KAFKA_OPTS='-Da=b -Dx=\"q r\"'\n", {OPTS: '-Da=b -Dx="q r"'}),
        ('KAFKA_OPTS="-Da=b \\\n  -Dc=d"\n', {OPTS: "-Da=b   -Dc=d"}),
        ("KAFKA_OPTS=-Da=b \\\n  -Dc=d\n", {OPTS: "-Da=b   -Dc=d"}),
        ('KAFKA_OPTS="-Da=b\n-Dc=d"\nKAFKA_HEAP_OPTS=-Xmx1G\n', {OPTS: "-Da=b\n-Dc=d", HEAP: "-Xmx1G"}),
        ("KAFKA_OPTS=-Da=it's\nKAFKA_HEAP_OPTS=-Xmx1G\n", {OPTS: "-Da=it's", HEAP: "-Xmx1G"}),
        ("KAFKA_OPTS=-Da=b\r\nKAFKA_HEAP_OPTS=-Xmx1G\r\n", {OPTS: "-Da=b", HEAP: "-Xmx1G"}),
        ("KAFKA_OPTS=-Da=b#c \n# a comment\n; another\n\n", {OPTS: "-Da=b#c"}),
        ('KAFKA_OPTS="-Da=b # x\n# KAFKA_OPTS=-Dno\n-Dc=d"\n', {OPTS: "-Da=b # x\n# KAFKA_OPTS=-Dno\n-Dc=d"}),
        ('KAFKA_OPTS="-Da=b" -Dc=d\n', {OPTS: "-Da=b-Dc=d"}),
        ('KAFKA_OPTS="-Durl=http:\\/\\/x -Dp=C:\\\\y"\n', {OPTS: "-Durl=http:\\/\\/x -Dp=C:\\y"}),
        ("  KAFKA_OPTS = -Da=b\n", {OPTS: "-Da=b"}),
        ('KAFKA_OPTS="-Da=b\nKAFKA_HEAP_OPTS=-Xmx1G\n', {OPTS: "-Da=b\nKAFKA_HEAP_OPTS=-Xmx1G\n"}),
        ("export KAFKA_OPTS=-Da=b\nwithout a value\nKAFKA_OPTS=\n", {OPTS: ""}),
        ("# two backslashes \\\\\nKAFKA_OPTS=-Da=b", {OPTS: "-Da=b"}),
    ],
    ids=[
        *("plain", "quotes inside", "single quotes", "continued in quotes", "continued", "lines in quotes"),
        *("apostrophe", "CRLF", "comments", "comment in quotes", "after quotes", "backslashes", "white space"),
        *("no end of quotes", "no variable", "escaped backslash"),
    ],
)
def test_variables_are_those_that_systemd_reads(text: str, read: dict[str, str]) -> None:
    assert parse_file(text) == read


def test_what_versions_of_systemd_read_in_different_ways_is_unclear() -> None:
    with pytest.raises(UnclearError, match="comment that ends with a backslash"):
        parse_file("# note \\\nKAFKA_OPTS=-Da=b\n")
    for text in ('KAFKA_OPTS="-Da=b', '"KAFKA_OPTS=-Da=b', '"A=b"c'):
        with pytest.raises(UnclearError, match="cannot be read"):
            parse_shown(text)


@pytest.mark.parametrize(
    "text",
    [
        '#KAFKA_OPTS="-Da=b \\\n#  -Dc=d"\nKAFKA_OPTS=-Dx=y\n',
        "# note \\\n\nKAFKA_OPTS=-Dx=y\n",
        "KAFKA_OPTS=-Dx=y\n# the end \\",
        "# a \\\n# b \\\nKAFKA_OPTS=-Dno\nKAFKA_OPTS=-Dx=y\n",
    ],
)
def test_a_comment_that_ends_with_a_backslash_and_hides_nothing_is_read(text: str) -> None:
    assert parse_file(text) == {OPTS: "-Dx=y"}


def test_what_systemctl_shows_is_read_without_its_backslashes() -> None:
    """`shell_maybe_quote` of systemd writes one before each of `"`, `\\`, `` ` `` and `$`."""
    shown = r'"KAFKA_OPTS=-Da=b -Dc=\"d\" -De=\$f\`g -Dh=C:\\\$i" LOG_DIR=/x'
    assert jvm_words(parse_shown('"KAFKA_OPTS=-Da=b \\t-Dc=d\\n-De=f\\x20g"')) == {
        OPTS: ("-Da=b", "-Dc=d", "-De=f", "g")
    }
    assert parse_shown(shown) == {OPTS: r'-Da=b -Dc="d" -De=$f`g -Dh=C:\$i', "LOG_DIR": "/x"}


def test_the_start_script_keeps_quotes_and_java_does_not() -> None:
    assert jvm_words({OPTS: '-Da="b c"\n-Dd', "LOG_DIR": "/x"}) == {OPTS: ('-Da="b', 'c"', "-Dd")}
    assert jvm_words({"JAVA_TOOL_OPTIONS": "-Da='b c' -Dp=C:\\x #y"}) == {
        "JAVA_TOOL_OPTIONS": ("-Da=b c", "-Dp=C:\\x", "#y")
    }
    with pytest.raises(UnclearError, match="JDK_JAVA_OPTIONS"):
        jvm_words({"JDK_JAVA_OPTIONS": '-Da="b'})
