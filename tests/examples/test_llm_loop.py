"""The example with a model: each answer is paid for once, and no mail is sent that nobody has approved."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from milepost.checkpoint.records import StepCompleted
from milepost.testing import Approve, Asked, Deny, crash_everywhere
from tests.support.example_runs import EXAMPLES, Example
from tests.support.sessions import wait_until

pytestmark = pytest.mark.timeout(300)

NOTE = "A pod that is evicted is replaced, and its run goes on after the last recorded step."
MAIL = {"to": "ann@example.com", "body": NOTE}
INPUTS = {"question": "What happens at an eviction?", "asked_by": "ann@example.com"}


def mails(folder: Path) -> list[Any]:
    return [json.loads(file.read_text()) for file in folder.rglob("*.json")]


@pytest.mark.req("G1", "G3", "F1", "S4")
@pytest.mark.parametrize("manifest", ["run.yaml", "run-ready-made.yaml"])
def test_a_mail_waits_for_a_person_and_the_model_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manifest: str
) -> None:
    monkeypatch.setenv("OUTBOX", str(tmp_path / "world"))
    example = Example("04-llm-loop", tmp_path, manifest_name=manifest)
    name = example.manifest()["metadata"]["name"]
    with example.running() as process:
        wait_until(lambda: "waits for approval send_mail" in example.said(), patience=100)
        os.kill(process.pid, signal.SIGKILL)
    shown = json.loads(example.milepost("gates", name, "--json").stdout)
    sent_before = mails(tmp_path / "world")
    example.milepost("approve", name, "send_mail")

    done = example.run()

    assert done.returncode == 0, done.stderr
    assert shown[0]["request"] == {"tool": "send_mail", "version": "1", "arguments": MAIL}
    assert (sent_before, mails(tmp_path / "world")) == ([], [MAIL])
    steps = {attempt: sorted(done) for attempt, done in sorted(example.completed_by_attempt().items())}
    assert steps == {1: ["search", "think", "think#2"], 2: ["send_mail", "think#3"]}
    tokens = [
        event.usage.input_tokens + event.usage.output_tokens
        for record in example.records()
        for event in record.events
        if isinstance(event, StepCompleted) and event.usage is not None
    ]
    assert example.head().totals.tokens == sum(tokens) > 0


@pytest.mark.req("G1", "E6")
@pytest.mark.parametrize("agent", ["loop", "ready_made"])
def test_it_comes_to_the_same_wherever_it_is_killed(monkeypatch: pytest.MonkeyPatch, agent: str) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "04-llm-loop"))

    report = crash_everywhere(
        f"helpdesk_agent.{agent}:answer",
        INPUTS,
        goal="Answer the question from the notes, by mail.",
        answers={"send_mail": Approve()},
        effects=mails,
        max_points=3,
    )

    assert report.undisturbed.effects == [MAIL]


@pytest.mark.req("G1")
def test_a_refusal_is_told_to_the_model_which_tries_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "04-llm-loop"))

    def editor(asked: Asked) -> Approve | Deny:
        polite = "please" in asked.request["arguments"]["body"]
        return Approve(by="eve") if polite else Deny("say please", by="eve")

    report = crash_everywhere(
        "helpdesk_agent.loop:answer",
        INPUTS,
        goal="Answer the question from the notes, by mail.",
        answers=editor,
        effects=mails,
        max_points=2,
    )

    assert report.undisturbed.effects == [{**MAIL, "body": f"{NOTE} (say please)"}]
    assert report.undisturbed.result == "ann@example.com was told"
