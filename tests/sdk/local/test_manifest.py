"""Manifests: what is read, and what is refused with which words."""

from pathlib import Path

import pytest

from milepost.api.resource import AgentSpec, RunSpec
from milepost.errors import InvalidRun
from milepost.local.manifest import Manifest, load_manifest, read_manifest

ROOT = Path(__file__).resolve().parents[3]

GOOD = """\
apiVersion: milepost.dev/v1alpha1
kind: AgentRun
metadata:
  name: documents
spec:
  agent:
    image: registry/documents:1
    entrypoint: documents.agent:digest
  inputs: {folder: texts}
"""
SPEC = RunSpec(
    agent=AgentSpec(image="registry/documents:1", entrypoint="documents.agent:digest"),
    inputs={"folder": "texts"},
)


def more(lines: str) -> str:
    return f"{GOOD}  {lines}\n"


def test_a_manifest_is_read() -> None:
    assert read_manifest(GOOD) == Manifest("default", "documents", SPEC)


@pytest.mark.req("S4")
def test_the_examples_manifest_is_read() -> None:
    manifest = load_manifest(ROOT / "examples/01-documents/run.yaml")

    assert (manifest.namespace, manifest.name) == ("default", "documents")


def test_values_are_what_the_api_server_would_take_them_for() -> None:
    inputs = "{day: 2024-01-02, time: 1:30, yes: on, big: 1e3, null-ish: null, hex: 0x10, text: '1'}"
    text = GOOD.replace("{folder: texts}", inputs.replace("yes:", "'yes':"))

    assert read_manifest(text).spec.inputs == {
        "day": "2024-01-02",
        "time": "1:30",
        "yes": True,
        "big": 1000.0,
        "null-ish": None,
        "hex": 16,
        "text": "1",
    }


def test_a_field_that_is_null_is_absent() -> None:
    assert read_manifest(more("pod:")).spec == SPEC


def test_anchors_and_merges_work() -> None:
    text = GOOD.replace("{folder: texts}", "{one: &one {a: 1, b: 2}, two: {<<: *one, b: 3}}")

    assert read_manifest(text).spec.inputs == {"one": {"a": 1, "b": 2}, "two": {"a": 1, "b": 3}}


@pytest.mark.parametrize(
    ("in_file", "option", "expected"),
    [("", "", "default"), ("", "team", "team"), ("team", "", "team"), ("team", "team", "team")],
)
def test_the_namespace_is_the_manifests_or_the_options(in_file: str, option: str, expected: str) -> None:
    text = GOOD.replace("metadata:\n", f"metadata:\n  namespace: {in_file}\n") if in_file else GOOD

    assert read_manifest(text, namespace=option).namespace == expected


def test_the_run_is_found_among_other_documents() -> None:
    text = f"# set-up\n---\nkind: ConfigMap\nmetadata: {{name: other}}\n---\n{GOOD}---\n"

    assert read_manifest(text).name == "documents"


def test_one_of_several_runs_is_chosen_by_name() -> None:
    two = f"{GOOD}---\n{GOOD.replace('name: documents', 'name: second')}"

    assert read_manifest(two, name="second").name == "second"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "kind: the file holds nothing; a run is one document of kind: AgentRun"),
        ("- a", "kind: the file holds no mapping; a run is one document of kind: AgentRun"),
        (
            GOOD.replace("AgentRun", "Pod"),
            "kind: the file holds Pod; a run is one document of kind: AgentRun",
        ),
        (
            f"{GOOD}---\n{GOOD.replace('name: documents', 'name: second')}",
            "the file: holds 2 runs; choose one with --name: documents, second",
        ),
        (
            GOOD.replace("v1alpha1", "v1"),
            "apiVersion (line 1): 'milepost.dev/v1' is not known; write milepost.dev/v1alpha1",
        ),
        (GOOD.replace("metadata:\n  name: documents\n", ""), "metadata (line 1): is required, with a name"),
        (GOOD.replace("name: documents", "nam: x"), "metadata.name (line 3): is required, as text"),
        (
            GOOD.replace("name: documents", "generateName: x-"),
            "metadata.name (line 3): is required, as text; generateName works on a cluster only",
        ),
        (
            GOOD.replace("name: documents", "name: My_Run"),
            (
                "metadata.name (line 4): 'My_Run' must be a DNS label (a-z, 0-9 and '-', beginning and "
                "ending with a letter or digit) of at most 45 characters"
            ),
        ),
        (
            GOOD.partition("spec:")[0],
            "spec (line 1): is required: agent.image, agent.entrypoint, and the agent's inputs",
        ),
        (f"{GOOD}spce: {{}}\n", "spce (line 10): is no field here; is it spec?"),
        (GOOD.replace("    image", "    imgae"), "spec.agent.imgae (line 7): is no field here; is it image?"),
        (
            GOOD.replace("    image: registry/documents:1\n", ""),
            "spec.agent.image (line 6): is required",
        ),
        (
            GOOD.replace("documents.agent:digest", "documents.agent"),
            (
                'spec.agent.entrypoint (line 8): "documents.agent" must be package.module:name, '
                "as in triage.agent:run"
            ),
        ),
        (
            more("retry: {step_attempts: 3}"),
            "spec.retry.step_attempts (line 10): is no field here; is it stepAttempts?",
        ),
        (
            more("retry: {stepAttempts: '3'}"),
            'spec.retry.stepAttempts (line 10): must be a whole number, not "3"',
        ),
        (
            more("retry: {stepAttempts: 0}"),
            "spec.retry.stepAttempts (line 10): must be greater than or equal to 1, not 0",
        ),
        (more("suspend: 'yes'"), 'spec.suspend (line 10): must be true or false, not "yes"'),
        (more("goal: 3"), "spec.goal (line 10): must be text; put it in quotes, not 3"),
        (
            GOOD.replace("{folder: texts}", "[texts]"),
            'spec.inputs (line 9): must be a mapping of names to values, not ["texts"]',
        ),
        (
            more("colour: red"),
            (
                "spec.colour (line 10): is no field here; there are agent, goal, inputs, rerun, store, "
                "checkpoint, resume, limits, retry, deletionPolicy, retentionSeconds, suspend, cancel, pod"
            ),
        ),
        (
            more("pod: {env: [{name: A, valu: x}]}"),
            "spec.pod.env[0].valu (line 10): is no field here; is it value?",
        ),
        (
            more("pod: {env: [{name: MILEPOST_STORE, value: x}]}"),
            "spec.pod.env[0].name (line 10): names that begin with MILEPOST_ are reserved",
        ),
        (
            GOOD.replace("texts}", ".nan}"),
            "spec (line 5): has no form in JSON: Out of range float values are not JSON compliant",
        ),
        (GOOD.replace("{folder: texts}", "{1: a}"), "line 9: a key must be text; put 1 in quotes"),
        (more("goal: a\n  goal: b"), "line 11: the key 'goal' stands there twice"),
        (more("goal: a: b"), "line 10: no YAML: mapping values are not allowed here"),
    ],
)
def test_a_bad_manifest_is_refused_with_the_field_and_what_would_be_right(text: str, message: str) -> None:
    with pytest.raises(InvalidRun) as refused:
        read_manifest(text)

    assert str(refused.value).partition("\n")[0] == message


def test_a_number_that_would_lose_digits_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidRun, match=r"spec.inputs.day \(line 9\): 9007199254740993 .* as a string"):
        read_manifest(GOOD.replace("texts}", "texts, day: 9007199254740993}"))


def test_a_namespace_that_contradicts_the_option_is_refused() -> None:
    text = GOOD.replace("metadata:\n", "metadata:\n  namespace: ours\n")

    with pytest.raises(InvalidRun, match=r"metadata.namespace \(line 4\): 'ours' is not 'theirs'"):
        read_manifest(text, namespace="theirs")


def test_a_name_that_the_file_does_not_hold_is_refused() -> None:
    with pytest.raises(InvalidRun, match="--name: no AgentRun is called 'other'; the file holds documents"):
        read_manifest(GOOD, name="other")


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidRun, match=r"absent\.yaml: cannot be read: No such file"):
        load_manifest(tmp_path / "absent.yaml")


def test_the_file_is_named_before_the_field(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(more("suspend: 3"))

    with pytest.raises(InvalidRun, match=r"run\.yaml: spec\.suspend \(line 10\): must be true or false"):
        load_manifest(file)
