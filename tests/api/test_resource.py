from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from milepost.api.resource import Phase, RunSpec, RunStatus

AGENT = {"image": "example.com/agent:1", "entrypoint": "triage.agent:run"}


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="input"):
        RunSpec.model_validate({"agent": AGENT, "input": {}})


def test_a_quantity_may_be_a_number() -> None:
    spec = RunSpec.model_validate(
        {"agent": AGENT, "pod": {"resources": {"limits": {"cpu": 2, "memory": "4Gi"}}}}
    )

    assert spec.pod.resources.limits == {"cpu": "2", "memory": "4Gi"}


@pytest.mark.parametrize("amount", [True, 1.5, ["1"], None])
def test_a_quantity_of_another_kind_is_refused(amount: Any) -> None:
    with pytest.raises(ValidationError):
        RunSpec.model_validate({"agent": AGENT, "pod": {"resources": {"limits": {"cpu": amount}}}})


@pytest.mark.parametrize(
    "entrypoint", ["", "agent", "agent:", ":run", "a.b", "a:b:c", "a b:c", "a/b:c", "1a:b"]
)
def test_an_entrypoint_of_another_form_is_refused(entrypoint: str) -> None:
    with pytest.raises(ValidationError):
        RunSpec.model_validate({"agent": AGENT | {"entrypoint": entrypoint}})


def test_status_is_written_as_the_definition_names_it() -> None:
    status = RunStatus(phase=Phase.SUCCEEDED, run_id="a" * 20, result={"snake_case": None})

    assert status.model_dump(by_alias=True, mode="json", exclude_defaults=True) == {
        "phase": "Succeeded",
        "runId": "a" * 20,
        "result": {"snake_case": None},
    }


def test_the_phases_after_which_nothing_follows() -> None:
    assert {phase for phase in Phase if phase.terminal} == {
        Phase.SUCCEEDED,
        Phase.FAILED,
        Phase.CANCELLED,
        Phase.DELETING,
    }
