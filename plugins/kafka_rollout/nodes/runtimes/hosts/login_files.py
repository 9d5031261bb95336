r"""The login modules of a JAAS file on a host, and the key tabs that it names.

`awk` reads the file as a StreamTokenizer of Java does, as which ConfigFile of the JDK reads it: with comments and texts
in quotes. Of these texts, only the paths of key tabs leave the host: no other word, such as a password, does.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kafka_rollout.model.starts import LOGIN_FILE, KeyTab, NamedFile, key_tabs_of_files, login_sections, named_files
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands

_AWK = r"""
{ text = text $0 "\n" }
END { length_ = length(text); before = ""; key = ""; word = ""; out = ""
for (at = 1; at <= length_; at++) { char = substr(text, at, 1)
if (char == "/" && substr(text, at + 1, 1) == "*") {
end = index(substr(text, at + 2), "*/"); at = end ? at + 2 + end : length_; out = out " "; continue }
if (char == "/") { while (at <= length_ && substr(text, at, 1) != "\n") at++; out = out " "; continue }
if (char == "\"" || char == "\047") { value = ""
for (at++; at <= length_ && (next_ = substr(text, at, 1)) != char && next_ != "\n"; at++) {
if (next_ == "\\") { value = value next_; at++ } value = value substr(text, at, 1) }
if (before == "=" && key == "keytab" && value ~ /^\/[^\\]+$/) out = out "\nkeytab " value "\n"
else if (before == "=" && key == "usekeytab") out = out (tolower(value) == "true" ? "true" : "false")
else out = out "\"\""
before = char; word = ""; continue }
if (char ~ /[A-Za-z0-9_.$-]/) { if (before == "") word = ""; word = (last ~ /[A-Za-z0-9_.$-]/ ? word : "") char }
if (char == "=") key = tolower(word)
if (char !~ /[ \t\r\n]/) before = char
last = char
out = out (char ~ /[\r\n]/ ? " " : char) }
print out }
"""
_TOKENS = (
    r"[[:alnum:]_.-]+[[:space:]]*\{|\}|[[:alnum:]_.$]+[[:space:]]+(required|requisite|sufficient|optional)|"
    r"useKeyTab[[:space:]]*=[[:space:]]*true|^keytab /.*"
)
_SECTION = re.compile(r"([\w.-]+)\s*\{")
_MODULE = re.compile(r"[\w.$]+\s+(required|requisite|sufficient|optional)", re.IGNORECASE)
_USES = re.compile(r"useKeyTab\s*=\s*true", re.IGNORECASE)
_KEY_TAB = "keytab "
UNREAD = "unread-login-file"


def login_file_command(path: str) -> str:
    """A line for the login shell, which prints what `read_login_text` reads, or UNREAD for a file that it cannot
    read."""
    file = shlex.quote(path)
    return (
        f"test -f {file} && if test -r {file}; then head -c 200000 {file} | LC_ALL=C awk {shlex.quote(_AWK)} | "
        f"grep -oiE {shlex.quote(_TOKENS)}; else echo {UNREAD}; fi"
    )


def read_login_text(lines: Sequence[str]) -> tuple[tuple[tuple[str, str], ...], tuple[KeyTab, ...]]:
    """Return section and class of each login module, and the key tabs, of the lines that the command prints."""
    return tuple(login_sections("\n".join(lines))), tuple(_key_tabs(lines))


def _key_tabs(lines: Iterable[str]) -> Iterator[KeyTab]:
    """A key tab counts with useKeyTab=true (Krb5LoginModule)."""
    section, is_required, is_used = "", False, False
    paths: list[str] = []
    for line in (*lines, "}"):
        begins, module = _SECTION.fullmatch(line), _MODULE.fullmatch(line)
        if begins or module or line == "}":
            yield from (KeyTab(section=section, path=path, is_required=is_required) for path in paths if is_used)
            paths, is_used = [], False
        if begins:
            section = begins[1]
        elif module:
            is_required = module[1].lower() in ("required", "requisite")
        elif line.startswith(_KEY_TAB):
            paths.append(line.removeprefix(_KEY_TAB))
        else:
            is_used = is_used or _USES.fullmatch(line) is not None


def read_key_tabs(
    commands: HostCommands, node: NodeSpec, config: Mapping[str, str], arguments: Sequence[str]
) -> tuple[KeyTab, ...]:
    """Return the key tabs that the listeners of a node use by its JAAS file, as far as the SSH user can read it.
    `arguments`: options of its JVM."""
    path = named_files(config, arguments).get(LOGIN_FILE, "")
    if not path.startswith("/"):
        return ()
    modules, tabs = read_login_text(commands.run(node, login_file_command(path)).out.splitlines())
    return key_tabs_of_files(config, [NamedFile(setting=LOGIN_FILE, path=path, login_modules=modules, key_tabs=tabs)])
