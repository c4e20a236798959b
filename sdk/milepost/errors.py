"""Errors, sorted by what the catcher should do about them.

    MilepostError
    ├── StoreUnavailable    try again later; whether the last write was stored is not known
    ├── StoreRefused        a person has to change the store's configuration; says what to do
    │   ├── StoreOwnedElsewhere another cluster's prefix; choose another, or take it over on purpose
    │   └── StoreNotIsolated    the keys of a namespace's pods open other namespaces too
    ├── Fenced              stop now and write nothing; another writer owns the run
    ├── RunDeleted          stop now and write nothing; the run is gone
    ├── Damaged             stop and keep the bytes; a person has to look
    │   ├── Corrupt             an object is there and is not what was written
    │   ├── Missing             an object that the history names is gone
    │   └── RolledBack          the store went back to an older state, sound in itself
    ├── FormatTooNew        start a newer Milepost
    ├── ProtocolBreach      a bug in Milepost: two writers in one epoch; stop loudly
    ├── InvalidRun          tell the user which field of the manifest to change
    ├── CannotStart         tell the user what is wrong with the image or its inputs
    ├── AgentStuck          end the process; the agent's code does not let go of a step
    ├── RunHalted           end the process; why the run cannot go on is recorded already
    ├── RunRestarts         end the process; the next one begins the agent's code anew
    └── AgentError          raised into the author's code, or by it
        ├── StepFailed          a step used up its attempts
        ├── NotStorable         a value has no lossless form; says where in the value
        ├── KeyNeeded           give the step a key
        ├── Misuse              the author's code called something where it cannot work
        ├── Denied              a gate's answer was no
        │   └── Expired             nobody answered in time
        ├── TooFewInputs        a phase has less than it can begin with
        ├── RequirementNotMet   what a step requires is not there, so it was not tried
        ├── ArgumentsInvalid    arguments from a model do not fit the tool; says which and why
        ├── Permanent           raised by a step: do not try again
        └── NotApplied          raised by a tool: it certainly did not happen

Nothing here imports anything of Milepost, so that every layer can raise and catch the same classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "AgentError",
    "AgentStuck",
    "ArgumentsInvalid",
    "CannotStart",
    "Corrupt",
    "Damaged",
    "Denied",
    "Expired",
    "Fenced",
    "FormatTooNew",
    "InvalidRun",
    "KeyNeeded",
    "MilepostError",
    "Missing",
    "Misuse",
    "NotApplied",
    "NotStorable",
    "Permanent",
    "ProtocolBreach",
    "RequirementNotMet",
    "RolledBack",
    "RunDeleted",
    "RunHalted",
    "RunRestarts",
    "StepFailed",
    "StoreNotIsolated",
    "StoreOwnedElsewhere",
    "StoreRefused",
    "StoreUnavailable",
    "TooFewInputs",
]


class MilepostError(Exception):
    """Base of everything that Milepost raises on purpose."""


class StoreUnavailable(MilepostError):
    """The store did not give a clear answer before the deadline.

    Nothing is known to be lost, and nothing is known to be stored: who goes on
    must read the head first.
    """

    def __init__(self, key: str, *, waited: float, cause: str) -> None:
        of = f"{key}: " if key else ""  # a listing of everything has no key
        super().__init__(f"{of}no clear answer from the store within {waited:.0f} s; last: {cause}")
        self.key = key
        self.waited = waited
        self.cause = cause


class StoreRefused(MilepostError):
    """The store answered clearly that it will not do this, and trying again will not help.

    `reason` is stable and CamelCase, fit for a condition (`StoreForbidden`,
    `BucketMissing`, `CredentialsInvalid`, `StoreMisconfigured`); `advice` says what to do.
    """

    def __init__(self, reason: str, message: str, *, advice: str) -> None:
        super().__init__(f"{message}; {advice}")
        self.reason = reason
        self.message = message
        self.advice = advice


class StoreOwnedElsewhere(StoreRefused):
    """The prefix is another cluster's, or another machine's, so nothing in it may be touched."""

    def __init__(self, uri: str, *, found: str, ours: str) -> None:
        super().__init__(
            "StoreOwnedElsewhere",
            f"{uri} belongs to {found}, and this is {ours}",
            advice=(
                "use another prefix; or, if that owner works there no more, take it over: "
                f"list {found} in the store's recoverFrom, or give `milepost run` --recover-from {found}"
            ),
        )
        self.found = found
        self.ours = ours


class StoreNotIsolated(StoreRefused):
    """The keys of this namespace's pods open what is not theirs. `opened` says what, for people."""

    def __init__(self, uri: str, namespace: str, opened: Sequence[str]) -> None:
        super().__init__(
            "StoreNotIsolated",
            f"{uri}: the keys that pods of namespace {namespace} have can also {', '.join(opened)}",
            advice=(
                f"give the namespace keys that open nothing but {namespace}/ below the store's prefix; or, "
                "where all namespaces may read and change each other's runs, set isolation: none for the "
                "store"
            ),
        )
        self.namespace = namespace
        self.opened = tuple(opened)


class Fenced(MilepostError):
    """Another writer has taken over the run, so this one must stop.

    This is not a failure of the run: its new owner carries on from the last
    committed step. Whatever this process still holds in memory is stale.
    """

    def __init__(self, run_id: str, *, held_epoch: int, seen_epoch: int) -> None:
        super().__init__(f"run {run_id}: held epoch {held_epoch}, but the store is at {seen_epoch}")
        self.run_id = run_id
        self.held_epoch = held_epoch
        self.seen_epoch = seen_epoch


class RunDeleted(MilepostError):
    """The run's head is gone or marked as being deleted; writing it again would bring it back."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} has been deleted from the store")
        self.run_id = run_id


class Damaged(MilepostError):
    """The stored history cannot be trusted as a whole; its bytes must be kept as they are."""

    def __init__(self, key: str, what: str) -> None:
        super().__init__(f"{key}: {what}")
        self.key = key
        self.what = what


class Corrupt(Damaged):
    """An object is there, but it is not what was written."""


class Missing(Damaged):
    """An object that the history names is not there."""


class RolledBack(Damaged):
    """The store is in an older state than one that it had before, as after a backup was restored.

    What it holds is sound, but acknowledged records are gone: steps would run again.
    """


class FormatTooNew(MilepostError):
    """The object was written by a newer Milepost than this one."""

    def __init__(self, key: str, *, found: int, known: int, kind: str = "object") -> None:
        super().__init__(
            f"{key}: the {kind} has format {found}, which is newer than {known}, the newest that this "
            "version reads"
        )
        self.key = key
        self.kind = kind
        self.found = found
        self.known = known


class ProtocolBreach(MilepostError):
    """Two writers share one epoch. It cannot happen unless Milepost itself is wrong."""


class InvalidRun(MilepostError):
    """A field of the manifest cannot be used as it is."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class CannotStart(MilepostError):
    """The agent cannot begin: its entrypoint, its version, its inputs or the environment do not fit.

    `reason` is stable and CamelCase, fit for a condition (`EntrypointNotFound`,
    `EntrypointNotAgent`, `InputsInvalid`, `VersionMismatch`, `EnvironmentInvalid`).
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class RunHalted(MilepostError):
    """The run cannot go on with this image, and its record says so: a person, or another image, has to help.

    `reason` is stable and CamelCase, as it stands in the record.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class RunRestarts(MilepostError):
    """A person has decided that the run begins anew, with what is recorded as given facts."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} begins anew, with what is recorded as given facts")
        self.run_id = run_id


class AgentStuck(MilepostError):
    """The agent's code does not let go of a step that should have ended; only the process's end stops it."""


class AgentError(MilepostError):
    """Base of what reaches, or comes from, the author's code."""


class StepFailed(AgentError):
    """A step used up its attempts. Raised alike when it happens and when it is read from the log.

    `kind` is the qualified name of the last try's error, `package.module.QualName`; it is `milepost.PodLost`
    where the last try was lost with its pod.
    """

    def __init__(self, step: str, kind: str, message: str, attempts: int) -> None:
        tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        super().__init__(f"step {step} failed after {tries}: {kind}: {message}")
        self.step = step
        self.kind = kind
        self.message = message
        self.attempts = attempts

    def of(self, error: type[BaseException]) -> bool:
        """Tell whether the step's last error was of exactly this class, by its qualified name."""
        return self.kind == f"{error.__module__}.{error.__qualname__}"


class NotStorable(AgentError):
    """A value has no form in the log that reads back equal in type and value.

    `path` leads to the part at fault, as in `result.items[3].when`.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} cannot be stored: {why}")
        self.path = path
        self.why = why


class KeyNeeded(AgentError):
    """Only a key can say which one it is: of two steps of a name that run at once, or of two events."""

    def __init__(self, step: str, message: str = "") -> None:
        super().__init__(
            message
            or f"step {step!r} is started a second time while the first is still running in the same branch; "
            f'give each its own key: run.step("{step}", ..., key=...), or use run.parallel'
        )
        self.step = step


class Misuse(AgentError):
    """The author's code called Milepost where the call cannot keep its promise."""


class Permanent(AgentError):
    """Raise this in a step to say that another attempt would fail in the same way."""


class NotApplied(AgentError):
    """Raise this in a tool to say that it certainly did not happen, so that it may be tried again."""


class Denied(AgentError):
    """The answer at a gate was no. `decision` says who gave it, when and why."""

    def __init__(self, gate: str, decision: Any) -> None:
        said = f": {decision.reason}" if decision.reason else ""
        super().__init__(f"gate {gate} was denied by {decision.by or 'nobody'}{said}")
        self.gate = gate
        self.decision = decision


class Expired(Denied):
    """Nobody answered at a gate before its deadline, which counts as a no."""

    def __init__(self, gate: str, decision: Any) -> None:
        super().__init__(gate, decision)
        self.args = (f"nobody answered at gate {gate} before its deadline",)


class TooFewInputs(AgentError):
    """A phase has fewer inputs than it can begin with. `missing` names those that are not there."""

    def __init__(self, group: str, *, have: int, need: int, missing: Sequence[str]) -> None:
        shown = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")  # noqa: PLR2004  (enough to see)
        lacking = f"; there is nothing of {shown}" if missing else ""
        super().__init__(f"phase {group} has {have} inputs and needs {need}{lacking}")
        self.group = group
        self.have = have
        self.need = need
        self.missing = tuple(missing)


class RequirementNotMet(AgentError):
    """What a step requires is not there, so its function was not called."""


class ArgumentsInvalid(AgentError):
    """Arguments that a model gave do not fit the tool. The message is fit to be handed back to the model.

    `faults` are all of them: the path of the argument, and what is wrong with it.
    """

    def __init__(self, tool: str, faults: Sequence[tuple[str, str]]) -> None:
        listed = "; ".join(f"{path}: {why}" if path else why for path, why in faults)
        super().__init__(f"the arguments do not fit tool {tool}: {listed}")
        self.tool = tool
        self.faults = tuple(faults)
