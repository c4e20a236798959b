"""Every stored kind in every version: files that the code of that version wrote, read by today's.

MILEPOST_REWRITE_GOLDEN=1 writes the file of a version that has none yet. It never writes over one: other
bytes need another version.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from milepost.api.names import StoreKeys
from milepost.api.resource import Phase, RunSpec
from milepost.api.summary import NameRecord
from milepost.checkpoint import inbox
from milepost.checkpoint.base import Base, make_base, parse_base
from milepost.checkpoint.fold import State
from milepost.checkpoint.formats import NEWEST, Kind, upgrade
from milepost.checkpoint.head import parse_head
from milepost.checkpoint.history import HeadAt, load, read_head, read_records
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.owner import KEY as OWNER_KEY
from milepost.checkpoint.owner import claim_prefix
from milepost.checkpoint.records import line_of, parse_line
from milepost.checkpoint.runs import NewRun, Runs
from milepost.checkpoint.sealed import Segment, lines_of
from milepost.checkpoint.store import Found, Store
from milepost.cli.app import app
from milepost.errors import Corrupt, FormatTooNew
from tests.support import format_samples as samples
from tests.support.histories import some_patience
from tests.support.sessions import RunOnDisk

FORMATS: Final = Path(__file__).parents[2] / "data" / "formats"
RUN_1: Final = FORMATS / "run-1"
STEPS: Final = 90
"""Steps of the stored run of version 1, of which 70 were recorded."""

pytestmark = pytest.mark.req("D10", "I14")


def a_name() -> bytes:
    store = MemoryStore()
    runs = Runs(store, lambda: samples.AT, samples.Counted())
    spec = RunSpec.model_validate({"agent": {"image": "agent:1", "entrypoint": "package.module:agent"}})
    runs.start(NewRun("team", "migrated", "uid-1", "cluster-1", spec, "3" * 64))
    seen = runs.look_up("team", "migrated")
    assert seen is not None
    runs.note_outcome("team", seen, "Failed")
    return body_of(store, "team/names/migrated")


def an_owner() -> bytes:
    store = MemoryStore()
    claim_prefix(store, "cluster-1", patience=some_patience())
    claim_prefix(store, "cluster-2", recover_from=["cluster-1"], patience=some_patience())
    return body_of(store, OWNER_KEY)


def a_head() -> bytes:
    head, _ = samples.a_run(NEWEST[Kind.RECORD])
    named, _ = make_base(a_state(), samples.KEYS, "ab" * 9)
    return replace(head, bases=(named,)).body()


def a_state() -> State:
    """Return a state of which every part is filled, as a base holds it."""
    state = State()
    started, claimed, planned, called, other, failed, completed, halted, *_ = samples.events(2)
    assert started.kind == "started"
    events = (claimed, planned, completed, called, other, failed, halted)
    state.apply(
        parse_line(
            line_of(
                samples.record(2).model_copy(
                    update={"seq": 1, "prev": State().digest, "events": (started, *events)}
                )
            ),
            "k",
        ),
        "a" * 64,
        "k",
    )
    state.failed, state.calls = {}, {}
    for event in (called, other, failed):
        state.leave_open(event)
    return state


TODAYS: Final[Mapping[Kind, Callable[[], bytes]]] = {
    Kind.HEAD: a_head,
    Kind.RECORD: lambda: line_of(samples.record(NEWEST[Kind.RECORD])),
    # Its header: the records in it have versions of their own.
    Kind.SEGMENT: lambda: first_line(next(iter(samples.a_run(NEWEST[Kind.RECORD])[1].values()))),
    Kind.BASE: lambda: make_base(a_state(), samples.KEYS, "ab" * 9)[1],
    Kind.NAME: a_name,
    Kind.OWNER: an_owner,
    Kind.ANSWER: samples.an_answer,
}


def golden(kind: Kind, version: int) -> Path:
    lines = kind in (Kind.HEAD, Kind.RECORD, Kind.SEGMENT)
    return FORMATS / f"{kind}-{version}.{'jsonl' if lines else 'json'}"


def body_of(store: Store, key: str) -> bytes:
    found = store.get(key)
    assert isinstance(found, Found)
    return found.body


def first_line(body: bytes) -> bytes:
    return body.partition(b"\n")[0]


@pytest.mark.parametrize("kind", Kind)
def test_todays_code_writes_what_the_file_of_its_version_holds(kind: Kind) -> None:
    file, written = golden(kind, NEWEST[kind]), TODAYS[kind]()
    if os.environ.get("MILEPOST_REWRITE_GOLDEN") and not file.exists():
        file.write_bytes(written)

    stored = file.read_bytes()
    if kind is Kind.SEGMENT:
        stored = first_line(stored)
    assert written == stored, f"a {kind} has changed: give it another version, and migrate this one"


@pytest.mark.parametrize("kind", Kind)
def test_there_is_a_file_of_every_version(kind: Kind) -> None:
    assert [golden(kind, version).exists() for version in range(1, NEWEST[kind] + 1)] == [True] * NEWEST[kind]


def test_a_record_of_version_1_reads_as_what_was_recorded() -> None:
    line = golden(Kind.RECORD, 1).read_bytes()

    assert parse_line(line, "k") == samples.record(1)


@pytest.mark.parametrize("version", [2, 3])
def test_a_record_of_a_later_version_reads_as_what_was_recorded(version: int) -> None:
    assert parse_line(golden(Kind.RECORD, version).read_bytes(), "k") == samples.record(version)


def test_a_head_of_version_2_has_no_gates_and_no_memory() -> None:
    head = parse_head(golden(Kind.HEAD, 2).read_bytes(), samples.KEYS)

    assert (head.gates, head.memory, head.totals.tokens, head.totals.gaps) == ((), "", 0, 0)
    assert len(head.bases) == 1


def test_a_base_of_version_1_says_of_no_step_what_it_came_after() -> None:
    body = golden(Kind.BASE, 1).read_bytes()
    said = json.loads(body)
    named = Base(said["epoch"], said["seq"], said["nonce"], len(body), hashlib.sha256(body).hexdigest())

    state = parse_base(body, named, samples.KEYS)

    assert {step: place.after for step, place in state.completed.items()} == {"1:b/read=k": None}
    assert (state.environment, dict(state.gates), state.facts) == (None, {}, {})


def test_a_head_of_version_1_has_what_its_absence_meant() -> None:
    head = parse_head(golden(Kind.HEAD, 1).read_bytes(), samples.KEYS)
    raw = json.loads(first_line(golden(Kind.HEAD, 1).read_bytes()))

    assert {name: getattr(head, name) for name in raw if name in ("seq", "epoch", "chain", "phase")} == {
        name: raw[name] for name in ("seq", "epoch", "chain", "phase")
    }
    assert [asdict(segment) for segment in head.segments] == [
        {**segment, "level": 0} for segment in raw["segments"]
    ]
    assert (head.bases, head.goal, head.created, head.updated) == ((), "", "", "")
    assert (head.deletion_policy, head.retention_s) == ("Retain", 2592000)


def test_a_segment_of_version_1_is_read_under_the_head_that_names_it() -> None:
    head = parse_head(golden(Kind.HEAD, 1).read_bytes(), samples.KEYS)
    lines = lines_of(golden(Kind.SEGMENT, 1).read_bytes(), head.segments[0], samples.KEYS)

    assert [parse_line(line, "k").seq for line in lines] == list(
        range(head.segments[0].first, head.segments[0].last + 1)
    )


def test_a_name_of_version_1_is_kept_as_long_as_was_the_rule_then() -> None:
    store = MemoryStore()
    store.put_new("team/names/migrated", golden(Kind.NAME, 1).read_bytes(), {})

    seen = Runs(store, lambda: samples.AT, samples.Counted()).look_up("team", "migrated")

    assert seen is not None
    run_id = json.loads(golden(Kind.NAME, 1).read_bytes())["run_id"]
    assert seen.record == NameRecord("migrated", run_id, "uid-1", "3" * 64, "Failed")


def test_a_base_reads_as_the_state_that_it_was_made_of() -> None:
    body = golden(Kind.BASE, NEWEST[Kind.BASE]).read_bytes()
    named, _ = make_base(a_state(), samples.KEYS, "ab" * 9)

    assert parse_base(body, named, samples.KEYS) == a_state()


@pytest.mark.parametrize("kind", Kind)
def test_a_newer_format_is_refused_with_both_versions_and_the_kind(kind: Kind) -> None:
    newest = NEWEST[kind]

    with pytest.raises(FormatTooNew) as refused:
        upgrade(kind, {"format": newest + 1}, "some/key")

    assert str(refused.value) == (
        f"some/key: the {kind} has format {newest + 1}, which is newer than {newest}, "
        "the newest that this version reads"
    )


def newer(body: bytes, kind: Kind) -> bytes:
    newest = NEWEST[kind]
    assert body.startswith(b'{"format":%d,' % newest)
    return body.replace(b'"format":%d' % newest, b'"format":%d' % (newest + 1), 1)


def _base_named(body: bytes) -> Base:
    named, _ = make_base(a_state(), samples.KEYS, "ab" * 9)
    return replace(named, digest=hashlib.sha256(body).hexdigest(), size=len(body))


def _segment_named(body: bytes) -> Segment:
    return Segment(1, 1, 4, "n", len(body), hashlib.sha256(body).hexdigest())


def _owner_in(body: bytes) -> None:
    store = MemoryStore()
    store.put_new(OWNER_KEY, body, {})
    claim_prefix(store, "cluster-1", patience=some_patience())


def _name_in(body: bytes) -> None:
    store = MemoryStore()
    store.put_new("team/names/migrated", body, {})
    Runs(store, lambda: samples.AT, samples.Counted()).look_up("team", "migrated")


def _answer_in(body: bytes) -> None:
    store = MemoryStore()
    store.put_new(samples.KEYS.answer("g" * 20), body, {})
    inbox.read(store, samples.KEYS, "g" * 20)


READERS: Final[Mapping[Kind, Callable[[bytes], object]]] = {
    Kind.HEAD: lambda body: parse_head(body, samples.KEYS),
    Kind.RECORD: lambda body: parse_line(body, "k"),
    Kind.SEGMENT: lambda body: lines_of(body, _segment_named(body), samples.KEYS),
    Kind.BASE: lambda body: parse_base(body, _base_named(body), samples.KEYS),
    Kind.NAME: _name_in,
    Kind.OWNER: _owner_in,
    Kind.ANSWER: _answer_in,
}


@pytest.mark.parametrize("kind", Kind)
def test_each_reader_refuses_a_newer_object_and_names_its_kind(kind: Kind) -> None:
    with pytest.raises(FormatTooNew, match=f"the {kind} has format {NEWEST[kind] + 1}") as refused:
        READERS[kind](newer(golden(kind, NEWEST[kind]).read_bytes(), kind))

    assert (refused.value.kind, refused.value.found, refused.value.known) == (
        kind,
        NEWEST[kind] + 1,
        NEWEST[kind],
    )


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("said", ["{}", '{"format":0}', '{"format":true}', '{"format":"1"}', "[]", "7"])
def test_an_object_that_does_not_say_its_format_is_corrupt(kind: Kind, said: str) -> None:
    with pytest.raises(Corrupt):
        READERS[kind](said.encode() + b"\n")


# A whole run that version 1 began.


def the_run(folder: Path) -> RunOnDisk:
    """Return the run of version 1 in a store of its own, with what its agent had left outside."""
    run = RunOnDisk(folder)
    for file in sorted(RUN_1.rglob("*")):
        if file.is_file():
            run.store.put_new(file.relative_to(RUN_1).as_posix(), file.read_bytes(), {})
    (name,) = [key for key in keys_of(run.store) if "/names/" in key]
    run.keys = StoreKeys("team", json.loads(body_of(run.store, name))["run_id"])
    run.attempt = 1
    (run.world / "failed-once").touch()
    return run


def keys_of(store: Store) -> list[str]:
    return sorted(listed.key for listed in store.list(""))


def contents(store: Store) -> dict[str, bytes]:
    return {key: body_of(store, key) for key in keys_of(store)}


@pytest.fixture
def run(tmp_path: Path) -> RunOnDisk:
    return the_run(tmp_path)


def test_observers_read_a_run_of_version_1_and_change_nothing(run: RunOnDisk) -> None:
    before = contents(run.store)
    runs = Runs(run.store, lambda: samples.AT, samples.Counted())

    seen = runs.look_up("team", "triage")
    at = read_head(run.store, run.keys)
    assert isinstance(at, HeadAt)
    state = load(run.store, at.head)
    for command in ("list", "steps triage --namespace team", "store verify"):
        where = [run.store.uri] if command.startswith("store") else ["--store", run.store.uri]
        shown = CliRunner().invoke(app, [*command.split(), *where])
        assert (shown.exit_code, "triage" in shown.output) == (0, True), shown.output
    records = [record.seq for _, lines in read_records(run.store, at.head) for record, _ in lines]

    assert seen is not None
    assert seen.record.run_id == run.keys.run_id
    assert (at.head.seq, at.head.totals.steps_done, at.head.phase) == (74, 71, Phase.RUNNING)
    assert (state.seq, len(state.completed), len(at.head.segments)) == (74, 71, 6)
    assert records == list(range(1, 75))
    assert contents(run.store) == before


def test_a_run_of_version_1_is_claimed_goes_on_merges_and_ends(run: RunOnDisk) -> None:
    before = contents(run.store)

    ended = run.go_on(WORLD=str(run.world))

    assert ended.code == 0, ended.text
    head = run.head.head
    assert (head.phase, head.epoch, head.totals.steps_done) == (Phase.SUCCEEDED, 2, STEPS + 2)
    assert run.lines("ran") == [
        *(f"work {number}" for number in range(71, 91)),
        f"send {run.keys.run_id}/send-last",
    ]
    assert len(head.segments) < 4, "those of version 1 were merged"
    assert json.loads(first_line(body_of(run.store, run.keys.head)))["format"] == NEWEST[Kind.HEAD]
    after = contents(run.store)
    assert {key for key in before if before[key] != after[key]} == {run.keys.head}
    assert list(run.state.completed)[:2] == ["work-1", "work-2"]


def test_the_claim_alone_writes_todays_head_and_leaves_all_else(run: RunOnDisk) -> None:
    before = contents(run.store)

    killed = run.go_on(WORLD=str(run.world), DIE_AFTER="70")

    assert killed.code == -9
    after = contents(run.store)
    assert {key for key in after if before.get(key) != after[key]} == {run.keys.head}
    header = json.loads(first_line(after[run.keys.head]))
    assert (header["format"], header["epoch"]) == (NEWEST[Kind.HEAD], 2)
    assert run.lines("ran") == []


def test_the_stored_run_is_of_version_1() -> None:
    (head,) = RUN_1.rglob("head")

    assert head.read_bytes().startswith(b'{"format":1,')
