"""Which Defaults of sudo let the SSH user choose what a command of root executes.

`sudo --list` prints the Defaults of the user in the order in which sudo applies them: the last setting of a name
counts, and env_keep and env_check are lists that a line replaces, extends or shortens (sudoers(5), update_defaults in
sudo's defaults.c). Those of a command or of a runas user are printed apart; sudo applies those of a command last.

A name that is not known to be harmless is a finding: a site or a later sudo can have any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

OWN_DEFAULTS = (
    'secure_path="/usr/sbin:/usr/bin:/sbin:/bin", env_reset, !env_keep, env_check="LANGUAGE LC_ALL", !env_file, '
    "!exempt_group, !setenv, umask=0022, !requiretty"
)
"""What the printed file sets for the SSH user. All of it exists since sudo 1.8.23."""

_SYSTEM_FOLDERS = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/snap/bin"}
_OTHERS_CANNOT_WRITE = 0o022
# They concern passwords, logs, mails, messages, sudoedit and visudo, or they restrict a command.
_HARMLESS = """
    syslog syslog_goodpri syslog_badpri syslog_maxlen syslog_pid long_otp_prompt ignore_dot mail_always mail_badpass
    mail_no_user mail_no_host mail_no_perms mail_all_cmnds mailerpath mailerflags mailto mailfrom mailsub tty_tickets
    lecture lecture_file lecture_status_dir authenticate root_sudo log_host log_year set_home always_set_home path_info
    fqdn insults requiretty env_editor editor rootpw runaspw targetpw use_loginclass set_logname loglinelen logfile
    timestamp_timeout timestamp_type timestampdir timestampowner passwd_timeout passwd_tries badpass_message
    authfail_message cmddenial_message passprompt passprompt_override passprompt_regex runas_default listpw verifypw
    noexec ignore_local_sudoers ignore_unknown_defaults env_delete restricted_env_file sudoers_locale visiblepw
    pwfeedback fast_glob umask_override log_input log_stdin log_ttyin log_output log_stdout log_stderr log_ttyout
    log_format log_allowed log_denied log_exit_status log_passwords log_servers log_server_timeout log_server_keepalive
    log_server_cabundle log_server_peer_cert log_server_peer_key log_server_verify log_subcmds compress_io use_pty
    group_plugin iolog_dir iolog_file iolog_user iolog_group iolog_mode iolog_flush maxseq set_utmp utmp_runas
    exec_background pam_service pam_login_service pam_setcred pam_session pam_acct_mgmt pam_silent pam_ruser pam_rhost
    noninteractive_auth use_netgroups netgroup_tuple sudoedit_checkdir sudoedit_follow always_query_group_plugin
    match_group_by_gid case_insensitive_user case_insensitive_group ignore_audit_errors ignore_iolog_errors
    ignore_logfile_errors command_timeout runas_allow_unknown_id runas_check_shell intercept intercept_authenticate
    intercept_verify selinux admin_flag
""".split()  # noqa: SIM905 - a table of names
_HARMLESS_OFF = """
    setenv exempt_group env_file stay_setuid preserve_groups closefrom_override runchroot runcwd user_command_timeouts
    intercept_allow_setid shell_noargs
""".split()  # noqa: SIM905 - a table of names
# What sudo and the files of Debian, RHEL and SUSE keep, and names of a connection. HOME is none: Python loads from it.
_HARMLESS_VARIABLES = """
    COLORS DISPLAY HOSTNAME KRB5CCNAME LS_COLORS PATH PS1 PS2 XAUTHORITY XAUTHORIZATION XDG_CURRENT_DESKTOP HISTSIZE
    KDEDIR QTDIR MAIL USERNAME LANG LANGUAGE LINGUAS LC_* _XKB_CHARSET LOGNAME USER SSH_AUTH_SOCK SSH_CLIENT
    SSH_CONNECTION SSH_TTY
""".split()  # noqa: SIM905 - a table of names
# sudo keeps those of env_check only if the value is safe.
_CHECKED_VARIABLES = [*_HARMLESS_VARIABLES, "COLORTERM", "TERM", "TZ"]
_SETTING = re.compile(r'(!?)([a-z_]+)(?:(\+=|-=|=)("(?:\\.|[^"\\])*"|(?:\\.|[^\\,"\s])*))?')
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./+-]*[A-Za-z0-9_+-]")


@dataclass(frozen=True, slots=True)
class _Setting:
    name: str
    is_off: bool
    sign: str
    """`=`, `+=`, `-=`, or empty without a value."""
    value: str

    def __str__(self) -> str:
        return f"{'!' * self.is_off}{self.name}{self.sign}{self.value}"


def excess_defaults(
    general: str, bound: Iterable[str], programs: Collection[str], can_be_root: Callable[[str], bool]
) -> Iterator[str]:
    """Yield each setting with which the SSH user could choose what a command of root executes.

    `general`: the settings of the user, in their order. `bound`: lines such as `Defaults!/usr/bin/apt setenv`.
    `programs`: paths that the user runs as root. `can_be_root`: whether a list of runas users can contain root.
    """
    settings, rest = _read(_pieces(general))
    yield from (f"Defaults: {one}" for one in _judge(settings, of_a_user=True))
    yield from (f"Defaults that cannot be read: {one}" for one in rest)
    names = {path.rpartition("/")[2] for path in programs}
    for line in bound:
        mark, members, pieces = _split(line)
        if mark == ">" and not can_be_root(", ".join(members)):
            continue
        if mark == "!" and all(_is_other(member, names) for member in members):
            continue
        settings, rest = _read(pieces)
        found = [*_judge(settings, of_a_user=False), *rest]
        if found:
            yield f"Defaults{mark}{', '.join(members)}: {', '.join(found)}"


def _is_other(command: str, names: Collection[str]) -> bool:
    """sudo compares the files behind the paths: /bin/mv can be /usr/bin/mv."""
    path = command.partition(" ")[0]
    return bool(_PLAIN_PATH.fullmatch(path)) and path.rpartition("/")[2] not in names


def _pieces(text: str) -> list[str]:
    found = re.findall(r'(?:"(?:\\.|[^"\\])*"|\\.|[^,"\\]|["\\])+', text)
    return [one.strip() for one in found if one.strip()]


def _split(line: str) -> tuple[str, list[str], list[str]]:
    """Return the mark of a binding, its members and its settings."""
    match = re.fullmatch(r"Defaults([!>@:])(.*)", line)
    if match is None:
        return "", [], [line]
    members, settings = list[str](), list[str]()
    for piece in _pieces(match[2]):
        if members and _SETTING.fullmatch(piece):
            settings.append(piece)
            continue
        last = re.fullmatch(rf"(.*\S) ({_SETTING.pattern})", piece)
        members.append(last[1] if last else piece)
        settings += [last[2]] if last else []
    return match[1], members, settings


def _read(pieces: Iterable[str]) -> tuple[list[_Setting], list[str]]:
    """Return the settings, and what is none."""
    settings, rest = list[_Setting](), list[str]()
    for piece in pieces:
        match = _SETTING.fullmatch(piece)
        if match is None:
            rest.append(piece)
            continue
        off, name, sign, value = match.groups(default="")
        settings.append(
            _Setting(name, bool(off), sign, re.sub(r"\\(.)", r"\1", value.removeprefix('"').removesuffix('"')))
        )
    return settings, rest


def _judge(settings: list[_Setting], *, of_a_user: bool) -> Iterator[str]:
    """`of_a_user`: they are all settings of a user, so that what they lack has sudo's own value."""
    last = {one.name: one for one in settings}
    path = last.get("secure_path")
    if path is None or path.is_off or not path.value:
        if path is not None or of_a_user:
            yield "no secure_path"
    elif not set(path.value.split(":")) <= _SYSTEM_FOLDERS:
        yield str(path)
    for name, one in last.items():
        if name in ("env_keep", "env_check"):
            more = _HARMLESS_VARIABLES if name == "env_keep" else _CHECKED_VARIABLES
            unknown = [each for each in _variables(settings, name) if not _is_variable(each, more)]
            if unknown or (not one.sign and not one.is_off):
                yield f"{name} of {' '.join(unknown) or 'unknown variables'}"
        elif name == "umask":
            if one.is_off or not _protects(one.value):
                yield str(one)
        elif name == "env_reset":
            if one.is_off:
                yield str(one)
        elif name != "secure_path" and name not in _HARMLESS and not (one.is_off and name in _HARMLESS_OFF):
            yield str(one)


def _variables(settings: Iterable[_Setting], name: str) -> list[str]:
    """Return a list after all settings, without sudo's own beginning, which is harmless."""
    found = dict[str, None]()
    for one in settings:
        if one.name != name:
            continue
        given = dict.fromkeys(one.value.split())
        if one.sign == "+=":
            found |= given
        elif one.sign == "-=":
            found = {each: None for each in found if each not in given}
        else:
            found = {} if one.is_off else given
    return list(found)


def _is_variable(name: str, known: Collection[str]) -> bool:
    return name in known or bool(re.fullmatch("LC_[A-Z]+", name))


def _protects(umask: str) -> bool:
    """0777 is the umask of the SSH user."""
    mask = int(umask, 8) if re.fullmatch("[0-7]{1,5}", umask) else 0
    return mask != 0o777 and mask & _OTHERS_CANNOT_WRITE == _OTHERS_CANNOT_WRITE
