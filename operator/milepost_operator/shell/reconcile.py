"""One pass over one run: observe, plan, act, write the status once.

It decides nothing itself. A first look comes from the caches; where the plan would change anything, the same
is looked up again at its sources, in the order resource, pods, head, and planned anew. The order matters: a
head that is read after a pod was seen to end holds all that the pod recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import structlog

from milepost.api.digest import spec_digest
from milepost.api.names import pod_name
from milepost.api.resource import AgentRun, Phase
from milepost.checkpoint.runs import Stale
from milepost.errors import InvalidRun, MilepostError
from milepost_operator.core.conditions import PROGRESS_FIELDS, status_of
from milepost_operator.core.executor_pod import check_run, executor_pod
from milepost_operator.core.observation import Observation, StoreProblem
from milepost_operator.core.plan import AT_ONCE, CreatePod, DeletePod, Plan
from milepost_operator.core.reading import read_pod, read_run
from milepost_operator.core.rules import plan
from milepost_operator.shell.cache import Cache, RunKey
from milepost_operator.shell.cluster import AlreadyExists, ApiError, Cluster, Conflict, NotFound, Unreachable
from milepost_operator.shell.events import Teller
from milepost_operator.shell.nodes import Nodes
from milepost_operator.shell.queue import Again
from milepost_operator.shell.stores import NotYet, Recorded, Stores, as_problem

__all__ = ["Reconciler"]

# In case that whoever finds it out forgets to say so.
_STORE_AGAIN = timedelta(seconds=2)

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Look:
    """An observation, and what of the raw world is needed to act on it."""

    seen: Observation
    raw: dict[str, Any]
    recorded: Recorded


class _PodRefused(Exception):
    """A pod could not be made; the run's status says why."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class _StoreFailed(Exception):
    """The run's record could not be changed; the run's status says why."""

    def __init__(self, problem: StoreProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Reconciler:
    """Brings one run a step closer to what its spec asks for."""

    def __init__(
        self,
        cluster: Cluster,
        stores: Stores,
        cache: Cache,
        nodes: Nodes,
        *,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
        write_progress_every: float,
    ) -> None:
        self._cluster = cluster
        self._stores = stores
        self._cache = cache
        self._nodes = nodes
        self._clock = clock
        self._monotonic = monotonic
        self._write_every = write_progress_every
        self._written: dict[RunKey, float] = {}
        self._teller = Teller(cluster)

    async def __call__(self, key: RunKey) -> Again:
        """Make one pass, and say when the next one is wanted. Never raises: one run must not stop all."""
        try:
            return await self._pass(key)
        except (Conflict, Stale) as error:
            log.info("seen too late", run=str(key), error=str(error))
            await self._refresh(key)
            return Again(AT_ONCE)
        except NotYet:
            return Again(_STORE_AGAIN)
        except (ApiError, Unreachable, MilepostError) as error:
            log.warning("pass failed", run=str(key), error=str(error))
            return Again(retry=True)
        except Exception:
            # A bug that one run's state brings out: it is reported, and tried again later and later.
            log.exception("pass failed by a bug", run=str(key))
            return Again(retry=True)

    async def _pass(self, key: RunKey) -> Again:
        raw = self._cache.run(key)
        if raw is None:
            self._forget(key)
            return Again()
        look = await self._look(key, raw, live=False)
        decided = plan(look.seen)
        if decided.actions or decided.doubted:
            fresh = await self._cluster.get_run(*key)
            if fresh is None:
                self._cache.drop_run(key, raw["metadata"]["uid"])
                return Again(AT_ONCE)
            self._cache.put_run(fresh)
            self._cache.set_pods(key, await self._cluster.list_pods(*key))
            look = await self._look(key, fresh, live=True)
            decided = plan(look.seen)
            if _changes_record(decided) and not await self._is_still(key, look.seen.run.uid):
                return Again(AT_ONCE)
        return await self._carry_out(key, look, decided)

    async def _is_still(self, key: RunKey, uid: str) -> bool:
        """Tell whether the resource is there still: the record, which was read after it, may be another's.

        Whoever changes the name for a resource that comes later than this answer is refused by the ETag.
        """
        raw = await self._cluster.get_run(*key)
        return raw is not None and raw["metadata"]["uid"] == uid

    async def _carry_out(self, key: RunKey, look: _Look, decided: Plan) -> Again:
        try:
            await self._act(look, decided)
        except _PodRefused as refused:
            decided = Plan(Phase.PENDING, refused.reason, refused.message, tell=decided.tell, retry=True)
        except _StoreFailed as failed:
            look = replace(look, seen=replace(look.seen, store_problem=failed.problem))
            decided = replace(plan(look.seen), actions=())
        late = await self._write(key, look, decided)
        for told in decided.tell:
            await self._teller.tell(look.seen.run, told, look.seen.now)
        return Again(decided.look_again_in if late is None else late, decided.retry)

    def _forget(self, key: RunKey) -> None:
        self._stores.forget(key)
        self._written.pop(key, None)

    async def _refresh(self, key: RunKey) -> None:
        try:
            fresh = await self._cluster.get_run(*key)
        except (ApiError, Unreachable) as error:
            log.warning("resource not read", run=str(key), error=str(error))
            return
        if fresh is not None:
            self._cache.put_run(fresh)

    async def _look(self, key: RunKey, raw: dict[str, Any], *, live: bool) -> _Look:
        run, invalid = read_run(raw)
        digest = ""
        if not invalid:
            try:
                check_run(run)
                digest = spec_digest(run.spec)
            except InvalidRun as error:
                invalid = str(error)
        pods = list(self._cache.pods(key))
        touched = self._cache.take_touched(key)
        problem: StoreProblem | None = None
        recorded = Recorded()
        # The first status comes before anything slow, and an invalid spec or a reported end needs no store.
        if not invalid and _needs_store(run):
            found = await self._record(run, afresh=live, touched=touched)
            problem, recorded = (found, recorded) if isinstance(found, StoreProblem) else (None, found)
        run_id = recorded.name.record.run_id if recorded.name else run.status.run_id
        found_pods = (read_pod(pod, run.uid, run_id, gone=gone) for pod, gone in pods)
        silence = self._nodes.silence()
        seen = Observation(
            run=run,
            now=self._clock(),
            digest=digest,
            invalid=invalid,
            name=recorded.name.record if recorded.name else None,
            head=recorded.head.summary if recorded.head else None,
            pods=tuple(sorted((pod for pod in found_pods if pod), key=lambda pod: (pod.attempt, pod.name))),
            store_problem=problem,
            store_uri=self._stores.uri(run),
            silent_nodes=silence.nodes,
            disturbed=silence.disturbed,
            cluster=self._stores.cluster_id,
            answered=await self._answered(run, recorded),
        )
        return _Look(seen, raw, recorded)

    async def _record(self, run: AgentRun, *, afresh: bool, touched: bool) -> Recorded | StoreProblem:
        if (barred := self._stores.problem(run)) is not None:
            return barred
        try:
            return await self._stores.read(run, afresh=afresh, touched=touched)
        except MilepostError as error:
            problem = as_problem(error)
            if problem is None:
                raise
            return problem

    async def _answered(self, run: AgentRun, recorded: Recorded) -> bool:
        """Tell whether a gate that the run stands at has its answer; what cannot be read is read later."""
        if recorded.head is None or recorded.head.summary.phase not in (Phase.WAITING, Phase.HALTED):
            return False
        try:
            return await self._stores.answered(run, recorded.head, self._clock())
        except MilepostError as error:
            if as_problem(error) is None:
                raise
            log.warning("inbox not read", run=f"{run.namespace}/{run.name}", error=str(error))
            return False

    async def _act(self, look: _Look, decided: Plan) -> None:
        seen = look.seen
        for action in decided.actions:
            match action:
                case CreatePod():
                    await self._create(seen, action)
                case DeletePod(name, uid, why):
                    log.info("deleting pod", run=_named(seen), pod=name, why=why)
                    await self._cluster.delete_pod(seen.run.namespace, name, uid)
                case _:
                    log.info("changing the record", run=_named(seen), action=repr(action))
                    try:
                        await self._stores.act(seen.run, seen.digest, action, look.recorded)
                    except Stale:
                        raise
                    except MilepostError as error:
                        problem = as_problem(error)
                        if problem is None:
                            raise
                        raise _StoreFailed(problem) from error

    async def _create(self, seen: Observation, create: CreatePod) -> None:
        run = seen.run
        assert seen.name is not None
        pod = executor_pod(run, seen.name.run_id, create, self._stores.access(run))
        log.info("creating pod", run=_named(seen), pod=pod["metadata"]["name"], attempt=create.attempt)
        try:
            made = await self._cluster.create_pod(run.namespace, pod)
        except AlreadyExists as error:
            name = pod_name(run.name, run.uid, create.attempt)
            found = await self._cluster.get_pod(run.namespace, name)
            if found is None or read_pod(found, run.uid, "") is None:
                message = f"there is a pod {name} that does not belong to this run; delete it"
                raise _PodRefused("PodNameTaken", message) from error
            made = found
        except ApiError as error:
            # Conflict is left to the pass: nothing was made, and it looks again.
            if isinstance(error, Conflict):
                raise
            raise _PodRefused("PodRefused", f"the API server refused the pod: {error.message}") from error
        self._cache.put_pod(made)

    async def _write(self, key: RunKey, look: _Look, decided: Plan) -> timedelta | None:
        """Write the status if it changed; return how long a mere step of progress has to wait, if so."""
        if decided.untouched:
            return None
        before = {name: part for name, part in (look.raw.get("status") or {}).items() if part is not None}
        after = {name: part for name, part in status_of(look.seen, decided).items() if part is not None}
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        if not changed:
            return None
        since = self._monotonic() - self._written.get(key, float("-inf"))
        if changed <= PROGRESS_FIELDS and since < self._write_every:
            left = timedelta(seconds=self._write_every - since)
            return min(left, decided.look_again_in or left)
        version = look.raw["metadata"]["resourceVersion"]
        try:
            written = await self._cluster.write_status(*key, version, after)
        except NotFound:
            return AT_ONCE
        self._written[key] = self._monotonic()
        self._cache.put_run(written)
        return None


def _changes_record(decided: Plan) -> bool:
    return any(not isinstance(action, CreatePod | DeletePod) for action in decided.actions)


def _needs_store(run: AgentRun) -> bool:
    status = run.status
    ended = status.phase is not None and status.phase.terminal
    # How long its checkpoints are kept may be changed after the end as well.
    reported = ended and status.observed_generation == run.generation
    return bool(status.observed_generation or status.phase) and not reported


def _named(seen: Observation) -> str:
    return f"{seen.run.namespace}/{seen.run.name}"
