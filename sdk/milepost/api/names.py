"""Identities and the names built from them: run ids, step ids, idempotency keys, pod names, store keys.

Everything is a pure function of its arguments. The one source of randomness, `new_run_id`, takes its
entropy as an argument. A run id is never a resource's uid: a key that was deleted is never written again,
and a uid would come back when a backup of the cluster is restored.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from typing import Final

from milepost.errors import InvalidRun

__all__ = [
    "GROUP",
    "KIND",
    "LABEL_ATTEMPT",
    "LABEL_MANAGED_BY",
    "LABEL_RUN",
    "MANAGED_BY",
    "PLURAL",
    "VERSION",
    "StoreKeys",
    "branch_component",
    "check_name",
    "gate_component",
    "idempotency_key",
    "name_at",
    "new_run_id",
    "numbers_at",
    "pod_name",
    "run_at",
    "step_component",
    "step_id",
]

GROUP: Final = "milepost.dev"
VERSION: Final = "v1alpha1"
KIND: Final = "AgentRun"
PLURAL: Final = "agentruns"

LABEL_RUN: Final = "milepost.dev/run"
LABEL_ATTEMPT: Final = "milepost.dev/attempt"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "milepost"

Entropy = Callable[[int], bytes]
"""Returns that many random bytes, as `os.urandom` does."""

MAX_NAME: Final = 45
MAX_IDEMPOTENCY_KEY: Final = 64

_LABEL: Final = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_LABEL: Final = re.compile(_LABEL)
_RUN_ID: Final = re.compile("[a-z2-7]{20}")
_NAME_KEY: Final = re.compile(f"({_LABEL})/names/({_LABEL})")
_RUN_KEY: Final = re.compile(f"({_LABEL})/(?:runs|inbox)/({_RUN_ID.pattern})/.+", re.DOTALL)
_NUMBERS: Final = {"segments": 3, "bases": 2}
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")


def new_run_id(entropy: Entropy) -> str:
    """Return a fresh run id: 20 characters of `a-z2-7`, 100 bits of entropy."""
    return base64.b32encode(entropy(13)).decode().lower()[:20]


def check_name(name: str) -> str:
    """Return `name` if it can name a run: a DNS label of at most 45 characters.

    Raises InvalidRun otherwise.
    """
    if len(name) > MAX_NAME or not _DNS_LABEL.fullmatch(name):
        raise InvalidRun(
            "metadata.name",
            f"{name!r} must be a DNS label (a-z, 0-9 and '-', beginning and ending with a letter or digit) "
            f"of at most {MAX_NAME} characters",
        )
    return name


def _encoded(part: str) -> str:
    if _PLAIN.issuperset(part):
        return part
    return "".join(
        char if char in _PLAIN else "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
        for char in part
    )


def branch_component(number: int, key: str | int) -> str:
    """Return the component of one branch: `<n>:<key>`, n being the number of its `parallel` in its parent."""
    return f"{number}:{_encoded(str(key))}"


def step_component(name: str, *, key: str | int | None = None, number: int = 1) -> str:
    """Return the component of a step: `name`, `name#n` from the second of that name on, or `name=key`."""
    if key is not None:
        return f"{_encoded(name)}={_encoded(str(key))}"
    return _encoded(name) if number == 1 else f"{_encoded(name)}#{number}"


def gate_component(component: str) -> str:
    """Return the component of a gate, made from what a step in its place would have: no step has its like."""
    return f"@{component}"


def step_id(branch: str, component: str) -> str:
    """Return the step's id: the branch's path and the step's component, joined by a slash."""
    return f"{branch}/{component}" if branch else component


def idempotency_key(key_root: str, step: str, call: int = 1) -> str:
    """Return the key of a step's `call`-th effectful call: `<key root>/<step id>[/<n>]`.

    At most 64 ASCII characters: a longer one becomes the SHA-256 of itself, in hex.
    It holds no attempt, epoch, time or pod, so it is the same on every retry.
    """
    key = f"{key_root}/{step}" if call == 1 else f"{key_root}/{step}/{call}"
    return key if len(key) <= MAX_IDEMPOTENCY_KEY else hashlib.sha256(key.encode()).hexdigest()


def pod_name(run_name: str, resource_uid: str, attempt: int) -> str:
    """Return the executor pod's name: `<run>-<5 of hash(uid)>-<attempt>`.

    The hash keeps a run that was deleted and applied again from meeting its predecessor's pods.
    """
    digest = base64.b32encode(hashlib.sha256(resource_uid.encode()).digest()).decode().lower()[:5]
    return f"{run_name}-{digest}-{attempt}"


class StoreKeys:
    """The keys of one run (or of a namespace's names) below a store's prefix. Every key has a fixed depth."""

    def __init__(self, namespace: str, run_id: str = "") -> None:
        if not _DNS_LABEL.fullmatch(namespace):
            raise InvalidRun("metadata.namespace", f"{namespace!r} must be a DNS label")
        if run_id and not _RUN_ID.fullmatch(run_id):
            raise InvalidRun("runId", f"{run_id!r} must be 20 characters of a-z2-7")
        self.namespace = namespace
        self.run_id = run_id

    def name(self, name: str) -> str:
        """Key of the object that says which run a name stands for."""
        return f"{self.namespace}/names/{check_name(name)}"

    @property
    def run(self) -> str:
        """Prefix of everything that belongs to the run, with its slash."""
        return f"{self.namespace}/runs/{self.run_id}/"

    @property
    def inbox(self) -> str:
        """Prefix of what is said to the run from outside, with its slash."""
        return f"{self.namespace}/inbox/{self.run_id}/"

    def answer(self, gate: str) -> str:
        """Key of what opened a gate of the run."""
        return f"{self.inbox}{gate}"

    @property
    def head(self) -> str:
        """Key of the run's head, its only mutable object."""
        return f"{self.run}head"

    def segment(self, epoch: int, first: int, last: int, nonce: str) -> str:
        """Key of the sealed records `first` to `last`."""
        return f"{self.run}segments/{epoch}-{first}-{last}-{nonce}"

    def base(self, epoch: int, seq: int, nonce: str) -> str:
        """Key of the state folded up to record `seq`."""
        return f"{self.run}bases/{epoch}-{seq}-{nonce}"

    def blob(self, digest: str) -> str:
        """Key of a value stored by its SHA-256, in hex."""
        return f"{self.run}blobs/{digest}"


def name_at(key: str) -> tuple[str, str] | None:
    """Return the namespace and the name whose record has this key; None for every other key."""
    match = _NAME_KEY.fullmatch(key)
    return (match[1], match[2]) if match and len(match[2]) <= MAX_NAME else None


def run_at(key: str) -> tuple[str, str] | None:
    """Return the namespace and the id of the run whose object has this key; None for every other key."""
    match = _RUN_KEY.fullmatch(key)
    return (match[1], match[2]) if match else None


def numbers_at(key: str) -> tuple[int, ...] | None:
    """Return the numbers in the key of a segment or a base, in their order; None for every other key."""
    *numbers, nonce = key.rpartition("/")[2].split("-")
    plain = all(each.isascii() and each.isdecimal() for each in numbers)
    expected = _NUMBERS.get(key.rpartition("/")[0].rpartition("/")[2])
    return tuple(map(int, numbers)) if nonce and plain and len(numbers) == expected else None
