from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.api.names import (
    StoreKeys,
    branch_component,
    check_name,
    idempotency_key,
    name_at,
    new_run_id,
    numbers_at,
    pod_name,
    run_at,
    step_component,
    step_id,
)
from milepost.errors import InvalidRun

ROOT = "abcdefghijklmnopqrst"
LONGEST_NAME = "a" * 45

names = st.text(min_size=1)
keys = st.one_of(st.text(), st.integers())
steps = st.one_of(
    st.tuples(names, st.none(), st.integers(min_value=1)),
    st.tuples(names, keys, st.just(1)),
)
branches = st.lists(st.tuples(st.integers(min_value=1), keys), max_size=3)


def the_component(step: tuple[str, str | int | None, int]) -> str:
    name, key, number = step
    return step_component(name, key=key, number=number)


def the_path(branch: list[tuple[int, str | int]]) -> str:
    return "/".join(branch_component(number, key) for number, key in branch)


@pytest.mark.parametrize(
    ("name", "key", "number", "component"),
    [
        ("fetch", None, 1, "fetch"),
        ("fetch", None, 2, "fetch#2"),
        ("fetch", "a.txt", 1, "fetch=a.txt"),
        ("fetch", 7, 1, "fetch=7"),
        ("fetch", "", 1, "fetch="),
        ("fetch page", None, 1, "fetch%20page"),
        ("a/b#2=c%", None, 1, "a%2Fb%232%3Dc%25"),
        ("größe", "…", 1, "gr%C3%B6%C3%9Fe=%E2%80%A6"),
        ("half", "\ud800", 1, "half=%ED%A0%80"),
    ],
)
def test_a_steps_component(name: str, key: str | int | None, number: int, component: str) -> None:
    assert step_component(name, key=key, number=number) == component


def test_a_step_id_is_the_branchs_path_and_the_component() -> None:
    branch = f"{branch_component(1, 'docs/a')}/{branch_component(2, 0)}"

    assert step_id(branch, "fetch#2") == "1:docs%2Fa/2:0/fetch#2"
    assert step_id("", "fetch") == "fetch"


@given(steps, steps)
def test_two_steps_never_share_a_component(
    one: tuple[str, str | int | None, int], other: tuple[str, str | int | None, int]
) -> None:
    def meant(step: tuple[str, str | int | None, int]) -> tuple[str, str | None, int]:
        return step[0], None if step[1] is None else str(step[1]), step[2]

    assert (the_component(one) == the_component(other)) == (meant(one) == meant(other))


@given(branches, steps, branches, steps)
def test_two_places_never_share_a_step_id(
    branch: list[tuple[int, str | int]],
    step: tuple[str, str | int | None, int],
    other_branch: list[tuple[int, str | int]],
    other_step: tuple[str, str | int | None, int],
) -> None:
    one = step_id(the_path(branch), the_component(step))
    other = step_id(the_path(other_branch), the_component(other_step))

    same = the_path(branch) == the_path(other_branch) and the_component(step) == the_component(other_step)
    assert (one == other) == same


@pytest.mark.req("E1")
@given(branches, steps, st.integers(min_value=1), branches, steps, st.integers(min_value=1))
def test_two_calls_never_share_an_idempotency_key(
    branch: list[tuple[int, str | int]],
    step: tuple[str, str | int | None, int],
    call: int,
    other_branch: list[tuple[int, str | int]],
    other_step: tuple[str, str | int | None, int],
    other_call: int,
) -> None:
    one = step_id(the_path(branch), the_component(step))
    other = step_id(the_path(other_branch), the_component(other_step))

    same = idempotency_key(ROOT, one, call) == idempotency_key(ROOT, other, other_call)
    assert same == ((one, call) == (other, other_call))


@pytest.mark.req("E1")
def test_an_idempotency_key_says_which_run_step_and_call() -> None:
    assert idempotency_key(ROOT, "fetch") == f"{ROOT}/fetch"
    assert idempotency_key(ROOT, "fetch", 2) == f"{ROOT}/fetch/2"


@pytest.mark.req("E1")
def test_a_key_of_64_characters_stands_and_a_longer_one_is_hashed() -> None:
    longest = "x" * (64 - len(ROOT) - 1)

    assert idempotency_key(ROOT, longest) == f"{ROOT}/{longest}"
    assert idempotency_key(ROOT, longest + "x") == hashlib.sha256(f"{ROOT}/{longest}x".encode()).hexdigest()


@given(branches, steps, st.integers(min_value=1, max_value=999))
def test_every_idempotency_key_is_short_and_ascii(
    branch: list[tuple[int, str | int]], step: tuple[str, str | int | None, int], call: int
) -> None:
    key = idempotency_key(ROOT, step_id(the_path(branch), the_component(step)), call)

    assert key.isascii()
    assert len(key) <= 64


@given(st.binary(min_size=13, max_size=13))
def test_a_run_id_has_twenty_characters_and_is_fit_for_a_key(entropy: bytes) -> None:
    run_id = new_run_id(lambda size: entropy[:size])

    assert re.fullmatch(r"[a-z2-7]{20}", run_id)
    assert StoreKeys("team-a", run_id).head == f"team-a/runs/{run_id}/head"


@pytest.mark.parametrize("index", range(12))
def test_every_byte_of_entropy_matters_to_a_run_id(index: int) -> None:
    flipped = bytes(0xFF if at == index else 0 for at in range(13))

    assert new_run_id(lambda _: flipped) != new_run_id(lambda _: bytes(13))


@pytest.mark.parametrize("attempt", [1, 10_000_000_000])
def test_a_pods_name_is_a_label_even_for_the_longest_run_name(attempt: int) -> None:
    name = pod_name(LONGEST_NAME, "0c9fd2bc-uid", attempt)

    assert len(name) <= 63
    assert re.fullmatch(r"a{45}-[a-z2-7]{5}-\d+", name)


def test_a_run_applied_again_does_not_meet_its_predecessors_pods() -> None:
    assert pod_name("digest", "uid-1", 1) != pod_name("digest", "uid-2", 1)
    assert pod_name("digest", "uid-1", 1) == pod_name("digest", "uid-1", 1)


@pytest.mark.parametrize("name", ["a", "0", "a-b", LONGEST_NAME])
def test_a_run_may_have_any_label_of_45_characters_as_its_name(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "A", "a.b", "-a", "a-", "a_b", "a\n", "ä", LONGEST_NAME + "a", "a/b"])
def test_any_other_name_is_refused_as_the_field_that_it_is(name: str) -> None:
    with pytest.raises(InvalidRun) as raised:
        check_name(name)

    assert raised.value.field == "metadata.name"


def test_the_keys_of_a_run() -> None:
    keys = StoreKeys("team-a", ROOT.replace("a", "b"))
    run = "team-a/runs/bbcdefghijklmnopqrst/"

    assert [
        keys.run,
        keys.head,
        keys.segment(3, 10, 19, "n0nce"),
        keys.blob("f" * 64),
        keys.name("digest"),
    ] == [
        run,
        f"{run}head",
        f"{run}segments/3-10-19-n0nce",
        f"{run}blobs/{'f' * 64}",
        "team-a/names/digest",
    ]


@pytest.mark.parametrize(
    ("namespace", "run_id"), [("..", ROOT), ("a/b", ROOT), ("", ROOT), ("a", "../b"), ("a", "1" * 20)]
)
def test_keys_that_would_leave_their_folder_are_refused(namespace: str, run_id: str) -> None:
    with pytest.raises(InvalidRun):
        StoreKeys(namespace, run_id)


def test_a_key_tells_whose_it_is() -> None:
    keys = StoreKeys("team-a", "b" * 20)
    objects = [keys.head, keys.segment(3, 10, 19, "n0nce"), keys.base(3, 19, "n0nce"), f"{keys.inbox}x/y"]

    assert [run_at(key) for key in objects] == [("team-a", "b" * 20)] * 4
    assert [name_at(key) for key in objects] == [None] * 4
    assert name_at(keys.name("digest")) == ("team-a", "digest")
    assert run_at(keys.name("digest")) is None
    assert [numbers_at(key) for key in objects] == [None, (3, 10, 19), (3, 19), None]


@pytest.mark.parametrize(
    "key",
    [
        "_owner",
        "notes.txt",
        "head",
        "a/names/" + "x" * 46,
        "a/names/b/c",
        "a//names/b",
        "Team/names/b",
        "../names/b",
        "a/runs/" + "b" * 20,
        "a/runs/" + "b" * 20 + "/",
        "a/runs/" + "b" * 19 + "/head",
        "Team/runs/" + "b" * 20 + "/head",
        "a/b/runs/" + "b" * 20 + "/head",
    ],
)
def test_a_key_that_is_none_of_ours_is_nobodys(key: str) -> None:
    assert (name_at(key), run_at(key), numbers_at(key)) == (None, None, None)


@pytest.mark.parametrize("name", ["1-2-3", "1-2-3-4-n", "1-x-3-n", "1-2-3-", "1-2--3-n", "1-2-\u0663-n", "n"])
def test_a_segment_whose_key_has_other_numbers_has_none(name: str) -> None:
    assert numbers_at(f"a/runs/{'b' * 20}/segments/{name}") is None
