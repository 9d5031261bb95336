"""Settings of a unit of systemd: which of them a plan understands, and which an approver must read.

The modules that ask a host for settings take their names from here, so that what a check reads is known.

Source: the manual pages systemd.syntax, systemd.unit, systemd.service, systemd.exec, systemd.kill and
systemd.resource-control. A setting that is not in the table can decide whether and with what the next start happens,
so it never counts as harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_READ_SECTIONS = ("Unit", "Service")
"""systemd reads [Install] only for `systemctl enable`, and no section that begins with `X-`."""


@dataclass(frozen=True, slots=True)
class UnitSetting:
    """A line of the files of a unit."""

    section: str
    name: str
    """Empty for a line that is not a setting."""
    value: str
    file: str = ""
    """Empty: unknown."""
    is_newer: bool = False
    """Its file was changed after the process was started, or can have been: the process does not prove it."""

    @property
    def is_of_folder(self) -> bool:
        """It is no line, but says that files of a folder with drop-ins came or went."""
        return self.file.endswith(".d")

    def __str__(self) -> str:
        return f"{self.name}={self.value}" if self.name else self.value


OF_USER = ("User", "Group", "SupplementaryGroups", "DynamicUser", "AmbientCapabilities")
CLOSED_PATHS = ("InaccessiblePaths", "NoExecPaths", "ExecPaths")  # the last two since systemd 249
BOUND_PATHS = ("BindPaths", "BindReadOnlyPaths")
OF_WRITES = ("ProtectSystem", "ReadOnlyPaths", "ReadWritePaths")
OF_HOMES = ("ProtectHome", "PrivateTmp")
OTHER_ROOTS = ("RootDirectory", "RootImage", "MountImages", "ExtensionImages", "ExtensionDirectories")
CREDENTIALS = ("LoadCredential", "LoadCredentialEncrypted")
FOLDERS_OF_USER = {"LogsDirectory": "/var/log", "StateDirectory": "/var/lib", "CacheDirectory": "/var/cache"}
"""Folders that systemd makes for the user of a unit, and that stay (systemd.exec(5)) → where."""
MADE_FOLDERS = {**FOLDERS_OF_USER, "ConfigurationDirectory": "/etc", "RuntimeDirectory": "/run"}
AFTER_FAILURE, AFTER_SUCCESS = ("OnFailure", "FailureAction"), ("OnSuccess", "SuccessAction")
"""Settings by which systemd acts when the unit has ended with a failure, or with success (systemd.unit(5))."""
TERM = 15
"""The number of SIGTERM."""
REQUIRED_UNITS = ("Requires", "Requisite", "BindsTo")
_AS_STARTED = "the process that runs was started with it, and so is the next one"
_SAME_FOR_RELEASES = "system calls, devices and addresses are the same for each release on the same Java"
_OF_HOST = "true or false as long as the host runs, and true for the process"
_PROVED_BY_PROCESS = (_AS_STARTED, _SAME_FOR_RELEASES, _OF_HOST)
_KNOWN: dict[str, tuple[str, ...]] = {
    "for people": ("Description", "Documentation", "SourcePath"),
    "checks read what they start, stop or need": (
        *("ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost", "ExecStop", "ExecStopPost", "ExecSearchPath"),
        *("Environment", "EnvironmentFile", "WorkingDirectory", *OF_USER, *CREDENTIALS, *REQUIRED_UNITS),
        *("PermissionsStartOnly", "RefuseManualStart", "StandardInput", "StandardOutput", "StandardError", "PIDFile"),
        *("BindTo", "RequiresMountsFor", "PropagatesStopTo"),
        *("KillMode", "KillSignal", "SendSIGKILL", "TimeoutSec", "TimeoutStopSec"),
    ),
    "checks read what they show, hide or close": (
        *(*BOUND_PATHS, *CLOSED_PATHS, *OF_WRITES, *OF_HOMES, *OTHER_ROOTS, "TemporaryFileSystem"),
        *("InaccessibleDirectories", "ReadOnlyDirectories", "ReadWriteDirectories"),  # older names
    ),
    "checks read what systemd makes and removes": (
        *(*MADE_FOLDERS, *(f"{name}Mode" for name in MADE_FOLDERS), "RuntimeDirectoryPreserve", "TimeoutCleanSec"),
    ),
    "it orders, or starts another unit whose result does not count": (
        *("After", "Before", "Wants", "WantsMountsFor", "Upholds", "DefaultDependencies", "CollectMode"),
    ),
    "it acts when another unit stops, restarts or reloads": (
        *("PartOf", "StopPropagatedFrom", "PropagatesReloadTo", "PropagateReloadTo", "ReloadPropagatedFrom"),
        *("PropagateReloadFrom", "ExecReload", "ReloadSignal", "IgnoreOnIsolate", "AllowIsolate", "OnFailureJobMode"),
        *("OnSuccessJobMode", "SurviveFinalKillSignal"),
    ),
    "a check reads what systemd does on the host because a unit stops": (*AFTER_FAILURE, *AFTER_SUCCESS),
    "a stop that it refuses leaves the node running": ("RefuseManualStop",),
    _AS_STARTED: (
        *("Type", "ExitType", "RemainAfterExit", "GuessMainPID", "NotifyAccess", "BusName", "NonBlocking", "UMask"),
        *("TimeoutStartSec", "TimeoutStartFailureMode", "Slice", "Delegate", "DelegateSubgroup", "TimerSlackNSec"),
        *("Nice", "OOMScoreAdjust", "OOMPolicy", "IgnoreSIGPIPE", "CoredumpFilter", "CoredumpReceive", "MemoryKSM"),
        *("KeyringMode", "RemoveIPC", "SetLoginEnvironment", "PrivateIPC", "MountAPIVFS", "BindLogSockets"),
    ),
    "systemd starts the process again by itself, not at the start of a run": (
        *("Restart", "RestartSec", "RestartSteps", "RestartMaxDelaySec", "RestartMode", "RestartPreventExitStatus"),
        *("RestartForceExitStatus", "SuccessExitStatus"),
    ),
    "it acts on a stop that takes too long, whose limit a check reads": (
        *("SendSIGHUP", "FinalKillSignal", "RestartKillSignal", "TimeoutAbortSec", "TimeoutStopFailureMode"),
    ),
    _SAME_FOR_RELEASES: (
        *("CapabilityBoundingSet", "NoNewPrivileges", "SecureBits", "SystemCallFilter", "SystemCallErrorNumber"),
        *("SystemCallArchitectures", "SystemCallLog", "RestrictAddressFamilies", "RestrictNamespaces"),
        *("RestrictRealtime", "RestrictSUIDSGID", "LockPersonality", "MemoryDenyWriteExecute", "PrivateDevices"),
        *("PrivateMounts", "MountFlags", "PrivateNetwork", "PrivateUsers", "ProtectClock", "ProtectControlGroups"),
        *("ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "ProtectProc"),
        *("ProcSubset", "DevicePolicy", "DeviceAllow", "IPAddressAllow", "IPAddressDeny", "SocketBindAllow"),
        *("SocketBindDeny", "RestrictNetworkInterfaces"),
    ),
    "only its log": (
        *("SyslogIdentifier", "SyslogFacility", "SyslogLevel", "SyslogLevelPrefix", "LogLevelMax", "LogExtraFields"),
        *("LogRateLimitIntervalSec", "LogRateLimitInterval", "LogRateLimitBurst", "LogFilterPatterns"),
        *("UtmpIdentifier", "UtmpMode"),
    ),
    _OF_HOST: (
        *("ConditionArchitecture", "ConditionVirtualization", "ConditionKernelCommandLine", "ConditionKernelVersion"),
        *("ConditionFirmware", "ConditionCapability", "ConditionSecurity", "ConditionControlGroupController"),
        *("AssertArchitecture", "AssertVirtualization", "AssertKernelCommandLine", "AssertKernelVersion"),
        *("AssertFirmware", "AssertCapability", "AssertSecurity", "AssertControlGroupController"),
    ),
}
"""Why the next start does not depend on a setting in a way that no check sees → the settings."""
_KNOWN_NAMES = frozenset(name for names in _KNOWN.values() for name in names)
_LIMITS = re.compile(
    r"Limit[A-Z]+|(Startup)?(CPU|IO|Memory|Tasks|BlockIO|NUMA|ManagedOOM)[A-Z]\w*"
    r"|(CPU|IO)Scheduling\w+|(Default)?(CPU|IO|Memory|Tasks|BlockIO|IP)Accounting|X-.*"
)
"""Resources of the process, as for the one that runs; and what systemd does not read."""
_FOLLOWED = re.compile(r"(Condition|Assert)(Path(Exists|IsDirectory)|File(NotEmpty|IsExecutable))")
_HEADER = re.compile(r"# (/\S.*\.(?:service|conf))")
"""The line of `systemctl cat` before each file. A comment of the same form makes the file of what follows unknown."""
_GOES_ON = re.compile(r"(?<!\\)(\\\\)*\\\Z")
_PREFIXES = ("Condition", "Assert")
_HARMLESS = {"StartLimitIntervalSec": "0", "StartLimitInterval": "0"}
"""Values that switch a setting off."""


def parse_settings(text: str) -> Iterator[UnitSetting]:
    """Yield the lines in the files of a unit, as `systemctl cat` prints them, without comments."""
    section = file = ""
    for line in _joined(text.splitlines()):
        stripped = line.strip()
        if not stripped:
            continue
        if (header := _HEADER.fullmatch(line)) is not None:
            file = header[1]
            continue
        if stripped.startswith("[") and stripped.endswith("]"):
            section = stripped[1:-1]
            continue
        name, equals, value = stripped.partition("=")
        is_setting = equals and re.fullmatch(r"[\w.-]+", name.rstrip())
        name, value = (name.rstrip(), value.strip()) if is_setting else ("", stripped)
        yield UnitSetting(section, name, value, file)


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines without comments, joined after an odd number of backslashes at their end. A comment never goes
    on, and ends no line that does."""
    begun = ""
    for line in lines:
        if line.lstrip().startswith(("#", ";")):
            if not begun and _HEADER.fullmatch(line):
                yield line
            continue
        begun += line
        if _GOES_ON.search(begun):
            begun = f"{begun[:-1]} "
        else:
            yield begun
            begun = ""
    yield begun


def find_unknown(settings: Iterable[UnitSetting]) -> tuple[str, ...]:
    """Return the settings that no check understands, each as `Name=value`, without those that a later line empties."""
    found: list[UnitSetting] = []
    for one in (each for each in settings if each.section in _READ_SECTIONS):
        if one.value:
            found.append(one)
        else:  # it empties all conditions, or all assertions
            prefix = next((each for each in _PREFIXES if one.name.startswith(each)), "")
            found = [each for each in found if not (each.name.startswith(prefix) if prefix else each.name == one.name)]
    return tuple(dict.fromkeys(str(one) for one in found if not (_is_known(one) or one.is_of_folder)))


def find_unproved(settings: Iterable[UnitSetting]) -> tuple[str, ...]:
    """Return the settings that only the process proves, and which can be newer than it, each as `Name=value`."""
    by_process = frozenset(name for why in _PROVED_BY_PROCESS for name in _KNOWN[why])
    newer = [one for one in settings if one.is_newer and one.section in _READ_SECTIONS and one.value]
    names = by_process | {one.name for one in newer if _LIMITS.fullmatch(one.name) and not one.name.startswith("X-")}
    return tuple(dict.fromkeys(str(one) for one in newer if one.is_of_folder or one.name in names))


def exit_code_of(signal: int | None) -> int:
    """Return the exit code of a JVM that a signal ends; None: SIGTERM, as by default."""
    return 128 + (signal or TERM)


def find_stop_actions(settings: Iterable[UnitSetting], signal: int | None) -> tuple[str, ...]:
    """Return the settings by which systemd acts on the host at each stop of a JVM, each as `Name=value`. `signal`: of
    KillSignal=.

    An exit code other than 0 is a failure for systemd unless SuccessExitStatus= has it (systemd.service(5)).
    """
    values: dict[str, list[str]] = {}
    for one in settings:
        if one.section in _READ_SECTIONS:
            values[one.name] = [*values.get(one.name, ()), one.value] if one.value else []
    codes = {exit_code_of(signal), *([exit_code_of(TERM)] if values.get("ExecStop") else [])}  # of Kafka's script
    succeeds = {*map(str, codes)} <= {*" ".join(values.get("SuccessExitStatus", ())).split()}
    starts, acts = AFTER_SUCCESS if succeeds else AFTER_FAILURE
    last = [value for value in values.get(acts, ())[-1:] if value != "none"]
    return (*(f"{starts}={units}" for units in values.get(starts, ())), *(f"{acts}={action}" for action in last))


def _is_known(setting: UnitSetting) -> bool:
    name, value = setting.name, setting.value
    if _FOLLOWED.fullmatch(name):  # the paths of a start have it: one that must exist, or that must not
        path = value.removeprefix("!").strip() if name.endswith("PathExists") else value
        return path.startswith("/") and not re.search(r"[%*?\[]", path)
    return name in _KNOWN_NAMES or _LIMITS.fullmatch(name) is not None or _HARMLESS.get(name) == value
