"""What the API server checks of an AgentRun beyond its types, as data: CEL rules and their messages.

Each rule hangs at the dotted path of a field; `[]` is an item of a list, `{}` a value of a map. Every
message names what is wrong and what to do instead, since it is all that a user gets to see. Which rules
there are is permanent: a manifest that was accepted once must stay acceptable.

The surprising one is the rule for `spec.inputs`, which stands at `spec` and goes there through `dyn`. CEL
cannot name a value of unknown type: a rule at `inputs` itself compares it field by field and lets a renamed
top-level key pass. Compared as a map of its own, every add, remove, change and rename is seen. What no rule
sees is a resource that was deleted and applied again, or a definition from which the rules were taken out;
for those the operator compares the spec digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from milepost.api.names import MAX_NAME
from milepost.api.resource import (
    DNS_LABEL,
    DNS_NAME,
    ENTRYPOINT,
    ENV_NAME,
    FIELD_PATH,
    KEY_NAME,
    LABEL_VALUE,
    MOUNT_PATH,
)

__all__ = ["NAME_RULE", "RULES", "UNIQUE_BY", "WORDS", "Rule"]


@dataclass(frozen=True)
class Rule:
    """A CEL expression that must hold, and what the user is told where it does not.

    `field` moves the complaint from the rule's own path to a field below it, as in `.inputs`.
    """

    expression: str
    message: str
    field: str = ""


WORDS: Final[Mapping[str, str]] = {
    DNS_LABEL: "must be a DNS label: a-z, 0-9 and '-', beginning and ending with a letter or digit",
    DNS_NAME: "must be an object's name: a-z, 0-9, '-' and '.', beginning and ending with a letter or digit",
    ENTRYPOINT: "must be package.module:name, as in triage.agent:run",
    ENV_NAME: "must be a variable's name: letters, digits and '_', not beginning with a digit",
    FIELD_PATH: "must be a field that a pod sees of itself: metadata.name, metadata.namespace, metadata.uid, "
    "metadata.labels['key'], metadata.annotations['key'], spec.nodeName, spec.serviceAccountName, "
    "status.hostIP or status.podIP",
    KEY_NAME: "must be a key of a Secret or ConfigMap: letters, digits, '-', '_' and '.'",
    LABEL_VALUE: "must be a label's value: letters, digits, '-', '_' and '.', beginning and ending with a "
    "letter or digit",
    MOUNT_PATH: "must be an absolute path below /, without ':', empty parts or '/' at its end",
}
"""Each pattern in words. A pattern is checked by a rule with these as its message, not by the schema, whose
message would be the regular expression."""

NAME_RULE: Final = Rule(
    f"size(self.metadata.name) <= {MAX_NAME} && self.metadata.name.matches('{DNS_LABEL}')",
    f"metadata.name {WORDS[DNS_LABEL]}, of at most {MAX_NAME} characters",
)

_IN_ANOTHER_RUN: Final = (
    "to change it, apply an AgentRun of another name, or delete this one and apply it anew"
)
_IN_THE_SAME_RUN: Final = (
    "to change it, delete the AgentRun and apply it again under the same name: the run goes on from there"
)
_ANEW: Final = "to start the run anew, delete the AgentRun and apply it with another spec.rerun"


def _immutable(field: str, instead: str) -> Rule:
    return Rule("self == oldSelf", f"{field} is immutable; {instead}")


def _only_upwards(path: str, field: str) -> Rule:
    return Rule(
        f"!has(self.{field}) || !has(oldSelf.{field}) || self.{field} >= oldSelf.{field}",
        f"{path}.{field} can only be raised, or taken out; {_IN_THE_SAME_RUN}",
        field=f".{field}",
    )


def _exactly_one(*fields: str) -> Rule:
    present = ", ".join(f"has(self.{field})" for field in fields)
    return Rule(f"[{present}].filter(x, x).size() == 1", f"give exactly one of {', '.join(fields)}")


_QUANTITY: Final = Rule("type(self) == int || isQuantity(self)", "must be a quantity, as in 500m, 2 or 4Gi")
_KEYS: Final = Rule(
    "self.all(key, key.matches("
    "'^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'))",
    "every key must be a name with an optional prefix, as in team or example.com/team",
)
_NO_RESERVED_KEYS: Final = Rule(
    "self.all(key, !key.startsWith('milepost.dev/'))", "the prefix milepost.dev/ is reserved"
)

RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "spec": (
        Rule(
            "dyn(self).inputs == dyn(oldSelf).inputs",
            f"spec.inputs is immutable; {_IN_ANOTHER_RUN}",
            field=".inputs",
        ),
    ),
    "spec.agent.entrypoint": (_immutable("spec.agent.entrypoint", _IN_ANOTHER_RUN),),
    "spec.goal": (_immutable("spec.goal", _IN_ANOTHER_RUN),),
    "spec.rerun": (_immutable("spec.rerun", _ANEW),),
    "spec.store": (_immutable("spec.store", _IN_ANOTHER_RUN),),
    "spec.checkpoint": (_immutable("spec.checkpoint", _IN_ANOTHER_RUN),),
    "spec.resume": (_immutable("spec.resume", _IN_THE_SAME_RUN),),
    "spec.limits": tuple(_only_upwards("spec.limits", limit) for limit in ("steps", "tokens", "costUSD")),
    "spec.retry": (_immutable("spec.retry", _IN_THE_SAME_RUN),),
    "spec.cancel": (Rule("self || !oldSelf", f"spec.cancel cannot be taken back; {_ANEW}"),),
    "spec.pod": (
        _immutable("spec.pod", _IN_THE_SAME_RUN),
        Rule(
            "!has(self.volumeMounts) || self.volumeMounts.all(mount, "
            "has(self.volumes) && self.volumes.exists(volume, volume.name == mount.name))",
            "every name must be one of spec.pod.volumes",
            field=".volumeMounts",
        ),
    ),
    "spec.pod.resources.requests{}": (_QUANTITY,),
    "spec.pod.resources.limits{}": (_QUANTITY,),
    "spec.pod.env[]": (
        Rule("!(has(self.value) && has(self.valueFrom))", "give value or valueFrom, not both"),
    ),
    "spec.pod.env[].name": (
        Rule("!self.startsWith('MILEPOST_')", "names that begin with MILEPOST_ are reserved"),
    ),
    "spec.pod.env[].valueFrom": (_exactly_one("secretKeyRef", "configMapKeyRef", "fieldRef"),),
    "spec.pod.envFrom[]": (_exactly_one("secretRef", "configMapRef"),),
    "spec.pod.envFrom[].prefix": (
        Rule("!self.startsWith('MILEPOST_')", "prefixes that begin with MILEPOST_ are reserved"),
    ),
    "spec.pod.volumes[]": (_exactly_one("secret", "configMap", "emptyDir", "persistentVolumeClaim"),),
    "spec.pod.volumes[].name": (
        Rule("!self.startsWith('milepost-')", "names that begin with milepost- are reserved"),
    ),
    "spec.pod.volumes[].emptyDir.sizeLimit": (_QUANTITY,),
    "spec.pod.volumeMounts[].mountPath": (
        Rule("!self.matches('/[.][.]?(/|$)')", "must not hold '.' or '..' as a part"),
        Rule(
            "self != '/etc/milepost' && !self.startsWith('/etc/milepost/')",
            "paths at and below /etc/milepost are reserved",
        ),
    ),
    "spec.pod.nodeSelector": (_KEYS,),
    "spec.pod.labels": (
        _KEYS,
        _NO_RESERVED_KEYS,
        Rule("!('app.kubernetes.io/managed-by' in self)", "app.kubernetes.io/managed-by is the operator's"),
    ),
    "spec.pod.annotations": (_KEYS, _NO_RESERVED_KEYS),
}

UNIQUE_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "spec.pod.env": ("name",),
    "spec.pod.volumes": ("name",),
    "spec.pod.volumeMounts": ("mountPath",),
    "status.conditions": ("type",),
}
"""Lists whose items have a name: two of one name are refused, and server-side apply merges by it."""
