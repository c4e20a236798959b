"""`milepost store verify` and `repair`: what a person reads, what a script reads, and the exit codes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from milepost.api.resource import Phase
from milepost.checkpoint.file import FileStore
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.owner import KEY
from milepost.checkpoint.runs import HeadSeen
from milepost.checkpoint.store import Store
from milepost.cli.app import app
from tests.support.histories import KEYS, a_claim, after, begin
from tests.support.long_runs import (
    a_long_run,
    bases_of,
    body_of,
    contents,
    copy_of,
    flip,
    give_name,
    head_of,
    name_of,
    overwrite,
    prune,
    runs_of,
    segments_of,
)
from tests.support.store_doubles import Numbers

pytestmark = pytest.mark.req("D3", "I4")

OTHER = "b" * 20


@pytest.fixture
async def memory() -> MemoryStore:
    run = await a_long_run()
    prune(run.store)
    return copy_of(run.store)


@pytest.fixture
def store(memory: MemoryStore, tmp_path: Path) -> FileStore:
    """A long run in a folder."""
    store = FileStore(tmp_path / "store")
    for key, body in contents(memory).items():
        store.put_new(key, body, {})
    return store


def call(command: str, store: Store, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["store", command, store.uri, *arguments])


def another_run(store: Store) -> None:
    """Add a run that began under the same name, and that no name leads to."""
    begun = begin(MemoryStore(), entropy=Numbers(), keys=type(KEYS)("team", OTHER))
    head = after(begun.head, a_claim(1), entropy=Numbers(9)).head
    store.put_new(head.keys.head, head.body(), {})


def test_a_sound_run_is_one_line(store: FileStore) -> None:
    done = call("verify", store)

    assert (done.exit_code, done.stdout) == (0, f"team/triage {KEYS.run_id}: sound, 187 records, 184 steps\n")


def test_a_damaged_run_is_told_in_full_and_the_exit_code_is_1(store: FileStore) -> None:
    lost, key = head_of(store).segments[1], segments_of(store)[1]
    store.delete(key)

    done = call("verify", store, "team/triage")

    lines = done.stdout.splitlines()
    assert done.exit_code == 1
    assert lines[:4] == [
        f"team/triage {KEYS.run_id}: damaged",
        f"  Missing {key}: the head names it for records {lost.first} to {lost.last}, and it is gone",
        f"  records 1 to {lost.first - 1} of 187 can be trusted",
        f"  records {lost.last + 1} to 187 can be read",
    ]
    assert lines[4] == f"  records {lost.first} to {lost.last} are lost"
    assert lines[5].startswith("  these steps are lost and run again: step-81, step-82,")
    assert lines[5].endswith("others")


@pytest.mark.req("S7")
def test_a_store_that_is_nobodys_to_work_in_is_said_beside_its_runs(store: FileStore) -> None:
    store.put_new(KEY, b"", {})

    of_all, of_one = call("verify", store), call("verify", store, "team/triage")

    assert (of_all.exit_code, of_all.stdout) == (1, of_one.stdout)
    assert of_all.stderr.startswith("_owner: it does not say whose prefix this is: ")
    assert of_one.exit_code == 0


def test_scripts_get_every_step_with_its_summary(store: FileStore) -> None:
    store.delete(segments_of(store)[1])

    done = call("verify", store, "--run", f"team/{KEYS.run_id}", "--json")

    (told,) = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (told["namespace"], told["name"], told["run_id"]) == ("team", "triage", KEYS.run_id)
    assert (told["sound"], told["last_record"], told["trusted_to"]) == (False, 187, 85)
    steps = {step["id"]: step for step in told["steps"]}
    assert steps["step-3"] == {
        "id": "step-3",
        "record": 7,
        "kept": True,
        "description": "",
        "summary": "worked on 3",
    }
    assert {step for step in steps if not steps[step]["kept"]} == set(told["may_repeat"])


def test_one_damaged_run_hides_no_other(store: FileStore) -> None:
    give_name(store, name="gone", keys=type(KEYS)("team", OTHER))
    store.put_new("team/names/bent", b"{}", {})

    done = call("verify", store, "--json")

    told = {
        each["name"]: [problem["kind"] for problem in each["problems"]] for each in json.loads(done.stdout)
    }
    assert told == {"triage": [], "gone": ["Missing"], "bent": ["Corrupt"]}


def test_a_name_that_leads_to_anothers_run_is_damage(store: FileStore) -> None:
    give_name(store, name="other")

    done = call("verify", store, "team/other", "--json")

    (told,) = json.loads(done.stdout)
    assert [(each["object"], each["kind"]) for each in told["problems"]] == [("team/names/other", "Corrupt")]


def test_a_run_without_a_name_is_verified_with_the_others(store: FileStore) -> None:
    store.delete("team/names/triage")
    store.delete(segments_of(store)[0])

    done = call("verify", store, "--json")

    (told,) = json.loads(done.stdout)
    assert (told["name"], told["run_id"], told["sound"]) == ("triage", KEYS.run_id, False)


@pytest.mark.parametrize(
    "arguments",
    [
        ("team",),
        ("/triage",),
        ("team/",),
        ("team/nobody",),
        ("--run", f"team/{OTHER}"),
        ("--run", "team"),
        ("team/triage", "--run", f"team/{KEYS.run_id}"),
        ("--run", "team/not-a-run-id"),
    ],
)
def test_a_call_that_names_no_run_is_refused(store: FileStore, arguments: tuple[str, ...]) -> None:
    assert call("verify", store, *arguments).exit_code == 2


def test_a_repair_without_a_run_is_refused(store: FileStore) -> None:
    done = call("repair", store)

    assert (done.exit_code, "which run?" in done.stderr) == (2, True)


def test_a_sound_run_is_left_alone(store: FileStore) -> None:
    before = contents(store)

    done = call("repair", store, "team/triage", "--apply")

    assert (done.exit_code, "nothing is damaged" in done.stderr, contents(store)) == (0, True, before)
    told = json.loads(call("repair", store, "team/triage", "--apply", "--json").stdout)
    assert (told["sound"], told["applied"], told["new_run_id"], contents(store)) == (True, False, "", before)


def test_a_repair_says_what_it_did(store: FileStore) -> None:
    store.delete(segments_of(store)[1])

    done = call("repair", store, "team/triage", "--apply")

    run_id = name_of(store).record.run_id
    assert done.exit_code == 0
    assert run_id != KEYS.run_id
    assert done.stdout.splitlines()[-1].endswith(
        f"team/triage is now run {run_id}, with the keys of {KEYS.run_id}"
    )
    assert call("verify", store, "team/triage").exit_code == 0


@pytest.mark.parametrize("head_is_lost", [True, False])
def test_a_damaged_run_that_was_saved_is_told_as_such_and_asks_for_nothing(
    store: FileStore, *, head_is_lost: bool
) -> None:
    store.delete(KEYS.head if head_is_lost else segments_of(store)[1])
    assert call("repair", store, "team/triage", "--apply", "--nobody-writes").exit_code == 0
    new = name_of(store).record.run_id

    whole, alone = call("verify", store), call("verify", store, "--run", f"team/{KEYS.run_id}")

    line = f"team/triage {KEYS.run_id}: damaged, and saved as run {new}\n"
    assert (alone.exit_code, alone.stdout, alone.stderr) == (0, line, "")
    assert (whole.exit_code, whole.stdout.splitlines(keepends=True)[1:], whole.stderr) == (0, [line], "")
    (told,) = json.loads(call("verify", store, "--run", f"team/{KEYS.run_id}", "--json").stdout)
    assert (told["sound"], told["saved_as"], len(told["problems"])) == (False, new, 1)


def test_a_run_that_was_saved_is_not_saved_again(store: FileStore) -> None:
    store.delete(segments_of(store)[1])
    call("repair", store, "team/triage", "--apply")
    before = contents(store)

    done = call("repair", store, "--run", f"team/{KEYS.run_id}", "--apply")

    assert (done.exit_code, contents(store)) == (0, before)
    assert f"it was saved as run {name_of(store).record.run_id} already" in done.stderr


def test_a_damaged_run_whose_name_was_given_away_without_a_repair_is_not_told_to_be_saved(
    store: FileStore,
) -> None:
    store.delete("team/names/triage")
    another_run(store)
    give_name(store, keys=type(KEYS)("team", OTHER))
    store.delete(segments_of(store)[1])

    done = call("verify", store, "--run", f"team/{KEYS.run_id}")

    assert (done.exit_code, done.stdout.splitlines()[0]) == (1, f"team/triage {KEYS.run_id}: damaged")


@pytest.mark.parametrize("lost", [True, False])
def test_a_lost_or_unreadable_base_loses_nothing_and_asks_for_nothing(
    store: FileStore, *, lost: bool
) -> None:
    key = bases_of(store)[-1]
    if lost:
        store.delete(key)
    else:
        flip(store, key)
    before = contents(store)

    found = call("verify", store)
    refused = call("repair", store, "team/triage", "--apply")

    first, second = found.stdout.splitlines()
    assert (found.exit_code, found.stderr) == (0, "")
    assert first == f"team/triage {KEYS.run_id}: sound, 187 records, 184 steps"
    assert second.startswith(f"  {'Missing' if lost else 'Corrupt'} {key}: ")
    assert second.endswith("; nothing is lost: a base is a cache, and a run that goes on writes it anew")
    assert (refused.exit_code, contents(store)) == (0, before)
    assert "nothing has to be repaired" in refused.stderr
    (told,) = json.loads(call("verify", store, "--json").stdout)
    assert (told["sound"], [each["harmless"] for each in told["problems"]]) == (True, [True])


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(store: FileStore) -> None:
    store.delete(segments_of(store)[1])
    before = contents(store)

    done = call("repair", store, "team/triage", "--dry-run")

    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1].endswith("steps are kept; nothing was written, --apply does it")
    assert contents(store) == before


@pytest.mark.parametrize("whole", [True, False])
def test_a_damaged_name_is_made_anew_from_the_runs_head(
    store: FileStore, tmp_path: Path, *, whole: bool
) -> None:
    overwrite(store, "team/names/triage", b"{}")
    if not whole:
        (tmp_path / "store/team/names/triage").write_bytes(b"\x00 not an object")
    by_name = call("repair", store, "team/triage", "--apply")
    assert (by_name.exit_code, "--run" in by_name.stderr) == (2, True)

    done = call("repair", store, "--run", f"team/{KEYS.run_id}", "--apply", "--as-it-is")

    assert done.exit_code == 0, done.output
    assert name_of(store).record.resource_uid == "uid-1"
    assert call("verify", store, "team/triage").exit_code == 0


def test_a_lost_name_is_told_and_made_anew_from_the_runs_head(store: FileStore) -> None:
    store.delete("team/names/triage")
    found = call("verify", store)
    assert found.exit_code == 1
    assert "  Missing team/names/triage: no name leads to this run, though it had one" in found.stdout

    done = call("repair", store, "--run", f"team/{KEYS.run_id}", "--apply", "--as-it-is")

    assert done.exit_code == 0, done.output
    assert name_of(store).record.resource_uid == "uid-1"
    assert call("verify", store, "team/triage").exit_code == 0


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("bent", [True, False])
def test_the_last_line_is_the_command_that_mends_a_name(store: FileStore, *, bent: bool, whole: bool) -> None:
    if bent:
        overwrite(store, "team/names/triage", b"{}")
    else:
        store.delete("team/names/triage")
    if not whole:
        store.delete(segments_of(store)[1])

    found = call("verify", store)
    milepost, *command = shlex.split(found.stderr.splitlines()[-1])
    dry = CliRunner().invoke(app, command)
    done = CliRunner().invoke(app, [*command[:-1], "--apply"])

    assert (found.exit_code, found.stdout.splitlines()[0]) == (1, f"team/triage {KEYS.run_id}: damaged")
    assert found.stderr.startswith("1 damaged; to go on from what is left:\n")
    assert (milepost, command[-1], "--as-it-is" in command) == ("milepost", "--dry-run", whole)
    assert (dry.exit_code, dry.stdout.endswith("--apply does it\n")) == (0, True)
    assert (done.exit_code, name_of(store).record.resource_uid) == (0, "uid-1")
    assert (call("verify", store).exit_code, call("verify", store, "team/triage").exit_code) == (0, 0)


def test_a_damaged_name_of_which_no_run_is_found_is_told_without_one(store: FileStore) -> None:
    store.put_new("team/names/bent", b"{}", {})

    whole, alone = call("verify", store), call("verify", store, "team/bent")

    assert (whole.exit_code, "team/bent: damaged\n" in whole.stdout) == (1, True)
    assert whole.stderr == "1 damaged; no command goes on from what is left\n"
    assert "`milepost store verify` of the whole store may find the run" in alone.stderr


def test_of_several_runs_none_is_said_to_be_that_of_a_damaged_name(store: FileStore) -> None:
    overwrite(store, "team/names/triage", b"{}")
    another_run(store)

    told = json.loads(call("verify", store, "--json").stdout)

    assert [(each["name"], each["run_id"]) for each in told] == [
        ("triage", ""),
        ("triage", KEYS.run_id),
        ("triage", OTHER),
    ]


@pytest.mark.parametrize("command", ["check", "gc", "verify", "repair"])
def test_what_is_no_store_is_blamed_on_the_argument(command: str) -> None:
    arguments = ["--dry-run"] if command == "gc" else []

    done = CliRunner().invoke(app, ["store", command, "foo", *arguments])

    assert (done.exit_code, done.stderr.startswith("milepost: URL: 'foo' must be file:PATH")) == (2, True)


def test_a_name_that_was_given_to_another_run_stays_with_it(store: FileStore) -> None:
    store.delete("team/names/triage")
    give_name(store, keys=type(KEYS)("team", OTHER))
    store.delete(segments_of(store)[1])

    done = call("repair", store, "--run", f"team/{KEYS.run_id}", "--apply")

    assert done.exit_code == 0, done.output
    assert "no name leads to it" in done.stdout
    assert name_of(store).record.run_id == OTHER


def test_a_run_of_a_newer_milepost_is_not_repaired(store: FileStore) -> None:
    body = body_of(store, KEYS.head)
    overwrite(store, KEYS.head, body.replace(b'{"format":3', b'{"format":9', 1))

    done = call("repair", store, "team/triage", "--apply")

    assert (done.exit_code, "newer Milepost" in done.stderr) == (1, True)
    found = call("verify", store)
    assert found.exit_code == 1
    assert found.stdout.startswith(f"team/triage {KEYS.run_id}: cannot be read\n  FormatTooNew {KEYS.head}: ")
    assert len(found.stdout.splitlines()) == 2
    assert found.stderr == "1 written by a newer Milepost, which alone can read them\n"


def test_a_store_without_runs_is_said_to_be_one(tmp_path: Path) -> None:
    done = call("verify", FileStore(tmp_path / "misspelt"))

    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"there is no run in file:{tmp_path / 'misspelt'}\n"


def test_what_was_in_a_lost_head_is_told_and_how_to_go_on_without_it(store: FileStore) -> None:
    overwrite(store, KEYS.head, b"{}")

    done = call("repair", store, "team/triage")

    assert (
        "newer records were in the head, 32 KiB at most, and are lost; their steps run again" in done.stdout
    )
    assert done.stdout.endswith("nothing was written, --apply --nobody-writes does it\n")


def test_a_file_that_is_no_object_of_the_store_is_damage(store: FileStore, tmp_path: Path) -> None:
    key = segments_of(store)[1]
    (tmp_path / "store" / key).write_bytes(b"\x00 not an object")

    done = call("verify", store, "team/triage", "--json")

    (told,) = json.loads(done.stdout)
    assert [(each["object"], each["kind"]) for each in told["problems"]] == [(key, "Corrupt")]


def test_a_run_that_is_being_deleted_is_not_damaged(store: FileStore) -> None:
    runs = runs_of(store)
    seen = runs.observe(KEYS)
    assert isinstance(seen, HeadSeen)
    runs.begin_deletion(runs.end(seen, phase=Phase.CANCELLED, reason="Cancelled", message=""))
    store.delete(segments_of(store)[0])

    done = call("verify", store, "--run", f"team/{KEYS.run_id}")

    assert (done.exit_code, done.stdout) == (0, f"team/triage {KEYS.run_id}: is being deleted\n")
    refused = call("repair", store, "--run", f"team/{KEYS.run_id}", "--apply")
    assert (refused.exit_code, "is being deleted" in refused.stderr) == (1, True)
