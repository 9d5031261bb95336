"""What an inventory declares in addition to its nodes: installations on hosts, and conditions from outside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import takewhile
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.host_paths import one_spelling
from kafka_rollout.gates.control import COMPARISON, CONDITION_NAME
from kafka_rollout.model.package_managers import download_of, why_not_tried
from kafka_rollout.model.topology import AppliesTo, HostCommand, NodeSpec, PackageSpec, Role, ServiceSpec, paths_in
from kafka_rollout.releases.facts import Release

_SECRETS = (
    r"(?:authorization|password|passwd|passphrase|passcode|secret|token|credentials?|jaas[._-]config|user[._-]info"
    r"|(?:api|secret|private|access|account|auth|keystore)[._-]?key)"
)
_CREDENTIAL_KEY = re.compile(rf"(^|[._-])(?:{_SECRETS}|pass)$", re.IGNORECASE)
_CREDENTIAL_NAME = rf"(?:[\w.-]*[._-])?{_SECRETS}|[A-Z]+(?:PASSWORD|PASSWD|SECRET|TOKEN|_PWD)"
# Not $VARIABLE and not $(cat FILE).
_GIVEN = r"[\"'{]*(?>(?:(?:bearer|basic|token|apikey|splunk)\s+)?)(?![\"'{$`]|\s|%[(\w])\S"
_CREDENTIAL_ARGUMENT = re.compile(
    rf"(?<![\w./-])(-{{0,2}}(?:{_CREDENTIAL_NAME}))[\"']*\s*[=:]\s*{_GIVEN}"
    rf"|(?<![\w.-])(--?(?:{_CREDENTIAL_NAME}))[\"']*\s+{_GIVEN}"
    rf"|(?<!\S)(-u|--user)[=\s]+[\"']*[^\s:\"']+:(?!//|\d{{1,5}}(?:\s|$)){_GIVEN}",  # not the URL or port of another -u
    re.IGNORECASE,
)
_CREDENTIAL_VALUE = re.compile(
    r"-----BEGIN |://[^/\s@]*:[^/\s@]*@|\bpassword\s*="
    r"|[?&](?:[\w.-]*[._-])?(?:sig|signature|key|auth|pass|pwd|code)=[^&\s$]",
    re.IGNORECASE,
)


_IN_THE_OPEN = (
    "is a credential in an argument, which every user of the machine can read: let the command read it from a file"
)


def find_credential_argument(words: Iterable[str]) -> str | None:
    """Return the name of a possible credential in the arguments of a command, without its value.

    Such as `--token`, `TOKEN=x`, `-u user:x` and `Authorization: Bearer x`, also in the text of a shell's `-c`.
    """
    found = _CREDENTIAL_ARGUMENT.search(" ".join(words))
    return None if found is None else next(filter(None, found.groups()))


_OF_COMMAND = re.compile(r"(^|\.)(command|install|check|download|repair)(\[\d+\])?$")


def find_credential(value: object, where: str = "", seen: set[int] | None = None) -> str | None:
    """Return the place of a possible credential, as a path of keys below `where`; never its value.

    `seen`: ids of the values that were checked. A few YAML aliases can repeat a value too often to check each.
    """
    seen = set() if seen is None else seen
    if id(value) in seen:
        return None
    if isinstance(value, Mapping | list):
        seen.add(id(value))
    if isinstance(value, Mapping):
        for key, below in value.items():
            here = f"{where}.{key}" if where else str(key)
            if _CREDENTIAL_KEY.search(str(key)):
                return here
            if found := find_credential(below, here, seen):
                return found
    elif isinstance(value, list):
        for index, below in enumerate(value):
            if found := find_credential(below, f"{where}[{index}]", seen):
                return found
    elif isinstance(value, str) and _has_credential(value, where):
        return where
    return None


def _has_credential(text: str, where: str) -> bool:
    """Return whether a value has a possible credential. The words of a command are read together, when its entry is
    validated, and named there."""
    is_command = _OF_COMMAND.search(where) is not None
    return _CREDENTIAL_VALUE.search(text) is not None or (
        not is_command and find_credential_argument([text]) is not None
    )


_SUFFIX = ".service"
_HOST = r"^[A-Za-z0-9][A-Za-z0-9._-]*$|^[0-9a-fA-F:]+$"
Host = Annotated[str, StringConstraints(pattern=_HOST)]
_UNIT = r"^[A-Za-z0-9][A-Za-z0-9:_.@-]*$"
UnitName = Annotated[str, StringConstraints(pattern=_UNIT)]
# A name of capitals would be an alias in sudoers(5).
_USER = r"^[a-z_][A-Za-z0-9._-]*$"
User = Annotated[str, StringConstraints(pattern=_USER)]
# No character that a shell, sudoers or a pattern of either treats specially.
_HOST_PATH = r"^/[A-Za-z0-9._@+/-]*[A-Za-z0-9._@+-]$"
AbsolutePath = Annotated[str, StringConstraints(pattern=_HOST_PATH), AfterValidator(one_spelling)]
_SHA512 = r"^[0-9a-fA-F]{128}$"
Sha512 = Annotated[str, StringConstraints(pattern=_SHA512, to_lower=True)]
_RELEASE_PATH = r"^/[A-Za-z0-9._@+/{}-]*[A-Za-z0-9._@+}-]$"
ReleasePath = Annotated[str, StringConstraints(pattern=_RELEASE_PATH), AfterValidator(one_spelling)]
# No blank, no quote, no wildcard of sudoers.
_WORD = r"^[A-Za-z0-9._@%+/:=,~{}-]+$"
Word = Annotated[str, StringConstraints(pattern=_WORD)]
_VERSION = r"^[A-Za-z0-9][A-Za-z0-9.+:~^_-]*$"
Version = Annotated[str, StringConstraints(pattern=_VERSION)]
# Options with which dpkg asks no question about a changed configuration file (dpkg --force-help).
_KEEPS = r"--force-([a-z-]+,)*conf(old|new)(,[a-z-]+)*"
_NO_MENUS = {"DEBIAN_FRONTEND=noninteractive", "UCF_FORCE_CONFFOLD=1", "UCF_FORCE_CONFFNEW=1"}
_APT_KEEPS = re.compile(rf" (-o ?|--option[ =])dpkg::options::={_KEEPS} ", re.IGNORECASE)
# Pattern → the form in words.
FORMS = {
    _HOST: "a host name or an address without user and port, which the SSH configuration has",
    _UNIT: "the name of a systemd unit, for example kafka",
    _USER: "the name of a user, for example kafka",
    _HOST_PATH: "an absolute path, for example /etc/kafka/server.properties",
    _SHA512: "a SHA-512 of 128 hexadecimal digits",
    _RELEASE_PATH: "an absolute path, for example /opt/kafka_2.13-{release}",
    _WORD: "a word of letters, digits and . _ @ % + / : = , ~ - {version}, because no shell reads it",
    _VERSION: "the version of a package, for example 7.9.1-1",
    CONDITION_NAME: "lower-case letters, digits and -",
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CommandEntry(_Strict):
    """A command of the operator on the host of a node."""

    command: Annotated[
        str,
        Field(
            min_length=1,
            description="run by `/bin/sh` as the SSH user; it reads a credential from a file of the host",
        ),
    ]
    timeout_s: Annotated[float, Field(gt=0, le=3600, description="time limit; after it, the command failed")] = 60.0

    @field_validator("command")
    @classmethod
    def _has_no_credential(cls, line: str) -> str:
        if secret := find_credential_argument([line]):
            raise ValueError(f"{secret} {_IN_THE_OPEN}, such as $(cat FILE)")
        return line


class PackageEntry(_Strict):
    """Kafka as a package of the hosts' distribution. A command is a list: a program and its arguments."""

    install: Annotated[
        tuple[Word, ...],
        Field(
            min_length=2,
            description="installs {version}, as root by sudo: the path of a program, and its arguments. No shell reads "
            "them. It can be a script of yours",
        ),
    ]
    check: Annotated[
        tuple[Word, ...],
        Field(
            description="for a script only: succeeds (exit code 0) if install would succeed for {version}, and changes "
            "nothing; as root by sudo. It must try all that the script does, and ask the repository also for the "
            "version that is installed: a rollback installs it again",
        ),
    ] = ()
    download: Annotated[
        tuple[Word, ...],
        Field(
            description="for a script only: downloads {version} for the plan and before a stop, as root by sudo, also "
            "the version that is installed"
        ),
    ] = ()
    repair: Annotated[
        tuple[Word, ...],
        Field(
            description="runs as root by sudo if install fails or leaves the jars of two releases, for example dpkg "
            "--force-confold --configure -a, or dnf remove -y --duplicates; then install runs once more. Without it "
            "the run refuses"
        ),
    ] = ()
    jars: Annotated[
        AbsolutePath, Field(description="folder with kafka_2.13-<release>.jar of the installed release")
    ] = "/usr/share/java/kafka"
    versions: Annotated[
        dict[str, Version],
        Field(
            description="release → version of its package, which replaces {version}; default: the release. Required if "
            "the path of a file contains {version}"
        ),
    ] = {}
    timeout_s: Annotated[float, Field(gt=0, le=3600, description="time limit of each of these commands")] = 600.0

    @field_validator("install", "check", "download", "repair")
    @classmethod
    def _is_a_command(cls, words: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if words and not re.fullmatch(_HOST_PATH, words[0]):
            raise ValueError(f"{words[0]} is not the absolute path of a program")
        if secret := find_credential_argument(words[1:]):
            raise ValueError(f"{secret} {_IN_THE_OPEN}")
        text = " ".join(words)
        if "{" in text.replace("{version}", "") or "}" in text.replace("{version}", ""):
            raise ValueError(f"`{text}` has a placeholder other than {{version}}")
        if words and ("{version}" in text) != (info.field_name != "repair"):
            has = "must not contain" if info.field_name == "repair" else "does not contain"
            raise ValueError(f"`{text}` {has} {{version}}")
        for word in words:
            paths_in(word)
        _refuse_questions(words)
        return words

    @field_validator("versions")
    @classmethod
    def _has_releases(cls, versions: dict[str, str]) -> dict[str, str]:
        try:
            return {str(Release.parse(release)): version for release, version in versions.items()}
        except UserError as error:
            raise ValueError(error.sentence) from None

    @model_validator(mode="after")
    def _is_tried(self) -> PackageEntry:
        if why := why_not_tried(self.install, self.check, self.download):
            raise ValueError(why)
        return self

    @model_validator(mode="after")
    def _names_every_file(self) -> PackageEntry:
        words = (*self.install, *self.check, *self.download, *self.repair)
        files = [path for word in words for path in paths_in(word) if "{version}" in path]
        if files and not self.versions:
            raise ValueError(
                f"{files[0]} contains {{version}}, and a plan checks who can change each of these files: add versions "
                "with the version of the package for each release"
            )
        return self


def _refuse_questions(words: Sequence[str]) -> None:
    """Raise ValueError if dpkg can ask what to do with a changed configuration file. The SSH user can change the file
    and start the command at a terminal, and the answer Z starts a shell, as root."""
    for number, word in enumerate(words):
        program, after = word.rpartition("/")[2], words[number + 1 :]
        if program == "dpkg":  # it reads options before its first other argument only
            options = takewhile(lambda one: one.startswith("-"), after)
            is_quiet, fix = any(re.fullmatch(_KEEPS, one) for one in options), "--force-confold right after it"
        elif program in ("apt", "apt-get"):
            only_loads = "--download-only" in after
            is_quiet = _APT_KEEPS.search(f" {' '.join(after)} ") is not None or only_loads
            fix = "-o Dpkg::Options::=--force-confold"
            if is_quiet and not only_loads and not _NO_MENUS.intersection(words[:number]):
                raise ValueError(
                    f"{word} can show a menu of debconf or ucf, which offers a root shell: begin with /usr/bin/env "
                    "DEBIAN_FRONTEND=noninteractive"
                )
        else:
            continue
        if not is_quiet:
            raise ValueError(
                f"{word} can ask about a changed configuration file, and the answer Z starts a root shell: add {fix}"
            )


class ServiceEntry(_Strict):
    """How nodes are installed on their hosts (ssh_service). A missing key has its default."""

    unit: Annotated[
        UnitName | dict[Role, UnitName] | None,
        Field(
            description="systemd unit (kafka), or one for broker and one for controller; a node with both has the first"
        ),
    ] = None
    user: Annotated[
        User | None, Field(description="user of the process (kafka); the tool reads files of the node as this user")
    ] = None
    installation: Annotated[
        ReleasePath | None, Field(description="folder of a release, with {release} (/opt/kafka_2.13-{release})")
    ] = None
    symlink: Annotated[AbsolutePath | None, Field(description="link from which the unit starts (/opt/kafka)")] = None
    configuration_file: Annotated[
        AbsolutePath | None, Field(description="server.properties of the node (/etc/kafka/server.properties)")
    ] = None
    configuration: Annotated[
        Literal["changed_by_run", "managed_elsewhere"] | None,
        Field(
            description="changed_by_run (default), or managed_elsewhere: while the node is stopped, the run waits "
            "until the file has the lines of the plan"
        ),
    ] = None
    configuration_writer: Annotated[
        Literal["root", "user"] | None,
        Field(
            description="root (default), or user: the user of the process owns the folder of the configuration and "
            "writes it"
        ),
    ] = None
    stop_spares_others: Annotated[
        bool | None,
        Field(
            strict=True,
            description="true: you have tried that ExecStop= and ExecStopPost= stop no other Kafka of the host, where "
            "the tool cannot tell (STOP-REACHES-OTHER-NODES is then a warning)",
        ),
    ] = None
    log_file: Annotated[
        AbsolutePath | None,
        Field(
            description="server.log; without it, the journal is read: the SSH user must be in the group systemd-journal"
        ),
    ] = None
    archive: Annotated[
        ReleasePath | None,
        Field(
            description="archive of a release on the worker, with {release}; its .sha512 next to it. The SSH user "
            "unpacks it on the host, without sudo, so installation must be in a folder of this user"
        ),
    ] = None
    archive_sha512: Annotated[
        dict[str, Sha512] | None,
        Field(description="release → SHA-512 of an archive that you have verified; replaces the file .sha512"),
    ] = None
    install: Annotated[
        CommandEntry | None,
        Field(description="command that installs {release} on a host, such as a package manager; instead of archive"),
    ] = None
    package: Annotated[
        PackageEntry | None,
        Field(
            description="Kafka from a .deb or .rpm package, instead of installation, symlink, archive and install "
            "(docs/packages.md)"
        ),
    ] = None
    before_stop: Annotated[
        list[CommandEntry] | None,
        Field(
            description="commands on the host before a stop, for example to drain the node; a repeated step runs "
            "them again"
        ),
    ] = None
    after_start: Annotated[list[CommandEntry] | None, Field(description="commands on the host after a start")] = None

    @field_validator("installation", "archive")
    @classmethod
    def _names_the_release(cls, text: str | None) -> str | None:
        if text is not None and (text.count("{release}") != 1 or "{" in text.replace("{release}", "")):
            raise ValueError(f"{text} does not contain {{release}} exactly once")
        return text

    @field_validator("installation")
    @classmethod
    def _names_the_release_in_its_folder(cls, text: str | None) -> str | None:
        if text is not None and "{release}" not in text.rstrip("/").rpartition("/")[2]:
            raise ValueError(
                f"{text} does not contain {{release}} in its last part: link each folder, such as "
                "/opt/kafka-{release}, to the folder of its release"
            )
        return text


def service_of(host: str, roles: Sequence[Role], *entries: ServiceEntry | None) -> ServiceSpec:
    """Return the installation of a node; a later entry overrides the earlier ones. Raises ValueError without a unit for
    the roles."""
    given: dict[str, Any] = {}
    for entry in entries:
        if entry is not None:
            given |= entry.model_dump(exclude_none=True)
    unit = given.pop("unit", "kafka")
    if isinstance(unit, Mapping):
        role = Role.BROKER if Role.BROKER in roles else Role.CONTROLLER
        if role not in unit:
            raise ValueError(f"unit has no entry for the role {role.value}")
        unit = unit[role]
    managed = given.pop("configuration", "changed_by_run") == "managed_elsewhere"
    commands: dict[str, Any] = {
        key: tuple(HostCommand(**one) for one in given.pop(key))
        for key in ("before_stop", "after_start")
        if key in given
    }
    if "install" in given:
        commands["install"] = HostCommand(**given.pop("install"))
    if "archive" in given and "install" in commands:
        raise ValueError("archive and install exclude each other")
    if "package" in given:
        for key in ("installation", "symlink", "archive", "install"):
            if key in given or key in commands:
                raise ValueError(f"package and {key} exclude each other")
        package = given.pop("package")
        commands["package"] = PackageSpec(
            **{**package, "download": package.get("download") or download_of(package["install"])}
        )
    service = ServiceSpec(
        host=host,
        unit=unit if unit.endswith(_SUFFIX) else unit + _SUFFIX,
        managed_elsewhere=managed,
        **commands,
        **given,
    )
    _refuse_file_of_release(service)
    return service


def _refuse_file_of_release(service: ServiceSpec) -> None:
    """Raise ValueError if the configuration is in the folder of a release: a node on another one would not read it."""
    file = service.configuration_file
    before, _, after = map(re.escape, service.installation.partition("{release}"))
    of_release = re.match(rf"{before}\d+\.\d+\.\d+[^/]*{after}/", file)
    if service.package is None and (of_release or file.startswith(f"{service.symlink}/")):
        raise ValueError(
            f"configuration_file {file} is in the folder of a release, and a node on another release would not read "
            "it. Copy it to a folder outside, for example /etc/kafka, name the copy in ExecStart of the unit and here, "
            "and restart the node. If a link leads to a file outside, name that file here"
        )


def dump_services(nodes: Sequence[NodeSpec]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the entries from which `service_of` makes the same installations: that of the cluster, and those of the
    nodes with their host."""
    own = [_entry(node.service) if node.service is not None else {} for node in nodes]
    shared = {key: value for key, value in own[0].items() if all(one.get(key) == value for one in own)}
    return shared, [{key: value for key, value in one.items() if key not in shared} for one in own]


def _entry(service: ServiceSpec) -> dict[str, Any]:
    default = ServiceSpec(host="")
    changed = [f.name for f in fields(service) if getattr(service, f.name) != getattr(default, f.name)]
    entry = {name: value for name, value in asdict(service).items() if name in changed and name != "host"}
    if entry.pop("managed_elsewhere", False):
        entry["configuration"] = "managed_elsewhere"
    return {key: list(value) if isinstance(value, tuple) else value for key, value in entry.items()}


class ConditionEntry(_Strict):
    """A Prometheus query or a command whose value the gates of nodes check."""

    name: Annotated[
        str, StringConstraints(pattern=CONDITION_NAME), Field(description="name of the condition in gates and reports")
    ]
    query: Annotated[
        str, Field(max_length=10_000, description="PromQL that returns one number; either query or command")
    ] = ""
    command: Annotated[
        tuple[str, ...],
        Field(
            max_length=100,
            description="the absolute path of a program, and its arguments, which no shell reads. It runs on the "
            "Airflow worker or triggerer, or on the machine of the command line",
        ),
    ] = ()
    requires: Annotated[
        str,
        Field(
            description='comparison that the number must meet, for example "< 0.01": of the query, or of the standard '
            "output of the command. Without it, exit code 0 of the command meets the condition and 1 does not"
        ),
    ] = ""
    applies_to: Annotated[
        tuple[AppliesTo, ...],
        Field(min_length=1, description="before_stop (default), after_start or both: which gates of a node check it"),
    ] = ("before_stop",)
    for_s: Annotated[
        float,
        Field(
            ge=0,
            le=86_400,
            description="all checks during these seconds must pass, at least interval_s; default: one check",
        ),
    ] = 0.0
    interval_s: Annotated[
        float, Field(ge=1, le=3600, description="least seconds between two readings of the value")
    ] = 10.0
    timeout_s: Annotated[float, Field(gt=0, le=60, description="seconds until one reading counts as failed")] = 10.0

    @field_validator("requires")
    @classmethod
    def _is_a_comparison(cls, text: str) -> str:
        if text and not re.fullmatch(COMPARISON, text):
            raise ValueError(f"'{text}' is not a comparison: write it in quotes, for example \"< 0.01\"")
        return text

    @field_validator("command")
    @classmethod
    def _is_a_program(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        if words and not words[0].startswith("/"):
            raise ValueError(f"{words[0]} is not the absolute path of a program")
        if secret := find_credential_argument(words[1:]):
            raise ValueError(f"{secret} {_IN_THE_OPEN}")
        return words

    @model_validator(mode="after")
    def _is_one_of_both(self) -> ConditionEntry:
        if bool(self.query.strip()) == bool(self.command):
            raise ValueError(f"condition {self.name} needs either a query or a command")
        if self.query and not self.requires:
            raise ValueError(f"condition {self.name} is a query: it needs requires")
        if 0 < self.for_s < self.interval_s:
            raise ValueError(
                f"condition {self.name} has for_s {self.for_s:g} below interval_s {self.interval_s:g}: all checks of "
                "that time would use one reading"
            )
        return self
