"""Deleting from a store: what goes, that it can be cut off anywhere, and who may be at work beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import pytest

from milepost.api.names import StoreKeys
from milepost.api.resource import AgentSpec, DeletionPolicy, Phase, RunSpec
from milepost.api.summary import NameRecord, NameState
from milepost.checkpoint.answers import Done, Purpose, Write
from milepost.checkpoint.archive import Archive
from milepost.checkpoint.claim import claim
from milepost.checkpoint.deletion import Carried, Finding, Sweeper
from milepost.checkpoint.gathering import Memory
from milepost.checkpoint.head import draft
from milepost.checkpoint.history import HeadAt, load
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.records import Event, Finished, Halted, StepCompleted, Value
from milepost.checkpoint.runs import HeadSeen, NewRun, Runs, Stale
from milepost.checkpoint.sealed import segment_key
from milepost.checkpoint.sending import send
from milepost.checkpoint.store import Found, Store
from milepost.checkpoint.sweep import Cause, Living, Remove, Trouble
from milepost.errors import Fenced, Missing, RunDeleted, StoreUnavailable
from tests.support.histories import NOON, a_claim, a_step, some_patience
from tests.support.store_doubles import Crashed, Numbers
from tests.support.watched_store import WatchedStore, dying

pytestmark = pytest.mark.req("C6")

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
CLUSTER: Final = "cluster-1"
NAME_KEY: Final = "team/names/triage"


@dataclass
class Known:
    """A cluster whose resources are told by hand."""

    uids: set[str] = field(default_factory=set)
    fresh: set[str] | None = None

    def living(self) -> Living | None:
        return Living(CLUSTER, frozenset(self.uids))

    def exists(self, namespace: str, name: str, uid: str) -> bool:
        del namespace, name
        return uid in (self.uids if self.fresh is None else self.fresh)


def a_new_run(
    *, uid: str = "uid-1", digest: str = "spec-1", policy: DeletionPolicy = DeletionPolicy.RETAIN
) -> NewRun:
    spec = RunSpec(
        agent=AgentSpec(image="agent:1", entrypoint="triage.agent:main"),
        deletion_policy=policy,
        retention_seconds=int(HOUR),
    )
    return NewRun("team", "triage", uid, CLUSTER, spec, digest)


class Writer:
    """An executor that holds a run, commits as the real one does, and can be asked for a record."""

    def __init__(self, world: World, at: HeadAt) -> None:
        self.world = world
        self.at = at
        self.archive = Archive(world.store, at.head.keys, held=0)

    def commit(self, *events: Event, before_head: Callable[[], None] = lambda: None) -> None:
        planned = draft(self.at.head, events, at=NOON, entropy=self.world.entropy)
        try:
            merged = [(named, self.archive.segment(named)) for named in planned.merging]
        except Missing:
            merged = []
        commit = planned.commit(merged)
        for key, body in commit.objects:
            send(self.world.store, Write(Purpose.CREATE, key, body), some_patience())
        before_head()
        head = commit.head
        write = Write(Purpose.COMMIT, head.keys.head, head.body(), head.metadata(), self.at.etag, head)
        outcome = send(self.world.store, write, some_patience())
        assert isinstance(outcome, Done)
        self.at = HeadAt(head, outcome.etag)

    def steps(self, count: int) -> None:
        done = self.at.head.totals.steps_done
        for number in range(done, done + count):
            self.commit(a_step(f"s{number}", "x" * 12_000))

    def end(self) -> None:
        self.commit(Finished(phase=Phase.SUCCEEDED, reason="Completed"))


@dataclass
class World:
    """A store whose clock is moved by hand, and what is done in it."""

    time: float = 1_000_000.0
    entropy: Numbers = field(default_factory=Numbers)
    known: Known = field(default_factory=Known)
    memory: Memory = field(default_factory=Memory)
    store: MemoryStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=lambda: self.time)

    def runs(self, store: Store | None = None) -> Runs:
        return Runs(store or self.store, lambda: NOON, self.entropy, deadline=0.5)

    def sweeper(self, store: Store | None = None, *, known: bool = True) -> Sweeper:
        return Sweeper(self.runs(store), self.known if known else None, memory=self.memory)

    def look(self, *, known: bool = True) -> list[Finding]:
        return list(self.sweeper(known=known).look())

    def sweep(
        self, store: Store | None = None, *, orphans: bool = False, known: bool = True
    ) -> list[Carried]:
        sweeper = self.sweeper(store, known=known)
        return [sweeper.carry_out(finding, orphans=orphans) for finding in list(sweeper.look())]

    def begin(self, new: NewRun | None = None) -> StoreKeys:
        new = new or a_new_run()
        self.known.uids.add(new.resource_uid)
        return StoreKeys("team", self.runs().start(new))

    def take(self, keys: StoreKeys, attempt: int = 1) -> Writer:
        taken = claim(
            self.store,
            keys,
            a_claim(attempt),
            at=NOON,
            entropy=self.entropy,
            patience=some_patience(),
        )
        assert isinstance(taken, HeadAt)
        return Writer(self, taken)

    def ended(self, new: NewRun | None = None, *, steps: int = 1) -> StoreKeys:
        keys = self.begin(new)
        writer = self.take(keys)
        writer.steps(steps)
        writer.end()
        self.note_outcome()
        return keys

    def note_outcome(self) -> None:
        """Let the name say how its run ended, as whoever looks after it does."""
        seen = self.runs().look_up("team", "triage")
        if seen is not None:
            self.runs().note_outcome("team", seen, "Succeeded")

    def put(self, key: str, body: bytes = b"x") -> None:
        self.store.put_new(key, body, {})

    def keys(self, prefix: str = "") -> list[str]:
        return sorted(each.key for each in self.store.list(prefix))

    def name(self) -> NameRecord:
        seen = self.runs().read_name("team", "triage")
        assert seen is not None
        return seen.record

    def head(self, keys: StoreKeys) -> HeadSeen:
        seen = self.runs().observe(keys)
        assert isinstance(seen, HeadSeen)
        return seen


@pytest.fixture
def world() -> World:
    return World()


def causes(findings: list[Finding]) -> list[str]:
    return [
        each.verdict.cause if isinstance(each.verdict, Remove) else type(each.verdict).__name__
        for each in findings
    ]


class TestTheStoresTime:
    def test_it_is_the_date_of_an_object_that_is_gone_again(self, world: World) -> None:
        world.time = 12_345.0

        assert world.sweeper().store_time() == 12_345.0
        assert world.keys() == []

    def test_what_a_sweep_that_died_left_behind_goes_after_an_hour(self, world: World) -> None:
        world.put("_sweep/left")
        world.time += HOUR + 1

        world.sweeper().store_time()

        assert world.keys() == []

    def test_what_another_sweep_is_about_to_look_for_stays(self, world: World) -> None:
        world.put("_sweep/anothers")

        world.sweeper().store_time()

        assert world.keys() == ["_sweep/anothers"]

    def test_a_store_that_does_not_list_what_it_took_is_not_swept(self, world: World) -> None:
        forgetful = WatchedStore(world.store, hides=lambda _: True)

        with pytest.raises(StoreUnavailable):
            world.sweeper(forgetful).store_time()


class TestALiveRun:
    def test_merged_segments_go_and_its_history_stays_whole(self, world: World) -> None:
        keys = world.begin()
        writer = world.take(keys)
        writer.steps(40)
        before = world.keys(f"{keys.run}segments/")
        world.time += HOUR

        done = world.sweep()

        head = world.head(keys).at.head
        assert world.keys(f"{keys.run}segments/") == sorted(segment_key(keys, each) for each in head.segments)
        assert [(each.objects, each.left) for each in done] == [(len(before) - len(head.segments), "")]
        assert load(world.store, head).totals.steps_done == 40

    def test_nothing_goes_again(self, world: World) -> None:
        world.take(world.begin()).steps(40)
        world.time += HOUR
        world.sweep()

        assert world.look() == []

    def test_a_segment_stays_where_what_replaced_it_is_damaged(self, world: World) -> None:
        keys = world.begin()
        writer = world.take(keys)
        writer.steps(12)
        merged = next(each for each in writer.at.head.segments if each.level)
        key = segment_key(keys, merged)
        found = world.store.get(key)
        assert isinstance(found, Found)
        world.store.delete(key)
        world.put(key, found.body[:-10])
        before = world.keys()
        world.time += HOUR

        done = world.sweep()

        assert world.keys() == before
        assert done[0].left.startswith("what replaced it is damaged: ")
        assert len(done[0].stayed) == 3

    @pytest.mark.req("F-D12")
    def test_blobs_stay_whoever_names_them(self, world: World) -> None:
        keys = world.begin()
        world.take(keys).steps(1)
        world.put(keys.blob("a" * 64))
        world.time += 100 * DAY

        assert world.look() == []

    @pytest.mark.req("F-D12")
    def test_a_commit_on_its_way_finds_its_segment(self, world: World) -> None:
        keys = world.begin()
        writer = world.take(keys)
        writer.steps(11)

        def meanwhile() -> None:
            world.time += HOUR
            world.sweep()

        for number in range(11, 40):
            writer.commit(a_step(f"s{number}", "x" * 12_000), before_head=meanwhile)

        assert load(world.store, world.head(keys).at.head).totals.steps_done == 40


class TestWhatIsBesideAnEndedRun:
    def test_what_its_head_and_records_do_not_name_goes(self, world: World) -> None:
        keys = world.ended()
        world.put(keys.segment(1, 1, 9, "n"))
        world.put(keys.base(1, 9, "n"))
        world.put(keys.blob("a" * 64))
        world.time += HOUR / 2

        done = world.sweep()

        assert done == [Carried(objects=3, size=3)]
        assert world.keys(keys.run) == [keys.head]

    def test_a_blob_that_a_record_names_stays(self, world: World) -> None:
        keys = world.begin()
        writer = world.take(keys)
        step = a_step("s0")
        writer.commit(replace_result(step, "a" * 64))
        writer.end()
        world.put(keys.blob("a" * 64))
        world.time += HOUR / 2

        assert world.look() == []

    def test_its_history_is_read_once(self, world: World) -> None:
        keys = world.begin()
        writer = world.take(keys)
        writer.commit(replace_result(a_step("s0"), "a" * 64))
        writer.end()
        world.put(keys.blob("a" * 64))
        world.time += HOUR / 2
        world.look()
        store = WatchedStore(world.store)

        assert list(world.sweeper(store).look()) == []
        assert [each for each in store.calls if each.startswith("get")] == []

    def test_no_blob_goes_where_its_history_is_damaged(self, world: World) -> None:
        keys = world.ended(steps=8)
        world.put(keys.blob("a" * 64))
        world.store.delete(segment_key(keys, world.head(keys).at.head.segments[0]))
        world.time += HOUR / 2

        assert world.look() == []


def replace_result(step: StepCompleted, blob: str) -> StepCompleted:
    return step.model_copy(update={"result": Value(blob=blob, size=20_000)})


class TestRetention:
    @pytest.mark.req("C5")
    def test_a_run_stays_until_it_has_passed(self, world: World) -> None:
        world.ended()
        world.time += HOUR - 1

        assert world.look() == []

    def test_then_its_objects_go_and_the_name_keeps_the_outcome(self, world: World) -> None:
        keys = world.ended(steps=8)
        world.put(f"team/inbox/{keys.run_id}/gate")
        before = world.name()
        world.time += HOUR

        done = world.sweep()

        assert [each.left for each in done] == [""]
        assert world.keys() == [NAME_KEY]
        assert world.name() == replace(before, outcome="Succeeded", state=NameState.EXPIRED)

    def test_the_name_decides_for_how_long(self, world: World) -> None:
        world.ended()
        seen = world.runs().look_up("team", "triage")
        assert seen is not None
        world.runs().note_retention(
            "team", seen, deletion_policy=DeletionPolicy.RETAIN, retention_s=int(2 * HOUR)
        )
        world.time += 2 * HOUR - 1
        assert world.look() == []
        world.time += 1

        assert causes(world.look()) == [Cause.EXPIRED]

    def test_a_superseded_run_goes_and_its_successor_stays(self, world: World) -> None:
        old = world.ended()
        name = world.runs().look_up("team", "triage")
        assert name is not None
        new = world.runs().supersede(name, world.head(old), a_new_run(digest="spec-2"))
        world.time += HOUR

        world.sweep()

        assert world.keys() == [NAME_KEY, StoreKeys("team", new).head]
        assert world.name().state is NameState.KEPT

    def test_a_run_that_is_kept_for_longer_since_the_look_stays(self, world: World) -> None:
        keys = world.ended()
        world.time += HOUR
        sweeper = world.sweeper()
        (finding,) = sweeper.look()
        name = world.runs().look_up("team", "triage")
        assert name is not None
        world.runs().note_retention(
            "team", name, deletion_policy=DeletionPolicy.RETAIN, retention_s=int(2 * HOUR)
        )

        done = sweeper.carry_out(finding)

        assert done.left == f"run {keys.run_id} or its name was changed meanwhile"
        assert world.keys() == [NAME_KEY, keys.head]


class TestAResourceThatIsGone:
    def doomed(self, world: World) -> StoreKeys:
        keys = world.begin(a_new_run(policy=DeletionPolicy.DELETE))
        world.known.uids.clear()
        return keys

    @pytest.mark.req("K6", "I13", "F-C13")
    @pytest.mark.parametrize("phase", ["Pending", "Running", "Halted", "Succeeded", "Failed", "Cancelled"])
    def test_its_checkpoints_go_in_each_phase_and_its_name_is_free(self, world: World, phase: str) -> None:
        keys = world.begin(a_new_run(policy=DeletionPolicy.DELETE))
        if phase != "Pending":
            writer = world.take(keys)
            writer.steps(8)
            if phase == "Halted":
                writer.commit(Halted(reason="Diverged", message="no"))
            elif phase != "Running":
                writer.commit(Finished(phase=Phase(phase), reason="Told"))
        assert world.head(keys).summary.phase.value == phase
        world.known.uids.clear()

        world.sweep()

        assert world.keys() == [NAME_KEY]
        assert world.name().state is NameState.FREE

    def test_a_live_run_is_ended_before(self, world: World) -> None:
        keys = self.doomed(world)
        heads: list[tuple[Phase, str, str]] = []

        def note(_: int, call: str) -> None:
            if call == f"replace {keys.head}":
                head = world.head(keys).at.head
                heads.append((head.phase, head.reason, head.message))

        world.sweep(WatchedStore(world.store, after=note))

        why = ("Deleted", "its AgentRun was deleted, and deletionPolicy is Delete")
        assert heads == [(Phase.CANCELLED, *why), (Phase.DELETING, *why)]

    @pytest.mark.req("K6")
    def test_its_name_starts_anew(self, world: World) -> None:
        old = self.doomed(world)
        world.sweep()

        new = world.begin(a_new_run(uid="uid-2"))

        assert new.run_id != old.run_id
        assert world.name().run_id == new.run_id
        assert world.keys() == [NAME_KEY, new.head]

    @pytest.mark.req("F-C13")
    def test_a_store_that_is_down_meanwhile_holds_the_deletion_up_and_no_more(self, world: World) -> None:
        self.doomed(world)
        sweeper = world.sweeper()
        down = True

        def fail(_: int, call: str) -> None:
            if down and call.startswith("delete team/"):
                raise StoreUnavailable("team/", waited=1.0, cause="503")

        with pytest.raises(StoreUnavailable):
            world.sweep(WatchedStore(world.store, before=fail))
        down = False
        assert len(world.keys()) == 2

        assert [sweeper.carry_out(each).left for each in list(sweeper.look())] == [""]
        assert world.keys() == [NAME_KEY]

    def test_a_resource_that_a_fresh_look_finds_keeps_its_run(self, world: World) -> None:
        keys = self.doomed(world)
        world.known.fresh = {"uid-1"}

        done = world.sweep()

        assert [each.left for each in done] == [f"the AgentRun of run {keys.run_id} is there"]
        assert world.head(keys).summary.phase is Phase.PENDING

    def test_a_run_that_records_all_the_time_goes_too(self, world: World) -> None:
        keys = world.begin(a_new_run(policy=DeletionPolicy.DELETE))
        writer = world.take(keys)
        world.known.uids.clear()
        commits = 0

        def commit(_: int, call: str) -> None:
            nonlocal commits
            if call == f"replace {keys.head}" and commits < 5:
                commits += 1
                writer.steps(1)

        writer.steps(1)
        world.sweep(WatchedStore(world.store, before=commit))

        assert commits == 5
        assert world.keys() == [NAME_KEY]

    def test_a_run_that_was_adopted_since_the_look_stays(self, world: World) -> None:
        keys = self.doomed(world)
        sweeper = world.sweeper()
        (finding,) = sweeper.look()
        name = world.runs().look_up("team", "triage")
        assert name is not None
        world.runs().adopt("team", name, world.head(keys), "uid-2")
        world.known.uids.add("uid-2")

        done = sweeper.carry_out(finding)

        assert done.left == f"the AgentRun of run {keys.run_id} is there"
        assert world.head(keys).summary.phase is Phase.PENDING

    def test_a_run_that_is_to_be_retained_since_the_look_stays(self, world: World) -> None:
        keys = self.doomed(world)
        sweeper = world.sweeper()
        (finding,) = sweeper.look()
        name = world.runs().look_up("team", "triage")
        assert name is not None
        world.runs().note_retention("team", name, deletion_policy=DeletionPolicy.RETAIN, retention_s=60)

        sweeper.carry_out(finding)

        assert world.head(keys).summary.phase is Phase.PENDING

    def test_nobody_is_gone_where_nobody_knows_the_resources(self, world: World) -> None:
        self.doomed(world)

        assert world.look(known=False) == []

    def test_its_history_cannot_be_read_any_more_and_that_is_no_damage(self, world: World) -> None:
        head = world.runs().begin_deletion(world.head(self.doomed(world)))

        with pytest.raises(RunDeleted):
            load(world.store, head.at.head)


class TestAHeadWithoutAName:
    def orphan(self, world: World) -> StoreKeys:
        """Let the maker of a head die before it is named."""

        def die(_: int, call: str) -> None:
            if call.endswith("/head"):
                raise Crashed

        with pytest.raises(Crashed):
            world.runs(WatchedStore(world.store, after=die)).start(a_new_run())
        (head,) = world.keys("team/runs/")
        return StoreKeys("team", head.split("/")[2])

    def test_it_goes_after_an_hour(self, world: World) -> None:
        keys = self.orphan(world)
        world.time += HOUR - 1
        assert world.look() == []
        world.time += 1

        world.sweep()

        assert world.keys(keys.run) == []

    def test_one_that_was_claimed_since_the_look_stays(self, world: World) -> None:
        keys = self.orphan(world)
        world.time += HOUR
        sweeper = world.sweeper()
        (finding,) = sweeper.look()
        world.take(keys)

        sweeper.carry_out(finding)

        assert world.head(keys).summary.phase is Phase.RUNNING

    @pytest.mark.parametrize("named", [True, False])
    def test_its_maker_cannot_name_it_any_more_when_it_wakes(self, world: World, named: bool) -> None:  # noqa: FBT001  a case
        def sleep(_: int, call: str) -> None:
            if call in (f"create {NAME_KEY}", f"replace {NAME_KEY}"):
                world.time += 2 * HOUR
                world.sweep()

        first = world.begin() if named else None
        name = world.runs().look_up("team", "triage")
        asleep = world.runs(WatchedStore(world.store, before=sleep))
        new = a_new_run(digest="spec-2")

        with pytest.raises(Stale):
            _ = asleep.supersede(name, None, new) if name else asleep.start(new)

        found = world.runs().look_up("team", "triage")
        assert (found.record.run_id if found else None) == (first.run_id if first else None)
        assert world.keys("team/runs/") == ([first.head] if first else [])


class TestObjectsWithoutAHead:
    def test_they_go_on_request_only(self, world: World) -> None:
        keys = StoreKeys("team", "b" * 20)
        world.put(keys.blob("a" * 64))
        world.time += DAY

        assert [each.left for each in world.sweep()] == ["objects of no run are only deleted on request"]
        assert world.keys() == [keys.blob("a" * 64)]
        assert world.sweep(orphans=True) == [Carried(1, 1)]
        assert world.keys() == []

    @pytest.mark.req("D3")
    def test_under_a_name_they_are_damage_and_stay_whatever_is_asked(self, world: World) -> None:
        keys = world.ended(steps=8)
        world.store.delete(keys.head)
        before = world.keys()
        world.time += 100 * DAY

        assert causes(world.look()) == ["Trouble"]
        world.sweep(orphans=True)
        assert world.keys() == before

    def test_a_name_whose_run_is_gone_altogether_is_damage(self, world: World) -> None:
        keys = world.begin()
        world.store.delete(keys.head)

        assert causes(world.look()) == ["Trouble"]

    def test_a_head_that_the_listing_missed_is_no_orphans(self, world: World) -> None:
        keys = world.begin()
        world.take(keys).steps(8)
        world.time += 2 * DAY

        blind = WatchedStore(world.store, hides=lambda key: key == keys.head)

        assert list(world.sweeper(blind).look()) == []

    def test_what_a_writer_left_that_woke_after_the_deletion_goes(self, world: World) -> None:
        keys = world.ended()
        world.time += HOUR
        world.sweep()
        world.put(keys.blob("a" * 64))

        assert causes(world.look()) == [Cause.LEFT_OVER]
        world.sweep()
        assert world.keys() == [NAME_KEY]


class TestWhatCannotBeRead:
    @pytest.mark.parametrize("body", [b"{}", b'{"format":99}'])
    def test_a_head_is_reported_and_its_run_kept(self, world: World, body: bytes) -> None:
        keys = world.ended()
        world.store.delete(keys.head)
        world.put(keys.head, body)
        world.time += 100 * DAY
        before = world.keys()

        (finding,) = world.look()
        world.sweep(orphans=True)

        assert isinstance(finding.verdict, Trouble)
        assert world.keys() == before

    @pytest.mark.parametrize("body", [b"{}", b'{"format":99}'])
    def test_a_name_is_reported_and_every_run_kept_that_it_may_lead_to(
        self, world: World, body: bytes
    ) -> None:
        world.ended()
        world.put(StoreKeys("team", "b" * 20).blob("a" * 64))
        world.store.delete(NAME_KEY)
        world.put(NAME_KEY, body)
        world.time += 100 * DAY
        before = world.keys()

        findings = world.look()
        world.sweep(orphans=True)

        assert causes(findings) == ["Trouble", "Trouble", "Trouble"]
        assert world.keys() == before

    @pytest.mark.req("F-D13")
    def test_what_is_no_runs_is_not_looked_at(self, world: World) -> None:
        odd = ("team-/runs/x", "team/runs/short/head", "../runs/" + "b" * 20 + "/head", "team%2f/names/x")
        for key in ("_owner", "team/names/" + "x" * 60, "notes.txt", "team//names/x", *odd):
            world.put(key)
        before = world.keys()
        world.time += 100 * DAY

        assert world.look() == []
        assert world.keys() == before


class TestTwoSweeps:
    def test_both_may_delete_the_same_run(self, world: World) -> None:
        world.ended(steps=8)
        world.time += HOUR
        first, second = world.sweeper(), Sweeper(world.runs(), world.known)
        (one,), (two,) = first.look(), second.look()

        first.carry_out(one)
        done = second.carry_out(two)

        assert done.left
        assert world.keys() == [NAME_KEY]

    def test_what_was_written_in_the_second_of_its_look_is_read_again(self, world: World) -> None:
        world.ended()
        world.look()
        store = WatchedStore(world.store)

        list(world.sweeper(store).look())

        assert [each.split()[0] for each in store.calls] == ["create", "list", "delete", "list", "get", "get"]

    def test_nothing_is_read_twice_that_has_not_changed(self, world: World) -> None:
        for number in range(5):
            new = replace(a_new_run(uid=f"uid-{number}"), name=f"run-{number}")
            world.ended(new)
        world.time += 11
        world.look()
        store = WatchedStore(world.store)

        list(world.sweeper(store).look())

        assert [each.split()[0] for each in store.calls] == ["create", "list", "delete", "list"]


def expired(world: World) -> StoreKeys:
    keys = world.ended(steps=8)
    world.put(keys.blob("a" * 64))
    world.time += HOUR
    return keys


def deleted_live(world: World) -> StoreKeys:
    keys = world.begin(a_new_run(policy=DeletionPolicy.DELETE))
    world.take(keys).steps(8)
    world.known.uids.clear()
    return keys


def deleted_ended(world: World) -> StoreKeys:
    keys = world.ended(a_new_run(policy=DeletionPolicy.DELETE), steps=8)
    world.known.uids.clear()
    return keys


def never_begun(world: World) -> StoreKeys:
    keys = TestAHeadWithoutAName().orphan(world)
    world.time += HOUR
    return keys


def superseded_under_delete(world: World) -> StoreKeys:
    keys = world.begin(a_new_run(policy=DeletionPolicy.DELETE))
    world.take(keys).steps(8)
    name = world.runs().look_up("team", "triage")
    assert name is not None
    new = a_new_run(uid="uid-2", policy=DeletionPolicy.DELETE)
    world.known.uids = {"uid-2"}
    world.runs().supersede(name, world.head(keys), new)
    return keys


SCENES: Final = {
    "expired": (expired, NameState.EXPIRED),
    "deleted while live": (deleted_live, NameState.FREE),
    "deleted after its end": (deleted_ended, NameState.FREE),
    "never begun": (never_begun, NameState.FREE),
    "superseded under Delete": (superseded_under_delete, NameState.KEPT),
}


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("scene", SCENES)
def test_a_sweep_that_dies_anywhere_is_finished_by_the_next(scene: str, applied: bool) -> None:  # noqa: FBT001  a case
    make, state = SCENES[scene]
    died, number = True, 0
    while died:
        number += 1
        world = World()
        keys = make(world)
        others = [each for each in world.keys("team/runs/") if not each.startswith(keys.run)]
        try:
            world.sweep(dying(world.store, number, applied=applied))
        except Crashed:
            # Whoever dies has no memory left.
            world.memory = Memory()
            world.sweep()
        else:
            died = False

        assert world.keys(keys.run) == [], f"died at call {number}"
        assert world.name().state is state
        assert [each for each in world.keys("team/runs/") if not each.startswith(keys.run)] == others
    assert number > 10


@pytest.mark.req("C3")
def test_a_writer_that_wakes_at_any_point_of_a_deletion_cannot_bring_the_run_back() -> None:
    woke, number = True, 0
    while woke:
        number += 1
        world = World()
        keys = deleted_live(world)
        writer = Writer(world, world.head(keys).at)
        told = wake(world, writer, number)
        woke = bool(told)
        world.time += DAY
        world.sweep()
        world.sweep(orphans=True)

        assert world.keys() == [NAME_KEY], f"woke at call {number}: {told}"
        with pytest.raises((Fenced, RunDeleted)):
            writer.steps(1)
    assert number > 10


def wake(world: World, writer: Writer, at: int) -> list[str]:
    """Sweep, let the writer go on after so many calls, and return what it was told."""
    told: list[str] = []

    def go_on(number: int, _: str) -> None:
        if number == at:
            try:
                writer.steps(1)
            except (Fenced, RunDeleted) as error:
                told.append(type(error).__name__)
            else:
                told.append("committed")

    world.sweep(WatchedStore(world.store, after=go_on))
    return told


@pytest.mark.parametrize("every", [1, 2, 3, 5, 7, 11])
def test_a_live_writer_goes_on_whenever_a_sweep_comes_by(every: int) -> None:
    world = World()
    keys = world.begin()
    writer = world.take(keys)

    def commit(number: int, _: str) -> None:
        if number % every == 0:
            writer.steps(1)

    for _ in range(8):
        writer.steps(3)
        world.time += HOUR
        world.sweep(WatchedStore(world.store, after=commit))

    head = world.head(keys).at.head
    assert load(world.store, head).totals.steps_done == writer.at.head.totals.steps_done >= 24
