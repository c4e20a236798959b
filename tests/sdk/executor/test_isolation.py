"""What an executor does where other namespaces are open to its keys: it does not claim."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from milepost.api.exits import Exit
from milepost.api.resource import Phase
from tests.support.bent_stores import GuardedS3
from tests.support.sessions import RunOnDisk


@pytest.fixture
def guarded() -> Iterator[GuardedS3]:
    with GuardedS3() as s3:
        yield s3


@pytest.mark.req("S3")
def test_where_a_sibling_is_open_the_executor_claims_nothing_and_says_why(
    run: RunOnDisk, guarded: GuardedS3
) -> None:
    run.in_s3(guarded).begin("stepping:five", world=str(run.world))
    before = run.head

    ended = run.go_on(MILEPOST_ISOLATION="required")

    assert (ended.code, ended.said["reason"]) == (Exit.START_ERROR, "StoreNotIsolated")
    assert "the keys that pods of namespace team have can also read _owner" in ended.said["message"]
    assert (run.head, run.lines("ran")) == (before, [])


@pytest.mark.req("S3")
def test_with_keys_of_its_own_namespace_it_runs(run: RunOnDisk, guarded: GuardedS3) -> None:
    guarded.own = "some/prefix/team/"
    run.in_s3(guarded).begin("stepping:five", world=str(run.world))

    ended = run.go_on(MILEPOST_ISOLATION="required")

    assert (ended.code, run.state.phase) == (0, Phase.SUCCEEDED)
    assert all(key.startswith(guarded.own) for key in guarded.objects())


@pytest.mark.parametrize("said", ["none", ""])
def test_where_nobody_asks_for_it_nothing_is_checked(run: RunOnDisk, guarded: GuardedS3, said: str) -> None:
    run.in_s3(guarded).begin("stepping:five", world=str(run.world))

    ended = run.go_on(MILEPOST_ISOLATION=said)

    assert ended.code == 0
    assert not any("sibling" in seen.line for seen in guarded.journal)


def test_a_word_that_is_not_known_is_refused(run: RunOnDisk) -> None:
    ended = run.begin("stepping:five", world=str(run.world)).go_on(MILEPOST_ISOLATION="perhaps")

    assert (ended.code, ended.said["reason"]) == (Exit.START_ERROR, "EnvironmentInvalid")
    assert "MILEPOST_ISOLATION: 'perhaps'" in ended.said["message"]
