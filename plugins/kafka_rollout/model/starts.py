"""What a node reads at its start in addition to its configuration, and what the classes of a release make of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kafka_rollout.model.configs import is_reference
from kafka_rollout.model.host_state import DirectoryFormat
from kafka_rollout.model.listeners import base_name, find_listeners

LOGIN_FILE = "java.security.auth.login.config"
"""Property of the JVM with the path of the JAAS file."""
MAIN_CLASS = "kafka.Kafka"
"""In the command line of a node's process. Kafka's own arguments follow it."""
LOGIN_MODULES = ("org.apache.kafka.disallowed.login.modules", "org.apache.kafka.allowed.login.modules")
"""Properties of the JVM with login modules. The second one exists from 4.2.0 on, and counts more than the first."""
_STORES = ("ssl.keystore.location", "ssl.truststore.location")
_KAFKAS = re.compile(r"(org\.apache\.kafka|kafka|java|javax|com\.sun)\.")
_NAMES_CLASSES = re.compile(r"(^|\.)(class|classes|class\.name|reporters|assignors)$")
# A module begins a text or follows a semicolon. Comments, and words in quotes, are passed over (StreamTokenizer).
_PASSED_OVER = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|/\*.*?\*/|/[^\n]*""", re.DOTALL)
_MODULE = re.compile(r"(?:^|;)\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_OF_JAAS_FILE = re.compile(r"([\w.-]+)\s*\{|\}|([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_SECTION = "KafkaServer"
_JAAS, _PROVIDERS = "sasl.jaas.config", "security.providers"
AUTHORIZER = "authorizer.class.name"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
KEEP_AUTHORIZER = f"Keep {AUTHORIZER}: without an authorizer, every client can do everything."


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStart:
    """What a node reads."""

    properties: Mapping[str, str]
    formats: Mapping[str, DirectoryFormat] | None = None
    """Of its log directories by path; None: not checked."""
    files: Mapping[str, str] | None = None
    """Path in the configuration → path on this machine, of the files that this process can read; None: not even the
    secrets in the configuration are known."""
    jvm_arguments: tuple[str, ...] | None = None
    """None: unknown."""
    login_modules: tuple[tuple[str, str], ...] = ()
    """Place and class of the login modules that it loads by its JAAS file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginClass:
    """A class that a setting names and the release's own jars do not have."""

    setting: str
    name: str
    class_path: str = ""
    """Of the plugin, if it has its own."""


@dataclass(frozen=True, slots=True)
class FileRemark:
    """What an operator should know of a file with which the node starts."""

    sentence: str
    is_unknown: bool = False
    """Perhaps clients refuse it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartProblems:
    rejected: tuple[str, ...] = ()
    """Why the release would refuse to start, sentences."""
    remarks: tuple[FileRemark, ...] = ()
    """About files with which the node starts."""
    plugins: tuple[PluginClass, ...] = ()
    """Classes that are not among the jars of the release; only the node's own jars show whether they are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPlaces:
    """Where a node finds plugin classes at its next start on a release."""

    folder: str
    """Of the release's jars there."""
    jars: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Class → paths of jars that the next start has too."""
    left_behind: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Class → jars of the folder of the release that runs now, and of entries of the class path that the next start
    does not have."""
    unknown: str = ""
    """Why the node's jars could not be read; empty if they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTab:
    """A key tab that a JAAS file names."""

    section: str
    path: str
    is_required: bool = True
    """A login without it fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """A file that a configuration names, on the node's host."""

    setting: str
    """Its key, or the property of the JVM."""
    path: str
    readable_at: str | None = None
    """Its path for this process; None: this process cannot read it."""
    is_absent: bool = False
    """It does not exist."""
    changed_at: float | None = None
    """Its last change of content or rights (ctime, epoch seconds); None: unknown, because of `problem`."""
    problem: str = ""
    is_hidden: bool = False
    """It is a JAAS file whose content the tool cannot read, so its login modules and key tabs are unknown."""
    login_modules: tuple[tuple[str, str], ...] = ()
    """Section and class of each login module, of a JAAS file that can be read."""
    key_tabs: tuple[KeyTab, ...] = ()
    """Of the login modules; on a host only."""


def names_class(key: str) -> bool:
    """Return whether a setting names classes by its name. A CLASS of the ConfigDef does in any case."""
    return _NAMES_CLASSES.search(base_name(key)) is not None


def is_plugin(class_name: str) -> bool:
    """Return whether a class is not one of Kafka or Java: an archive of Kafka never has it."""
    return "." in class_name and _KAFKAS.match(class_name) is None


def login_modules(text: str) -> list[str]:
    """Return the names of the login modules in a value of sasl.jaas.config."""
    return _MODULE.findall(_PASSED_OVER.sub(lambda match: '""' if match[1] else " ", text))


def login_sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield section and class of each login module in the text of a JAAS file."""
    section = ""
    for match in _OF_JAAS_FILE.finditer(_PASSED_OVER.sub(lambda match: '""' if match[1] else " ", text)):
        section = match[1] or (section if match[2] else "")
        if match[2] and section:
            yield section, match[2]


def modules_of_files(config: Mapping[str, str], files: Iterable[NamedFile]) -> Iterator[tuple[str, str]]:
    """Yield place and class of the login modules that a start loads by its JAAS file: those of the section of a
    listener, or of the general one without it (JaasContext)."""
    for file in files:
        used = _used_sections(config, file)
        yield from ((f"{section} in {file.path}", name) for section, name in file.login_modules if section in used)


def key_tabs_of_files(config: Mapping[str, str], files: Iterable[NamedFile]) -> tuple[KeyTab, ...]:
    """Return the key tabs of the login modules that a start loads by its JAAS file."""
    return tuple(tab for file in files for tab in file.key_tabs if tab.section in _used_sections(config, file))


def _used_sections(config: Mapping[str, str], file: NamedFile) -> set[str]:
    listeners = [one for one in find_listeners(config).all if one.reads_login_file]
    sections = {section for section, _ in file.login_modules}
    own = (f"{listener.name.lower()}.{_SECTION}" for listener in listeners)
    return {section if section in sections else _SECTION for section in own}


def login_classes(config: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield setting and class of what the logins of a node load by a text: modules of the mechanisms that its listeners
    use, and creators of security providers (SecurityUtils)."""
    for listener in find_listeners(config).all:
        for mechanism in listener.login_mechanisms if listener.uses_sasl else ():
            key = f"{listener.prefix}{mechanism.lower()}.{_JAAS}"  # without the prefix, it counts for nothing
            line = config.get(key, "")
            yield from ((key, name) for name in (() if is_reference(line) else login_modules(line)))
    providers = config.get(_PROVIDERS, "")
    if not is_reference(providers):
        yield from ((_PROVIDERS, name) for name in re.sub(r"\s", "", providers).split(",") if name)


def named_files(config: Mapping[str, str], jvm_arguments: Sequence[str] | None = None) -> dict[str, str]:
    """Return key → path of the files that a start reads: stores of listeners with TLS, and the JAAS file if
    a login needs it.

    Values of config providers are left out.
    """
    found = {
        key: value
        for listener in find_listeners(config).all
        if listener.uses_tls
        for name in _STORES
        if (line := listener.line(config, name)) is not None
        for key, value in [line]
        if not is_reference(value)
    }
    if any(one.reads_login_file for one in find_listeners(config).all) and (path := login_file(jvm_arguments)):
        found[LOGIN_FILE] = path
    return found


def is_key_file(setting: str) -> bool:
    """Return whether a file that a setting or property names has keys, certificates or logins."""
    return setting == LOGIN_FILE or base_name(setting) in _STORES


def login_file(jvm_arguments: Sequence[str] | None) -> str:
    """Return the path of the JAAS file; empty without one. It can be a URL, and a `=` before it leaves out the files of
    Java's own security properties."""
    value = properties_of(jvm_arguments).get(LOGIN_FILE, "").removeprefix("=")
    return value.removeprefix("file://").removeprefix("file:")


def properties_of(jvm_arguments: Sequence[str] | None) -> dict[str, str]:
    """Return name → value of the -D arguments; the last one counts, as for Java."""
    return dict(arg[2:].split("=", 1) for arg in jvm_arguments or () if arg.startswith("-D") and "=" in arg)


def overrides_of(arguments: Sequence[str]) -> dict[str, str]:
    """Return the settings in `--override KEY=VALUE` of a command line (kafka-server-start.sh, kafka.Kafka).

    They count more than the file. A key without a value is empty (CommandLineUtils.parseKeyValueArgs).
    """
    found = [one.removeprefix("--override=") for one in arguments if one.startswith("--override=")]
    found += [value for option, value in pairwise(arguments) if option == "--override"]
    return {key: value for key, _, value in (one.partition("=") for one in found)}


def reads_more(config: Mapping[str, str]) -> bool:
    """Return whether a start with this configuration depends on files and jars that can change without it."""
    secured = any(listener.uses_tls or listener.uses_sasl for listener in find_listeners(config).all)
    return secured or any(plugin_names(config))


def plugin_names(config: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield setting and class of each class outside Kafka that a setting names by its own name."""
    for key, value in config.items():
        if names_class(key) and not is_reference(value):
            yield from ((key, name) for name in map(str.strip, value.split(",")) if is_plugin(name))
