"""Answering a run's questions: by itself, at the terminal, or in Airflow's UI."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from rich.console import Console
from rich.markdown import Markdown

from kafka_rollout.domain.model.errors import FatalError, UserError
from kafka_rollout.domain.model.plan import Plan

Approve = Literal["auto", "ask", "ui"]

APPROVE, REJECT, ROLL_BACK = "Approve", "Reject", "Roll back"


class Answering(Protocol):
    """What we need of Airflow's client."""

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str, **entered: Any) -> None: ...


@dataclass(slots=True, kw_only=True)
class Approver:
    """Answers each question once, or says once where a person does. `user` is the named person whose client answers."""

    how: Approve
    user: str
    client: Answering
    console: Console
    link: Callable[[str], str]  # task id → its page in Airflow
    read_line: Callable[[str], str] = input
    _seen: set[str] = field(default_factory=set)

    def handle(self, dag_id: str, run_id: str, questions: Mapping[str, Mapping[str, Any]], plan: Plan | None) -> None:
        """Answer what is open and was not answered yet; a question that went away and is back is a new one.

        Raises FatalError where nobody is there to decide.
        """
        self._seen &= questions.keys()
        for task_id, question in questions.items():
            if task_id not in self._seen:
                self._seen.add(task_id)
                self._handle(dag_id, run_id, task_id, question, plan)

    def _handle(self, dag_id: str, run_id: str, task_id: str, question: Mapping[str, Any], plan: Plan | None) -> None:
        options = [str(option) for option in question["options"]]
        if self.how == "ui":
            self.console.print(f"    [bold]A person is asked:[/] {question['subject']} ({', '.join(options)})")
            self.console.print(f"    Answer in Airflow: {self.link(task_id)}", soft_wrap=True)
            return
        option, reason = (
            self._by_itself(question, options, plan) if self.how == "auto" else self._ask(question, options)
        )
        try:
            self.client.answer(dag_id, run_id, task_id, option, reason=reason)
        except UserError as error:  # somebody was faster, in Airflow
            self.console.print(f"    The answer was not taken: {error}", soft_wrap=True)

    def _by_itself(self, question: Mapping[str, Any], options: list[str], plan: Plan | None) -> tuple[str, str]:
        """As the findings say: approve what has no blocker, roll back what failed."""
        if APPROVE in options:
            if plan is None or plan.blockers:
                return REJECT, "unattended demo: the plan has blockers"
            return APPROVE, f"unattended demo: {len(plan.findings)} findings, none of them a blocker"
        if ROLL_BACK in options:
            return ROLL_BACK, "unattended demo: a gate failed, so everything goes back"
        raise FatalError(
            f"The run asks something that only a person can decide: {question['subject']}",
            remedy="Run the demo again with --approve, or without it and answer in Airflow.",
        )

    def _ask(self, question: Mapping[str, Any], options: list[str]) -> tuple[str, str]:
        self.console.rule(f"[bold]{question['subject']}")
        self.console.print(Markdown(str(question.get("body") or "")))
        choices = ", ".join(f"{number}: {option}" for number, option in enumerate(options, start=1))
        try:
            while True:
                said = self.read_line(f"Your answer ({choices}): ").strip()
                option = _chosen(said, options)
                if option is None:
                    self.console.print(f"'{said}' is none of them.", markup=False)
                    continue
                reason = self.read_line("Why, in a sentence: ").strip()
                if reason:
                    return option, reason
                self.console.print("Without a reason nothing is approved.")
        except EOFError:
            raise UserError(
                "The terminal ended before the question was answered.",
                remedy="Use --approve auto for an unattended run, or leave --approve out and answer in Airflow.",
            ) from None


def _chosen(said: str, options: list[str]) -> str | None:
    if said.isdigit() and 1 <= int(said) <= len(options):
        return options[int(said) - 1]
    fitting = [option for option in options if said and option.lower().startswith(said.lower())]
    return fitting[0] if len(fitting) == 1 else None
