from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from milepost.api.names import StoreKeys
from milepost.api.resource import AgentSpec, DeletionPolicy, Phase, RunSpec
from milepost.api.summary import NameRecord, NameState, Outcome
from milepost.checkpoint.answers import Purpose, Write
from milepost.checkpoint.claim import claim
from milepost.checkpoint.history import HeadAt, load, read_head
from milepost.checkpoint.records import OPERATOR, Halted, Started
from milepost.checkpoint.runs import HeadSeen, NameSeen, NewRun, Runs, Stale, require_head
from milepost.checkpoint.sending import send
from milepost.checkpoint.store import Found, Unchanged, Unknown
from milepost.errors import Corrupt, Fenced, FormatTooNew, Missing, RunDeleted, StoreRefused, StoreUnavailable
from tests.support.histories import NOON, a_claim, a_step, after, an_outcome, some_patience
from tests.support.store_doubles import Crashed, Fault, FaultyStore, Numbers

NAME_KEY = "team/names/triage"


def a_record(run_id: str, uid: str, digest: str) -> NameRecord:
    return NameRecord("triage", run_id, uid, digest, cluster="cluster-1", retention_s=3600)


def a_new_run(*, uid: str = "uid-1", digest: str = "spec-1") -> NewRun:
    spec = RunSpec(
        retention_seconds=3600,
        agent=AgentSpec(image="agent:1", entrypoint="triage.agent:main", version="3"),
        goal="sort the mail",
        inputs={"limit": 3},
    )
    return NewRun("team", "triage", uid, "cluster-1", spec, digest)


@dataclass
class World:
    """One store with the calls from outside and an executor's."""

    store: FaultyStore = field(default_factory=FaultyStore)
    entropy: Numbers = field(default_factory=Numbers)

    @property
    def runs(self) -> Runs:
        return Runs(self.store, lambda: NOON, self.entropy, deadline=0.5)

    @property
    def undisturbed(self) -> Runs:
        return Runs(self.store.inner, lambda: NOON, self.entropy)

    def name(self) -> NameSeen:
        seen = self.undisturbed.look_up("team", "triage")
        assert seen is not None
        return seen

    def head(self, run_id: str = "") -> HeadSeen:
        seen = self.undisturbed.observe(StoreKeys("team", run_id or self.name().record.run_id))
        assert isinstance(seen, HeadSeen)
        return seen

    def take(self, attempt: int = 1, *, run_id: str = "") -> HeadAt:
        keys = StoreKeys("team", run_id or self.name().record.run_id)
        taken = claim(
            self.store.inner,
            keys,
            a_claim(attempt),
            at=NOON,
            entropy=self.entropy,
            patience=some_patience(),
        )
        assert isinstance(taken, HeadAt)
        return taken

    def commit_on(self, at: HeadAt, *events: object) -> None:
        head = after(at.head, *events, entropy=self.entropy).head  # type: ignore[arg-type]  # events of a test
        write = Write(Purpose.COMMIT, head.keys.head, head.body(), head.metadata(), at.etag, head)
        send(self.store.inner, write, some_patience())

    def change_name(self) -> None:
        """Change the name's record as another operator would."""
        self.undisturbed.note_outcome("team", self.name(), f"changed {self.entropy.count}")

    def heads(self) -> list[str]:
        return sorted(each.key for each in self.store.list("team/runs/") if each.key.endswith("/head"))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def begun(world: World) -> World:
    world.runs.start(a_new_run())
    world.store.puts.clear()
    return world


class TestStart:
    def test_a_run_is_begun_by_its_head_and_then_its_name(self, world: World) -> None:
        run_id = world.runs.start(a_new_run())

        keys = StoreKeys("team", run_id)
        assert [put.key for put in world.store.puts] == [keys.head, NAME_KEY]
        assert world.name().record == a_record(run_id, "uid-1", "spec-1")
        seen = world.head()
        assert (seen.summary.phase, seen.summary.epoch, seen.summary.attempt) == (Phase.PENDING, 0, 0)

    @pytest.mark.req("A3")
    def test_what_was_asked_for_is_the_first_record(self, world: World) -> None:
        run_id = world.runs.start(a_new_run())

        assert load(world.store, world.head().at.head).started == Started(
            namespace="team",
            name="triage",
            resource_uid="uid-1",
            cluster="cluster-1",
            key_root=run_id,
            spec_digest="spec-1",
            entrypoint="triage.agent:main",
            agent_version="3",
            goal="sort the mail",
            inputs={"limit": 3},
            step_attempts=3,
            configuration={
                "agent": {"image": "agent:1", "entrypoint": "triage.agent:main", "version": "3"},
                "retentionSeconds": 3600,
            },
        )

    @pytest.mark.req("A3")
    def test_inputs_that_do_not_fit_a_head_are_in_a_segment_before_it_names_one(self, world: World) -> None:
        new = a_new_run()
        large = {"text": "x" * 100_000}

        world.runs.start(replace(new, spec=new.spec.model_copy(update={"inputs": large})))

        segment, head, name = (put.key for put in world.store.puts)
        assert ("/segments/" in segment, head.endswith("/head"), name) == (True, True, NAME_KEY)
        started = load(world.store, world.take().head).started
        assert started is not None
        assert started.inputs == large

    def test_run_ids_are_never_given_twice(self, world: World) -> None:
        first = world.runs.start(a_new_run())
        world.store.delete(NAME_KEY)

        assert world.runs.start(a_new_run()) != first

    @pytest.mark.req("K5")
    def test_two_operators_that_begin_the_same_run_agree_on_one(self, world: World) -> None:
        other: list[str] = []
        world.store.next_puts(
            Fault(before=lambda: other.append(world.undisturbed.start(a_new_run()))), only="/names/"
        )

        run_id = world.runs.start(a_new_run())

        assert [run_id] == other
        assert world.name().record.run_id == run_id

    @pytest.mark.req("D9")
    def test_a_name_given_to_another_resource_meanwhile_is_stale(self, world: World) -> None:
        other = a_new_run(uid="uid-2")
        world.store.next_puts(Fault(before=lambda: _ignore(world.undisturbed.start(other))), only="/names/")

        with pytest.raises(Stale):
            world.runs.start(a_new_run())
        assert world.name().record.resource_uid == "uid-2"

    @pytest.mark.req("K5")
    @pytest.mark.parametrize("key", ["/head", "/names/"])
    @pytest.mark.parametrize("applied", [True, False])
    def test_a_crash_at_either_write_is_put_right_by_the_next_call(
        self, world: World, key: str, *, applied: bool
    ) -> None:
        world.store.next_puts(Fault.crash(applied=applied), only=key)
        with pytest.raises(Crashed):
            world.runs.start(a_new_run())

        run_id = world.runs.start(a_new_run())

        assert world.name().record.run_id == run_id
        assert world.head().summary.phase is Phase.PENDING


@pytest.mark.req("C4")
@pytest.mark.parametrize("key", ["/head", "/names/"])
@pytest.mark.parametrize(
    "fault", [Fault.lost_answer(), Fault.lost_request(), Fault.conflict(), Fault.delayed()]
)
class TestTrouble:
    def test_a_start_begins_one_run(self, world: World, fault: Fault, key: str) -> None:
        world.store.next_puts(fault, only=key)

        run_id = world.runs.start(a_new_run())

        world.store.arrive()
        assert world.name().record.run_id == run_id
        assert world.heads() == [StoreKeys("team", run_id).head]

    def test_an_adoption_happens_once(self, begun: World, fault: Fault, key: str) -> None:
        begun.store.next_puts(fault, only=key)

        begun.runs.adopt("team", begun.name(), begun.head(), "uid-2")

        begun.store.arrive()
        assert begun.name().record.resource_uid == begun.head().summary.resource_uid == "uid-2"
        assert begun.head().summary.epoch == 1

    def test_an_adoption_by_another_cluster_says_which(self, begun: World, fault: Fault, key: str) -> None:
        begun.store.next_puts(fault, only=key)

        begun.runs.adopt("team", begun.name(), begun.head(), "uid-1", cluster="cluster-2")

        begun.store.arrive()
        assert begun.name().record.cluster == "cluster-2"

    def test_a_superseded_run_is_ended_and_followed_once(self, begun: World, fault: Fault, key: str) -> None:
        old = begun.head()
        begun.store.next_puts(fault, only=key)

        run_id = begun.runs.supersede(begun.name(), old, a_new_run(digest="spec-2"))

        begun.store.arrive()
        assert begun.name().record == a_record(run_id, "uid-1", "spec-2")
        assert begun.head(old.summary.run_id).summary.phase is Phase.CANCELLED
        assert len(begun.heads()) == 2


class TestLooking:
    def test_a_name_that_stands_for_nothing(self, world: World) -> None:
        assert world.runs.look_up("team", "triage") is None

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"[]",
            b"null",
            b'{"nonce":"x"}',
            b'{"format":1,"nonce":"x","name":"triage"}',
            b'{"format":1,"name":"triage","run_id":"r","resource_uid":"u","spec_digest":"s"}',
            b'{"format":"one","nonce":"x"}',
        ],
    )
    def test_a_damaged_name_is_reported(self, world: World, body: bytes) -> None:
        world.store.put_new(NAME_KEY, body, {})

        with pytest.raises(Corrupt) as caught:
            world.runs.look_up("team", "triage")
        assert caught.value.key == NAME_KEY

    @pytest.mark.req("D10")
    def test_a_name_of_a_newer_format_is_refused(self, world: World) -> None:
        world.store.put_new(NAME_KEY, b'{"format":3,"nonce":"x"}', {})

        with pytest.raises(FormatTooNew):
            world.runs.look_up("team", "triage")

    def test_observing_says_whether_anything_changed(self, begun: World) -> None:
        seen = begun.head()
        keys = seen.at.head.keys

        assert begun.runs.observe(keys, unless_etag=seen.etag) == Unchanged()
        begun.take(1)
        assert begun.runs.observe(keys, unless_etag=seen.etag) == begun.head()

    def test_a_run_that_is_not_there_has_no_head(self, world: World) -> None:
        assert world.runs.observe(StoreKeys("team", "b" * 20)) is None

    @pytest.mark.req("D3")
    def test_a_name_that_leads_nowhere_is_damage(self, begun: World) -> None:
        keys = begun.head().at.head.keys
        begun.store.delete(keys.head)

        with pytest.raises(Missing) as caught:
            require_head(begun.runs.observe(keys), keys)
        assert caught.value.key == keys.head

    def test_a_head_that_is_there_is_handed_on(self, begun: World) -> None:
        seen = begun.head()

        assert require_head(seen, seen.at.head.keys) is seen
        assert require_head(Unchanged(), seen.at.head.keys) == Unchanged()


@pytest.mark.req("S6")
class TestAdopt:
    def test_name_and_head_belong_to_the_new_resource_and_the_log_goes_on(self, begun: World) -> None:
        begun.commit_on(begun.take(1), a_step("one"))

        begun.runs.adopt("team", begun.name(), begun.head(), "uid-2")

        assert [put.key for put in begun.store.puts] == [NAME_KEY, begun.head().at.head.keys.head]
        summary = begun.head().summary
        assert begun.name().record.resource_uid == summary.resource_uid == "uid-2"
        assert (summary.writer, summary.attempt, summary.phase) == (OPERATOR, 1, Phase.RUNNING)
        assert begun.take(2).head.resource_uid == "uid-2"
        assert list(load(begun.store, begun.head().at.head).completed) == ["one"]

    @pytest.mark.req("C3")
    def test_an_executor_of_the_old_resource_is_fenced(self, begun: World) -> None:
        at = begun.take(1)

        begun.runs.adopt("team", begun.name(), begun.head(), "uid-2")

        with pytest.raises(Fenced):
            begun.commit_on(at, a_step("late"))

    def test_an_ended_run_is_adopted_by_its_name_alone(self, begun: World) -> None:
        begun.commit_on(begun.take(1), an_outcome())
        before = begun.head()

        begun.runs.adopt("team", begun.name(), before, "uid-2")

        assert begun.name().record.resource_uid == "uid-2"
        assert begun.head() == before

    def test_a_halted_run_stays_halted_for_its_reason(self, begun: World) -> None:
        begun.commit_on(begun.take(1), Halted(reason="InputsInvalid", message="limit"))

        begun.runs.adopt("team", begun.name(), begun.head(), "uid-2")

        assert begun.head().summary.phase is Phase.HALTED
        assert begun.head().summary.outcome == Outcome("InputsInvalid", "limit")

    def test_adopting_again_writes_nothing(self, begun: World) -> None:
        begun.runs.adopt("team", begun.name(), begun.head(), "uid-2")
        begun.store.puts.clear()

        begun.runs.adopt("team", begun.name(), begun.head(), "uid-2")

        assert begun.store.puts == []

    @pytest.mark.req("K5")
    @pytest.mark.parametrize("key", ["/head", "/names/"])
    @pytest.mark.parametrize("applied", [True, False])
    def test_a_crash_at_either_write_is_put_right_by_the_next_call(
        self, begun: World, key: str, *, applied: bool
    ) -> None:
        begun.store.next_puts(Fault.crash(applied=applied), only=key)
        with pytest.raises(Crashed):
            begun.runs.adopt("team", begun.name(), begun.head(), "uid-2")

        begun.runs.adopt("team", begun.name(), begun.head(), "uid-2")

        assert begun.name().record.resource_uid == begun.head().summary.resource_uid == "uid-2"
        assert begun.head().summary.epoch == 1

    def test_a_name_changed_meanwhile_is_stale_and_the_head_untouched(self, begun: World) -> None:
        name, head = begun.name(), begun.head()
        begun.change_name()

        with pytest.raises(Stale):
            begun.runs.adopt("team", name, head, "uid-2")
        assert begun.head() == head

    def test_a_name_removed_meanwhile_is_stale_and_not_made_again(self, begun: World) -> None:
        name = begun.name()
        begun.store.delete(NAME_KEY)

        with pytest.raises(Stale):
            begun.runs.adopt("team", name, begun.head(name.record.run_id), "uid-2")
        assert begun.runs.look_up("team", "triage") is None

    def test_a_head_that_went_on_is_stale_and_the_next_call_puts_it_right(self, begun: World) -> None:
        head = begun.head()
        begun.take(1)

        with pytest.raises(Stale):
            begun.runs.adopt("team", begun.name(), head, "uid-2")
        begun.runs.adopt("team", begun.name(), begun.head(), "uid-2")

        assert begun.head().summary.resource_uid == "uid-2"

    def test_a_head_deleted_meanwhile_is_said_to_be(self, begun: World) -> None:
        name, head = begun.name(), begun.head()
        begun.store.delete(head.at.head.keys.head)

        with pytest.raises(RunDeleted):
            begun.runs.adopt("team", name, head, "uid-2")
        assert begun.heads() == []


class TestEnd:
    @pytest.mark.req("C3", "F4")
    def test_the_end_is_recorded_and_the_executor_fenced(self, begun: World) -> None:
        at = begun.take(2)

        seen = begun.runs.end(begun.head(), phase=Phase.CANCELLED, reason="Cancelled", message="by ada")

        assert seen == begun.head()
        summary = seen.summary
        assert (summary.phase, summary.outcome) == (Phase.CANCELLED, Outcome("Cancelled", "by ada"))
        assert (summary.attempt, summary.epoch, summary.writer) == (2, 2, OPERATOR)
        with pytest.raises(Fenced):
            begun.commit_on(at, a_step("late"))

    def test_a_run_that_nobody_ever_claimed_can_be_ended(self, begun: World) -> None:
        seen = begun.runs.end(begun.head(), phase=Phase.CANCELLED, reason="Cancelled", message="")

        assert (seen.summary.phase, seen.summary.attempt) == (Phase.CANCELLED, 0)

    def test_an_end_that_stands_is_never_replaced(self, begun: World) -> None:
        begun.commit_on(begun.take(1), an_outcome())
        before = begun.head()

        assert begun.runs.end(before, phase=Phase.CANCELLED, reason="Cancelled", message="") == before
        assert begun.head() == before

    @pytest.mark.req("K5")
    @pytest.mark.parametrize("applied", [True, False])
    def test_a_crash_is_put_right_by_the_next_call(self, begun: World, *, applied: bool) -> None:
        begun.store.next_puts(Fault.crash(applied=applied))
        with pytest.raises(Crashed):
            begun.runs.end(begun.head(), phase=Phase.FAILED, reason="OOMLoop", message="")

        begun.runs.end(begun.head(), phase=Phase.FAILED, reason="OOMLoop", message="")

        assert (begun.head().summary.phase, begun.head().summary.epoch) == (Phase.FAILED, 1)

    def test_a_run_that_went_on_is_stale(self, begun: World) -> None:
        head = begun.head()
        begun.commit_on(begun.take(1), an_outcome())

        with pytest.raises(Stale):
            begun.runs.end(head, phase=Phase.CANCELLED, reason="Cancelled", message="")
        assert begun.head().summary.phase is Phase.SUCCEEDED

    @pytest.mark.req("C4")
    def test_a_lost_answer_followed_by_another_claim_is_stale(self, begun: World) -> None:
        begun.store.next_puts(Fault(Unknown("reset"), applied=False, after=lambda: _ignore(begun.take(1))))

        with pytest.raises(Stale):
            begun.runs.end(begun.head(), phase=Phase.CANCELLED, reason="Cancelled", message="")

    def test_a_deleted_run_is_said_to_be(self, begun: World) -> None:
        head = begun.head()
        begun.store.delete(head.at.head.keys.head)

        with pytest.raises(RunDeleted):
            begun.runs.end(head, phase=Phase.CANCELLED, reason="Cancelled", message="")
        assert begun.heads() == []

    def test_a_store_without_an_answer_is_left_for_the_next_pass(self, begun: World) -> None:
        begun.store.next_puts(*[Fault.busy()] * 100)

        with pytest.raises(StoreUnavailable):
            begun.runs.end(begun.head(), phase=Phase.CANCELLED, reason="Cancelled", message="")


@pytest.mark.req("D9")
class TestSupersede:
    def test_the_old_run_ends_before_the_new_one_has_the_name(self, begun: World) -> None:
        at = begun.take(1)
        old = begun.head()

        run_id = begun.runs.supersede(begun.name(), old, a_new_run(uid="uid-2", digest="spec-2"))

        new_keys = StoreKeys("team", run_id)
        assert [put.key for put in begun.store.puts] == [old.at.head.keys.head, new_keys.head, NAME_KEY]
        ended = begun.head(old.summary.run_id).summary
        assert (ended.phase, ended.outcome) == (
            Phase.CANCELLED,
            Outcome("Superseded", "team/triage was applied anew with another spec"),
        )
        assert begun.name().record == a_record(run_id, "uid-2", "spec-2")
        assert begun.head().at.head.key_root == run_id != old.at.head.key_root
        with pytest.raises(Fenced):
            begun.commit_on(at, a_step("late"))

    def test_an_ended_run_is_left_as_it_ended(self, begun: World) -> None:
        begun.commit_on(begun.take(1), an_outcome())
        old = begun.head()

        begun.runs.supersede(begun.name(), old, a_new_run(digest="spec-2"))

        assert begun.head(old.summary.run_id) == old

    @pytest.mark.req("K5")
    @pytest.mark.parametrize("number", [0, 1, 2], ids=["ending the old", "its head", "its name"])
    @pytest.mark.parametrize("applied", [True, False])
    def test_a_crash_at_any_write_is_put_right_by_the_next_call(
        self, begun: World, number: int, *, applied: bool
    ) -> None:
        old = begun.head()
        begun.store.next_puts(*[None] * number, Fault.crash(applied=applied))
        with pytest.raises(Crashed):
            begun.runs.supersede(begun.name(), old, a_new_run(digest="spec-2"))

        if begun.name().record.spec_digest != "spec-2":
            begun.runs.supersede(begun.name(), begun.head(), a_new_run(digest="spec-2"))

        assert begun.name().record.spec_digest == "spec-2"
        assert begun.head().summary.phase is Phase.PENDING
        assert begun.head(old.summary.run_id).summary.phase is Phase.CANCELLED
        assert begun.head(old.summary.run_id).summary.epoch == 1

    def test_an_old_run_that_went_on_is_stale_and_nothing_is_begun(self, begun: World) -> None:
        old = begun.head()
        begun.take(1)

        with pytest.raises(Stale):
            begun.runs.supersede(begun.name(), old, a_new_run(digest="spec-2"))
        assert len(begun.heads()) == 1

    def test_a_name_changed_meanwhile_is_stale(self, begun: World) -> None:
        begun.store.next_puts(Fault(before=begun.change_name), only="/names/")

        with pytest.raises(Stale):
            begun.runs.supersede(begun.name(), begun.head(), a_new_run(digest="spec-2"))
        assert begun.name().record.spec_digest == "spec-1"

    def test_a_name_removed_meanwhile_is_stale_and_not_made_again(self, begun: World) -> None:
        begun.store.next_puts(Fault(before=lambda: begun.store.delete(NAME_KEY)), only="/names/")

        with pytest.raises(Stale):
            begun.runs.supersede(begun.name(), begun.head(), a_new_run(digest="spec-2"))
        assert begun.runs.look_up("team", "triage") is None

    def test_a_run_whose_head_is_lost_is_followed_without_touching_it(self, begun: World) -> None:
        old = begun.head()
        begun.store.delete(old.at.head.keys.head)

        run_id = begun.runs.supersede(begun.name(), None, a_new_run(digest="spec-2"))

        assert begun.heads() == [StoreKeys("team", run_id).head]


class TestANameThatGaveItsRunUp:
    @pytest.fixture
    def freed(self, begun: World) -> World:
        begun.undisturbed.change_name("team", begun.name(), state=NameState.FREE)
        return begun

    def test_it_stands_for_no_run(self, freed: World) -> None:
        seen = freed.runs.read_name("team", "triage")

        assert seen is not None
        assert seen.record.state is NameState.FREE
        assert freed.runs.look_up("team", "triage") is None

    @pytest.mark.req("C2")
    def test_the_next_run_is_begun_over_it(self, freed: World) -> None:
        before = freed.runs.read_name("team", "triage")

        run_id = freed.runs.start(a_new_run())

        assert before is not None
        assert freed.name().record == a_record(run_id, "uid-1", "spec-1")
        assert freed.store.puts_to("/names/")[-1].etag == before.etag

    @pytest.mark.parametrize("blocked", ["before the name was looked at", "while the head was made"])
    def test_a_name_that_was_changed_while_the_head_was_made_is_not_taken(
        self, freed: World, blocked: str
    ) -> None:
        def change() -> None:
            seen = freed.undisturbed.read_name("team", "triage")
            assert seen is not None
            freed.undisturbed.change_name("team", seen)

        if blocked == "while the head was made":
            freed.store.next_puts(Fault(after=change), only="/head")
            with pytest.raises(Stale):
                freed.runs.start(a_new_run())
            assert freed.runs.look_up("team", "triage") is None
        else:
            change()
            assert freed.runs.start(a_new_run()) == freed.name().record.run_id

    def test_a_name_that_was_blocked_while_the_head_was_made_is_not_taken(self, world: World) -> None:
        world.store.next_puts(
            Fault(after=lambda: world.undisturbed.block_name("team", "triage", "r" * 20)), only="/head"
        )

        with pytest.raises(Stale):
            world.runs.start(a_new_run())
        assert world.runs.look_up("team", "triage") is None

    def test_a_name_that_was_given_to_a_run_cannot_be_blocked(self, begun: World) -> None:
        with pytest.raises(Stale):
            begun.runs.block_name("team", "triage", begun.name().record.run_id)


class TestADeletionThatBegins:
    @pytest.mark.req("C3")
    def test_no_writer_can_record_anything_after_it(self, begun: World) -> None:
        at = begun.take()

        begun.runs.begin_deletion(begun.head())

        with pytest.raises(RunDeleted):
            begun.commit_on(at, a_step("late"))
        with pytest.raises(RunDeleted):
            begun.take(2)
        assert begun.head().summary.phase is Phase.DELETING

    def test_a_run_that_has_gone_on_is_stale(self, begun: World) -> None:
        seen = begun.head()
        begun.take()

        with pytest.raises(Stale):
            begun.runs.begin_deletion(seen)

    def test_a_head_that_is_gone_is_reported(self, begun: World) -> None:
        seen = begun.head()
        begun.store.delete(seen.at.head.keys.head)

        with pytest.raises(RunDeleted):
            begun.runs.begin_deletion(seen)

    def test_it_begins_once(self, begun: World) -> None:
        seen = begun.runs.begin_deletion(begun.head())
        begun.store.puts.clear()

        assert begun.runs.begin_deletion(seen) == seen
        assert begun.store.puts == []

    @pytest.mark.req("K6")
    def test_it_begins_where_a_run_is_superseded_whose_checkpoints_go_with_its_resource(
        self, begun: World
    ) -> None:
        begun.runs.note_retention(
            "team", begun.name(), deletion_policy=DeletionPolicy.DELETE, retention_s=3600
        )
        old = begun.head()

        run_id = begun.runs.supersede(begun.name(), old, a_new_run(uid="uid-2"))

        assert begun.head(old.summary.run_id).summary.phase is Phase.DELETING
        assert begun.name().record == a_record(run_id, "uid-2", "spec-1")


class TestNoteRetention:
    def test_the_name_says_what_becomes_of_its_run(self, begun: World) -> None:
        before = begun.name().record

        begun.runs.note_retention("team", begun.name(), deletion_policy=DeletionPolicy.DELETE, retention_s=5)

        assert begun.name().record == replace(before, deletion_policy=DeletionPolicy.DELETE, retention_s=5)

    def test_noting_it_again_writes_nothing(self, begun: World) -> None:
        begun.runs.note_retention(
            "team", begun.name(), deletion_policy=DeletionPolicy.RETAIN, retention_s=3600
        )

        assert begun.store.puts == []


class TestNoteOutcome:
    def test_the_name_says_how_its_run_ended(self, begun: World) -> None:
        before = begun.name().record

        begun.runs.note_outcome("team", begun.name(), "Succeeded")

        assert begun.name().record == replace(before, outcome="Succeeded")

    def test_noting_it_again_writes_nothing(self, begun: World) -> None:
        begun.runs.note_outcome("team", begun.name(), "Succeeded")
        begun.store.puts.clear()

        begun.runs.note_outcome("team", begun.name(), "Succeeded")

        assert begun.store.puts == []

    @pytest.mark.parametrize("meanwhile", ["changed", "removed"])
    def test_a_name_that_is_no_longer_the_one_seen_is_stale(self, begun: World, meanwhile: str) -> None:
        change: dict[str, Callable[[], None]] = {
            "changed": begun.change_name,
            "removed": lambda: begun.store.delete(NAME_KEY),
        }
        begun.store.next_puts(Fault(before=change[meanwhile]))

        with pytest.raises(Stale):
            begun.runs.note_outcome("team", begun.name(), "Succeeded")

    @pytest.mark.req("C4")
    @pytest.mark.parametrize("fault", [Fault.lost_answer(), Fault.delayed(), Fault.conflict()])
    def test_trouble_with_the_store_is_resolved(self, begun: World, fault: Fault) -> None:
        begun.store.next_puts(fault)

        begun.runs.note_outcome("team", begun.name(), "Succeeded")

        assert begun.name().record.outcome == "Succeeded"


@pytest.mark.req("C2")
def test_no_two_records_of_a_name_are_equal_in_bytes(begun: World) -> None:
    first = begun.name()
    begun.runs.note_outcome("team", first, "Succeeded")
    begun.runs.note_outcome("team", begun.name(), "")

    assert begun.name().record == first.record
    assert begun.name().etag != first.etag


def test_a_store_that_refuses_says_so_at_once(world: World) -> None:
    world.store.next_puts(Fault.refused())

    with pytest.raises(StoreRefused):
        world.runs.start(a_new_run())


def test_what_is_read_of_an_unclaimed_run_is_its_start_alone(begun: World) -> None:
    at = read_head(begun.store, begun.head().at.head.keys)

    assert isinstance(at, HeadAt)
    assert load(begun.store, at.head).totals.steps_done == 0
    assert isinstance(begun.store.get(at.head.keys.head), Found)


def _ignore(_: object) -> None:
    pass
