"""Answers to the decision requests of a run: automatic, at the terminal, or in Airflow's UI."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from rich.console import Console
from rich.markdown import Markdown

from kafka_rollout.base.errors import FatalError, UserError
from kafka_rollout.model.plan import Plan
from tools.demo.airflow_server import AirflowClient

Approve = Literal["auto", "ask", "ui"]

APPROVE, REJECT, ROLL_BACK = "Approve", "Reject", "Roll back"


@dataclass(slots=True, kw_only=True)
class Approver:
    """Answers each request once, or prints once where the approver answers it.

    `user`: the approver, whose `client` sends the answers. `link`: task id → its page in Airflow.
    """

    how: Approve
    user: str
    client: AirflowClient
    console: Console
    link: Callable[[str], str]
    read_line: Callable[[str], str] = input
    accepts: Sequence[str] = ()
    """Patterns of what a plan cannot see and is approved all the same, as `Plan.hidden`."""
    _seen: set[str] = field(default_factory=set)

    def handle(self, dag_id: str, run_id: str, questions: Mapping[str, Mapping[str, Any]], plan: Plan | None) -> None:
        """Answer the open requests that were not answered yet. A request that was closed and is open again is new.

        Raises FatalError if only an approver can decide and the demo is unattended.
        """
        self._seen &= questions.keys()
        for task_id, question in questions.items():
            if task_id not in self._seen:
                self._seen.add(task_id)
                self._handle(dag_id, run_id, task_id, question, plan)

    def _handle(self, dag_id: str, run_id: str, task_id: str, question: Mapping[str, Any], plan: Plan | None) -> None:
        options = [str(option) for option in question["options"]]
        if self.how == "ui":
            self.console.print(f"    [bold]Decision requested:[/] {question['subject']} ({', '.join(options)})")
            self.console.print(f"    Answer in Airflow: {self.link(task_id)}", soft_wrap=True)
            return
        option, reason = self._decide(question, options, plan) if self.how == "auto" else self._ask(question, options)
        try:
            self.client.answer(dag_id, run_id, task_id, option, reason=reason)
        except UserError as error:  # it was answered in Airflow before
            self.console.print(f"    Airflow did not accept the answer: {error}", soft_wrap=True)

    def _decide(self, question: Mapping[str, Any], options: list[str], plan: Plan | None) -> tuple[str, str]:
        """Approve a plan without blockers, seen and hidden; roll back after a failed gate."""
        if APPROVE in options:
            if plan is None or plan.blockers:
                return REJECT, "unattended demo: the plan has blockers"
            hidden = [name for name in plan.hidden if not any(fnmatchcase(name, one) for one in self.accepts)]
            if hidden:
                return REJECT, f"unattended demo: a blocker cannot be excluded ({', '.join(hidden)})"
            return APPROVE, f"unattended demo: {len(plan.findings)} findings, none of them a blocker"
        if ROLL_BACK in options:
            return ROLL_BACK, "unattended demo: a gate failed"
        raise FatalError(
            f"Only an approver can decide this request of the run: {question['subject']}",
            remedy="Run the demo again with --approve, or without it and answer in Airflow.",
        )

    def _ask(self, question: Mapping[str, Any], options: list[str]) -> tuple[str, str]:
        self.console.rule(f"[bold]{question['subject']}")
        self.console.print(Markdown(str(question.get("body") or "")))
        choices = ", ".join(f"{number}: {option}" for number, option in enumerate(options, start=1))
        try:
            while True:
                line = self.read_line(f"Your answer ({choices}): ").strip()
                option = _option(line, options)
                if option is None:
                    self.console.print(f"'{line}' is not one of the options.", markup=False)
                    continue
                reason = self.read_line("Reason, as a sentence: ").strip()
                if reason:
                    return option, reason
                self.console.print("An answer needs a reason.")
        except EOFError:
            raise UserError(
                "The terminal was closed before the request was answered.",
                remedy="Use --approve auto for an unattended run, or omit --approve and answer in Airflow.",
            ) from None


def _option(line: str, options: list[str]) -> str | None:
    if line.isdigit() and 1 <= int(line) <= len(options):
        return options[int(line) - 1]
    matching = [option for option in options if line and option.lower().startswith(line.lower())]
    return matching[0] if len(matching) == 1 else None
