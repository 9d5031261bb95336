"""Findings, the codes that they can have, and the checks that give them. A refusal is data, with a remedy.

The module of a subject defines its codes and checks once; `report/check_registry.py` collects them. Findings of one
kind are shown as one entry: their number, the first of them, and one remedy that is never cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum
from typing import NewType, Protocol, TypeVar

from kafka_rollout.base.errors import RefusedError, RolloutError, UserError
from kafka_rollout.base.outside_text import REMEDY_LIMIT, escape_invisible
from kafka_rollout.base.wording import count


class Severity(StrEnum):
    BLOCKER = "blocker"  # the next step cannot begin; an approval does not change that
    WARNING = "warning"  # an approver must read it before the approval
    INFO = "info"


BLOCKER, WARNING, INFO = Severity.BLOCKER, Severity.WARNING, Severity.INFO

Code = NewType("Code", str)
"""Text of a `FindingCode`, in KEBAB-CASE capitals such as `RF-ONE-TOPIC`. It is stored, so it is stable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact that blocks or warns. Only `FindingCode.found` makes a new one."""

    code: Code
    severity: Severity
    subject: str
    """The object (`topic orders`, `node 3`)."""
    sentence: str
    """The measured fact."""
    remedy: str
    """The action to take."""
    covers: tuple[str, ...] = ()
    """Each part of what was read, where the subject stands for several: an approval covers these, and no others."""

    @property
    def identity(self) -> tuple[str, str]:
        """Key that identifies the same finding in different checks; numbers in the sentence can differ. Whether it was
        approved, `find_new` decides."""
        return (self.code, self.subject)

    def __str__(self) -> str:
        """One line without invisible characters, for a log or a terminal. The remedy is never cut."""
        line = escape_invisible(f"[{self.severity}] {self.code} ({self.subject}): {self.sentence}")
        return f"{line} {escape_invisible(self.remedy, limit=REMEDY_LIMIT)}".rstrip()


class Approvable(Protocol):
    """What an approver reads."""

    @property
    def identity(self) -> tuple[str, str]:
        """Key of the object."""

    @property
    def covers(self) -> tuple[str, ...]:
        """The parts of it that were read; empty if the key says all."""


A = TypeVar("A", bound=Approvable)


def find_new(found: Iterable[A], approved: Iterable[A]) -> tuple[A, ...]:
    """Return what no approver has read: another object, or the same one with a part that was not there."""
    read: dict[tuple[str, str], set[str]] = {}
    for one in approved:
        read.setdefault(one.identity, set()).update(one.covers)
    return tuple(one for one in found if one.identity not in read or not read[one.identity].issuperset(one.covers))


@dataclass(frozen=True, slots=True)
class FindingCode:
    """What findings of one kind have in common."""

    text: str
    may_be: Severity | tuple[Severity, ...]
    """Their severity, or several, the usual one first."""
    meaning: str
    """One sentence."""
    remedy: str = ""
    """Of each finding that has no other; empty if each has its own or needs none."""

    @property
    def code(self) -> Code:
        return Code(self.text)

    @property
    def severities(self) -> tuple[Severity, ...]:
        return (self.may_be,) if isinstance(self.may_be, Severity) else self.may_be

    def found(
        self,
        subject: str,
        sentence: str,
        remedy: str | None = None,
        *,
        severity: Severity | None = None,
        covers: Iterable[str] = (),
    ) -> Finding:
        """Return a finding. `severity`: default the usual one. Raises ValueError for one that the code cannot have."""
        chosen = severity or self.severities[0]
        if chosen not in self.severities:
            raise ValueError(f"{self.text} cannot be {chosen}")
        remedy = self.remedy if remedy is None else remedy
        return Finding(
            code=self.code,
            severity=chosen,
            subject=subject,
            sentence=sentence,
            remedy=remedy,
            covers=tuple(sorted(set(covers))),
        )


NOT_OBSERVABLE = FindingCode(
    "NOT-OBSERVABLE",
    (INFO, WARNING),
    "The tool cannot observe a value. A warning if the tool itself uses the value.",
    "No action needed, unless the answer depends on it.",
)


CHECK_FAILED = FindingCode(
    "CHECK-FAILED",
    BLOCKER,
    "A check that can find a blocker could not be made, because the tool or a node failed.",
    "Remove the cause, then plan again.",
)


class UnknownKind(StrEnum):
    """Why a check did not observe something."""

    HIDDEN = "hidden"
    """The cluster, a missing right or the runtime hides it. Who approves the plan accepts it by its subject."""
    FAILED = "failed"
    """The tool or a node failed, and a repetition can succeed. It blocks a plan."""
    NOT_TRIED = "not tried"
    """This machine cannot rehearse. Everything else was checked, and `--yes` accepts it."""
    LEFT_OUT = "left out"
    """The request leaves it out, or a later step of the run makes it."""


@dataclass(frozen=True, slots=True)
class UnknownValue:
    """Something that a check did not observe."""

    subject: str
    """The object (`ACLs`, `node 3`): the same in different checks."""
    sentence: str
    """Why it is unknown; numbers in it can differ."""
    kind: UnknownKind = UnknownKind.HIDDEN
    remedy: str = ""
    """Of the error; empty if it has none."""

    def name(self, check: str) -> str:
        """Return the name that approvers accept. `check`: the id of the check."""
        return f"{check}={self.subject}"


def unknown(subject: str, sentence: str, kind: UnknownKind = UnknownKind.HIDDEN) -> tuple[UnknownValue, ...]:
    """Return what is unknown; nothing for an empty sentence."""
    return (UnknownValue(subject, sentence, kind),) if sentence else ()


def unknown_by(error: RolloutError, subject: str, what: str = "") -> tuple[UnknownValue, ...]:
    """Return what an error left unknown. A refusal hides it; every other error is a failure. `what`: said before it."""
    hidden = isinstance(error, (RefusedError, UserError))
    kind = UnknownKind.HIDDEN if hidden else UnknownKind.FAILED
    sentence = f"{what}: {error.sentence}" if what else error.sentence
    return (UnknownValue(subject, sentence, kind, error.remedy),)


class CheckOf(StrEnum):
    """What a check belongs to."""

    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    RESTART = "restart"
    FEATURES = "features"
    FINALIZING = "finalizing"
    REHEARSAL = "rehearsal"
    INVENTORY = "inventory check"
    OBSERVATION = "observe"
    GROUPS = "groups list"
    CHECK = "check"


class Need(StrEnum):
    """What a check cannot do without."""

    QUORUM = "metadata quorum"
    NODES = "responses of each node"
    LEVELS = "finalized feature levels"
    TOPICS = "topics"
    GROUPS = "groups and transactional ids"
    SETTINGS = "dynamic configuration"
    LOGS = "records of the coordinator logs"
    METRICS = "metrics"
    CONFIGS = "configuration files"
    BROKER_CONFIGS = "configuration files of the brokers"
    JAVA = "Java versions"
    FACTS = "facts of the catalogue"


class OfSomeNodes(str):
    """A sentence about what is unknown of some nodes. The check judged the others."""

    __slots__ = ()


class Examined(StrEnum):
    """Objects that a check examines, with their number in the output of a check."""

    NODES = "nodes"
    BROKERS = "brokers"
    VOTERS = "voters"
    TOPICS = "topics"
    GROUPS = "groups"
    CLIENTS = "clients"
    LEVELS = "feature levels"
    RELEASES = "releases"
    RIGHTS = "rights"
    CONFIGS = "configurations"
    DYNAMIC = "dynamic configurations"
    JAVA = "Java versions"
    HOSTS = "hosts"
    FILES = "files"
    LOGS = "coordinator logs"


@dataclass(frozen=True, slots=True)
class Check:
    """One check."""

    id: str
    """Stable, in kebab-case."""
    title: str
    """What it examines, a noun phrase."""
    link: str
    """The page below docs/ and the heading about it."""
    codes: tuple[FindingCode, ...]
    of: tuple[CheckOf, ...] = (CheckOf.UPGRADE, CheckOf.DOWNGRADE)
    _: KW_ONLY
    needs: tuple[Need, ...]
    """Without these, finding nothing means that the result is unknown."""
    examines: Examined = Examined.NODES

    @property
    def can_block(self) -> bool:
        """Whether one of its findings can be a blocker."""
        return any(Severity.BLOCKER in code.severities for code in self.codes if code != CHECK_FAILED)

    @property
    def page(self) -> str:
        """The heading about the check on the generated page of findings, below docs/."""
        return f"findings.md#{self.id}"

    def ran(
        self,
        findings: Iterable[Finding] = (),
        *,
        unless: str = "",
        unknown: Iterable[UnknownValue] = (),
        note: str = "",
    ) -> Checked:
        """Return the check with its findings. `unless`: why it does not apply; then `findings` is not read.

        `unknown`: what it could not observe. `note`: what it examined, beside the objects of all plans.
        """
        clock = _CLOCK.get()
        began = clock() if clock else 0.0
        found = () if unless else tuple(findings)
        seconds = clock() - began if clock else 0.0
        return Checked(
            check=self, findings=found, not_applicable=unless, unknown=tuple(unknown), note=note, seconds=seconds
        )


_CLOCK: ContextVar[Callable[[], float] | None] = ContextVar("clock of the checks", default=None)


@contextmanager
def timed_checks(clock: Callable[[], float]) -> Iterator[None]:
    """Measure each `Check.ran` of this context. `clock`: seconds."""
    before = _CLOCK.set(clock)
    try:
        yield
    finally:
        _CLOCK.reset(before)


class CheckState(StrEnum):
    PASSED = "passed"
    FINDINGS = "findings"
    NOT_APPLICABLE = "not applicable"
    NOT_OBSERVABLE = "not observable"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Result of a check, as a plan keeps it."""

    check: str
    """The title."""
    state: CheckState
    findings: int = 0
    severity: Severity | None = None
    """The highest of its `findings`."""
    reason: str = ""
    """What is unknown, why the check does not apply, or its note."""
    id: str = ""
    unknowns: tuple[UnknownValue, ...] = ()
    """What it could not observe, also beside findings."""
    can_block: bool = False
    """As of the check."""

    @property
    def unknown(self) -> str:
        """What it could not observe, as sentences."""
        return " ".join(dict.fromkeys(one.sentence for one in self.unknowns))

    @property
    def can_hide_a_blocker(self) -> bool:
        """Whether a blocker can exist that this check did not see, and that nobody left out by name."""
        return self.can_block and any(one.kind is not UnknownKind.LEFT_OUT for one in self.unknowns)

    @property
    def text(self) -> str:
        """The result without the title: `passed`, `2 findings (blocker)` or `not observable: …`."""
        found = f"{count(self.findings, 'finding')} ({self.severity})" if self.findings else str(self.state)
        return f"{found}: {self.reason}" if self.reason else found


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A check that ran: all its findings, or why it does not apply."""

    check: Check
    findings: tuple[Finding, ...]
    not_applicable: str = ""
    unknown: tuple[UnknownValue, ...] = ()
    note: str = ""
    seconds: float = 0.0
    """0 unless in `timed_checks`."""

    def without(self, codes: Collection[Code]) -> Checked:
        """Return the check without the findings that have one of `codes`."""
        return replace(self, findings=tuple(finding for finding in self.findings if finding.code not in codes))

    def result(self, unknown: Mapping[Need, str]) -> CheckResult:
        """Return the result. `unknown`: a sentence for what was not observed completely. It never counts as passed."""
        title, name = self.check.title, self.check.id
        if self.not_applicable:
            return CheckResult(check=title, state=CheckState.NOT_APPLICABLE, reason=self.not_applicable, id=name)
        lacking, found = self.all_unknown(unknown), self.observed
        worst = min((finding.severity for finding in found), key=list(Severity).index, default=None)
        state = CheckState.FINDINGS if found else CheckState.NOT_OBSERVABLE if lacking else CheckState.PASSED
        reason = " ".join(self.lacking(unknown)) or self.note
        return CheckResult(
            check=title,
            state=state,
            findings=len(found),
            severity=worst,
            reason=reason,
            id=name,
            unknowns=lacking,
            can_block=self.check.can_block,
        )

    @property
    def observed(self) -> tuple[Finding, ...]:
        """The findings about values that were observed."""
        return tuple(finding for finding in self.findings if finding.code != NOT_OBSERVABLE.code)

    def lacking(self, unknown: Mapping[Need, str]) -> tuple[str, ...]:
        """Return a sentence for each value that the check did not observe. `unknown`: as in `result`."""
        return tuple(dict.fromkeys(one.sentence for one in self.all_unknown(unknown)))

    def all_unknown(self, unknown: Mapping[Need, str]) -> tuple[UnknownValue, ...]:
        """Return each value that the check did not observe. `unknown`: as in `result`."""
        lacking = [*self.unknown]
        lacking += [UnknownValue(need, unknown[need]) for need in self.check.needs if need in unknown]
        lacking += [UnknownValue(one.subject, one.sentence) for one in self.findings if one.code == NOT_OBSERVABLE.code]
        return tuple(dict.fromkeys(lacking))


def codes_of(checks: Iterable[Check]) -> frozenset[Code]:
    return frozenset(code.code for check in checks for code in check.codes)


def sort_findings(findings: Iterable[Finding], checks: Iterable[Check]) -> tuple[Checked, ...]:
    """Return the checks, each with the findings that have its codes. The first one has those that belong to none."""
    found: dict[Check, list[Finding]] = {check: [] for check in checks}
    for one in findings:
        found[next((check for check in found if one.code in codes_of([check])), next(iter(found)))].append(one)
    return tuple(check.ran(ones) for check, ones in found.items())


def results_of(checked: Iterable[Checked], unknown: Mapping[Need, str]) -> tuple[CheckResult, ...]:
    return tuple(one.result(unknown) for one in checked)


def all_findings(checked: Iterable[Checked]) -> tuple[Finding, ...]:
    """Return the findings of all checks, in the order of the checks."""
    return tuple(finding for one in checked for finding in one.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All findings for one question."""

    question: str
    findings: tuple[Finding, ...] = ()

    @property
    def blockers(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity is Severity.BLOCKER)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity is Severity.WARNING)

    @property
    def ok(self) -> bool:
        return not self.blockers

    def new_blockers_since(self, approved: Iterable[Finding]) -> tuple[Finding, ...]:
        """Return the blockers that are not among the approved findings. Such blockers invalidate the approval."""
        return find_new(self.blockers, approved)


_SHOWN = 5
_NOUNS = frozenset({"broker", "controller", "feature", "group", "host", "node", "partition", "release", "topic"})
_COMMAND = re.compile(r"\bRun: |`")
_WORD = re.compile(r"\w(?:[\w.\-]*\w)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingGroup:
    """Findings with the same code, severity and action, in their order; at least one."""

    findings: tuple[Finding, ...]
    same_remedy: bool
    """The remedies are equal. Else they differ only in numbers and in the names of the subjects."""

    @property
    def first(self) -> Finding:
        return self.findings[0]

    @property
    def code(self) -> Code:
        return self.first.code

    @property
    def severity(self) -> Severity:
        return self.first.severity

    @property
    def subjects(self) -> str:
        """The subject, or the number of subjects with the first of them: `300 topics (a, b, c, d, e and 295 more)`."""
        subjects = list(dict.fromkeys(finding.subject for finding in self.findings))
        if len(subjects) == 1:
            return subjects[0]
        kinds = {subject.partition(" ")[0] for subject in subjects}
        kind = f"{kinds.pop()} " if len(kinds) == 1 and kinds <= _NOUNS else ""
        shown = ", ".join(subject.removeprefix(kind) for subject in subjects[:_SHOWN])
        left = f" and {len(subjects) - _SHOWN:,} more" if len(subjects) > _SHOWN else ""
        noun = f"{kind.strip()}s" if kind.strip() else "objects"
        return f"{len(subjects):,} {noun} ({shown}{left})"

    @property
    def sentence(self) -> str:
        """The sentence of the only finding, or of the first one as an example."""
        return self.first.sentence if len(self.findings) == 1 else f"For example: {self.first.sentence}"

    @property
    def remedy(self) -> str:
        """The remedy of all findings, or of the first one as an example. It is complete."""
        remedy = self.first.remedy
        return remedy if self.same_remedy or not remedy else f"For {self.first.subject}, and the others alike: {remedy}"


def group_by_kind(findings: Iterable[Finding]) -> tuple[FindingGroup, ...]:
    """Return the findings in groups, the most severe first, else in the order of their first findings.

    Findings are alike if their remedies ask for the same action, apart from numbers and the words of their subjects.
    """
    alike: dict[tuple[Severity, Code, str], list[Finding]] = {}
    for finding in findings:
        alike.setdefault((finding.severity, finding.code, _action(finding)), []).append(finding)
    groups = [
        FindingGroup(findings=tuple(some), same_remedy=len({one.remedy for one in some}) == 1)
        for some in alike.values()
    ]
    return tuple(sorted(groups, key=lambda group: list(Severity).index(group.severity)))


def _action(finding: Finding) -> str:
    """Return the remedy without the numbers and the words of the subject's name; a remedy with a command as it is."""
    if _COMMAND.search(finding.remedy):
        return finding.remedy
    name = set(_WORD.findall(finding.subject.partition(" ")[2]))
    return _WORD.sub(lambda word: "#" if word[0] in name or word[0].isdigit() else word[0], finding.remedy)
