"""The AgentRun resource as types: the one source of the CRD, of the chart's copy and of every reader.

Field names are permanent once they are here, so only fields that work are. Every string and list has a
maximum, because the API server prices its validation rules by the largest value that can occur. What is
immutable is said by `milepost.api.validation`, and why each such field is required or has a default by
`milepost.api.schema`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

__all__ = [
    "AgentRun",
    "AgentSpec",
    "CheckpointSpec",
    "CheckpointStatus",
    "Condition",
    "DeletionPolicy",
    "Granularity",
    "LimitsSpec",
    "OnEnvironmentChange",
    "Phase",
    "PodSpec",
    "PodStatus",
    "ResumeSpec",
    "RetrySpec",
    "RunSpec",
    "RunStatus",
    "StoreSpec",
    "Strategy",
]

MAX_RESULT_BYTES: Final = 4096
MAX_INPUT_BYTES: Final = 128 * 1024
MAX_EXACT_INTEGER: Final = 2**53
"""Integers from here on lose digits in JSON readers that hold numbers as doubles; the API server is one."""

DNS_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
ENV_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
MOUNT_PATH: Final = r"^(/[^/:]+)+$"
KEY_NAME: Final = r"^[-._a-zA-Z0-9]+$"
ENTRYPOINT: Final = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$"
FIELD_PATH: Final = (
    r"^(metadata\.(name|namespace|uid|(labels|annotations)\['[^']+'\])"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIP|podIP))$"
)

Label = Annotated[str, Field(max_length=63, pattern=DNS_LABEL)]
ObjectName = Annotated[str, Field(max_length=253, pattern=DNS_NAME)]
ShortText = Annotated[str, Field(max_length=253)]


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Quantity = Annotated[
    str, BeforeValidator(_as_text), WithJsonSchema({"x-kubernetes-int-or-string": True, "maxLength": 32})
]
"""An amount as Kubernetes writes it (500m, 4Gi, 2); a bare number is as good as its text."""


RETENTION_S: Final = 30 * 24 * 3600
"""How long a run's objects are kept after its end, in seconds, where its manifest does not say."""


class Phase(StrEnum):
    """Where a run is. Suspended is the operator's alone and Deleting the store's; the others are both's."""

    PENDING = "Pending"
    RUNNING = "Running"
    WAITING = "Waiting"
    SUSPENDED = "Suspended"
    HALTED = "Halted"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    DELETING = "Deleting"

    @property
    def terminal(self) -> bool:
        """Whether nothing may ever follow."""
        return self in _TERMINAL


_TERMINAL: Final = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED, Phase.DELETING})


class Model(BaseModel):
    """A part of the resource: camelCase outside, unknown fields refused, never changed once made."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, use_enum_values=False
    )


class AgentSpec(Model):
    """What to run."""

    image: Annotated[str, Field(min_length=1, max_length=512, description="Image that holds the agent.")]
    entrypoint: Annotated[
        str,
        Field(
            max_length=253,
            pattern=ENTRYPOINT,
            description="Where the agent is: package.module:name.",
        ),
    ]
    version: Annotated[
        str,
        Field(max_length=64, description="What the image's @agent(version=...) must say; empty: anything."),
    ] = ""


class StoreSpec(Model):
    """Which of the administrator's stores keeps the run's checkpoints."""

    name: Annotated[Label, Field(description="Name of a store in the operator's stores file.")] = "default"


class Granularity(StrEnum):
    """What is recorded at once."""

    TOOL_CALL = "ToolCall"
    STEP = "Step"
    PHASE = "Phase"

    @property
    def in_code(self) -> str:
        """How agents and the command line write it."""
        return {"ToolCall": "tool-call", "Step": "step", "Phase": "phase"}[self.value]


class CheckpointSpec(Model):
    """How the run is recorded."""

    every_steps: Annotated[
        int,
        Field(
            ge=1,
            le=1000,
            description="Record finished steps this many at a time; a lost pod loses one less than that.",
        ),
    ] = 1

    granularity: Annotated[
        Granularity,
        Field(description="What is recorded at once where the agent's code does not say."),
    ] = Granularity.STEP


class Strategy(StrEnum):
    """How a run goes on after its pod was lost."""

    EXACT = "Exact"
    REVALIDATE = "Revalidate"
    RESTART_WITH_CONTEXT = "RestartWithContext"


class OnEnvironmentChange(StrEnum):
    """What to do where a resume finds another environment that matters."""

    HALT = "Halt"
    ACCEPT = "Accept"
    REVALIDATE = "Revalidate"
    RESTART_WITH_CONTEXT = "RestartWithContext"


class ResumeSpec(Model):
    """How the run goes on after its pod was lost."""

    strategy: Annotated[
        Strategy,
        Field(
            description="Exact: at the first open step. Revalidate: recorded results are checked again by "
            "the agent's own checks. RestartWithContext: anew, with what is recorded as given facts."
        ),
    ] = Strategy.EXACT
    on_environment_change: Annotated[
        OnEnvironmentChange,
        Field(description="Where the agent's version, its tools or what it declares have changed."),
    ] = OnEnvironmentChange.HALT


class LimitsSpec(Model):
    """What the run may use up, counted over all of its pods. A run that reaches a limit halts."""

    steps: Annotated[int, Field(ge=1, le=10**9, description="Finished steps.")] | None = None
    tokens: Annotated[int, Field(ge=1, le=10**15, description="Tokens of models, in and out.")] | None = None
    cost_usd: Annotated[
        float | None,
        Field(alias="costUSD", ge=0, le=10**9, description="Cost of models, in US dollars."),
    ] = None


class DeletionPolicy(StrEnum):
    """What becomes of a run's checkpoints when its AgentRun is deleted."""

    RETAIN = "Retain"
    DELETE = "Delete"


class RetrySpec(Model):
    """How often what fails is tried again. Disruptions are never counted here."""

    step_attempts: Annotated[int, Field(ge=1, le=100, description="Attempts of one step.")] = 3
    executor_failures: Annotated[
        int, Field(ge=0, le=100, description="Pods that may fail by the agent's own fault, in all.")
    ] = 3
    out_of_memory: Annotated[
        int, Field(ge=0, le=100, description="Pods that may run out of memory at one step.")
    ] = 3


class KeyRef(Model):
    """One key of a Secret or ConfigMap in the run's namespace."""

    name: ObjectName
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=KEY_NAME)]
    optional: bool = False


class FieldRef(Model):
    """A field of the pod itself."""

    field_path: Annotated[str, Field(max_length=253, pattern=FIELD_PATH)]


class EnvVarSource(Model):
    """Where a variable's value comes from: exactly one of these."""

    secret_key_ref: KeyRef | None = None
    config_map_key_ref: KeyRef | None = None
    field_ref: FieldRef | None = None


class EnvVar(Model):
    """One environment variable of the agent. The prefix MILEPOST_ is reserved."""

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=ENV_NAME)]
    value: Annotated[str, Field(max_length=4096)] | None = None
    value_from: EnvVarSource | None = None


class ObjectRef(Model):
    """A Secret or ConfigMap in the run's namespace."""

    name: ObjectName
    optional: bool = False


class EnvFromSource(Model):
    """All keys of a Secret or ConfigMap as environment variables: exactly one of the two."""

    secret_ref: ObjectRef | None = None
    config_map_ref: ObjectRef | None = None
    prefix: Annotated[str, Field(max_length=64)] = ""


class SecretVolume(Model):
    """A Secret as files."""

    secret_name: ObjectName
    optional: bool = False


class ConfigMapVolume(Model):
    """A ConfigMap as files."""

    name: ObjectName
    optional: bool = False


class EmptyDirVolume(Model):
    """Scratch space that is gone with the pod."""

    size_limit: Quantity | None = None
    medium: Annotated[str, Field(max_length=16, pattern="^(|Memory)$")] = ""


class ClaimVolume(Model):
    """A PersistentVolumeClaim of the run's namespace."""

    claim_name: ObjectName
    read_only: bool = False


class Volume(Model):
    """A volume of a kind that cannot reach outside the run's namespace: exactly one source."""

    name: Label
    secret: SecretVolume | None = None
    config_map: ConfigMapVolume | None = None
    empty_dir: EmptyDirVolume | None = None
    persistent_volume_claim: ClaimVolume | None = None


class VolumeMount(Model):
    """Where a volume appears. /etc/milepost is reserved."""

    name: Label
    mount_path: Annotated[str, Field(min_length=1, max_length=512, pattern=MOUNT_PATH)]
    sub_path: Annotated[str, Field(max_length=512)] = ""
    read_only: bool = False


class Toleration(Model):
    """A taint that the pod accepts."""

    key: ShortText = ""
    operator: Annotated[str, Field(max_length=16, pattern="^(Exists|Equal)$")] = "Equal"
    value: ShortText = ""
    effect: Annotated[str, Field(max_length=32, pattern="^(|NoSchedule|PreferNoSchedule|NoExecute)$")] = ""
    toleration_seconds: Annotated[int, Field(ge=0)] | None = None


Quantities = Annotated[dict[str, Quantity], Field(max_length=16)]
LabelMap = Annotated[
    dict[str, Annotated[str, Field(max_length=63, pattern=LABEL_VALUE)]], Field(max_length=64)
]
AnnotationMap = Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=64)]


class Resources(Model):
    """Requests and limits of the executor's container."""

    requests: Quantities = Field(default_factory=dict)
    limits: Quantities = Field(default_factory=dict)


class PodSpec(Model):
    """What of the executor's pod can be chosen: a closed list, never a patch."""

    resources: Resources = Field(default_factory=Resources)
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64)] = ()
    env_from: Annotated[tuple[EnvFromSource, ...], Field(max_length=16)] = ()
    volumes: Annotated[tuple[Volume, ...], Field(max_length=16)] = ()
    volume_mounts: Annotated[tuple[VolumeMount, ...], Field(max_length=16)] = ()
    node_selector: LabelMap = Field(default_factory=dict)
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = ()
    priority_class_name: Annotated[str, Field(max_length=253)] = ""
    runtime_class_name: Annotated[str, Field(max_length=253)] = ""
    service_account_name: Annotated[str, Field(max_length=253)] = ""
    image_pull_secrets: Annotated[tuple[ObjectName, ...], Field(max_length=8)] = ()
    image_pull_policy: Annotated[str, Field(max_length=16, pattern="^(|Always|IfNotPresent|Never)$")] = ""
    labels: LabelMap = Field(default_factory=dict)
    annotations: AnnotationMap = Field(default_factory=dict)
    grace_period_seconds: Annotated[
        int, Field(ge=1, le=3600, description="What a step in flight has on SIGTERM, in seconds.")
    ] = 60


class RunSpec(Model):
    """What the user wants."""

    agent: AgentSpec
    goal: Annotated[str, Field(max_length=8192, description="What the run is for, in words: Run.goal.")] = ""
    inputs: Annotated[dict[str, Any], Field(max_length=256, description="The agent's keyword arguments.")] = (
        Field(default_factory=dict)
    )
    rerun: Annotated[
        str, Field(max_length=63, description="Another value starts a finished run anew under its name.")
    ] = ""
    store: StoreSpec = Field(default_factory=StoreSpec)
    checkpoint: CheckpointSpec = Field(default_factory=CheckpointSpec)
    resume: ResumeSpec = Field(default_factory=ResumeSpec)
    limits: LimitsSpec = Field(default_factory=LimitsSpec)
    retry: RetrySpec = Field(default_factory=RetrySpec)
    deletion_policy: Annotated[
        DeletionPolicy,
        Field(description="What becomes of the run's checkpoints when this AgentRun is deleted."),
    ] = DeletionPolicy.RETAIN
    retention_seconds: Annotated[
        int,
        Field(ge=0, le=10 * 366 * 24 * 3600, description="How long checkpoints are kept after the end."),
    ] = RETENTION_S
    suspend: Annotated[bool, Field(description="Hold the run: no pod, nothing lost.")] = False
    cancel: Annotated[bool, Field(description="End the run as Cancelled. It cannot be taken back.")] = False
    pod: PodSpec = Field(default_factory=PodSpec)


class Condition(Model):
    """A condition as Kubernetes has them."""

    type: Annotated[str, Field(max_length=316)]
    status: Annotated[str, Field(max_length=16, pattern="^(True|False|Unknown)$")]
    reason: Annotated[str, Field(max_length=128)]
    message: Annotated[str, Field(max_length=2048)] = ""
    last_transition_time: Annotated[str, Field(max_length=32)]
    observed_generation: int = 0


class PodStatus(Model):
    """The pod that the last pass saw or made."""

    name: Annotated[str, Field(max_length=253)] = ""
    node: Annotated[str, Field(max_length=253)] = ""


class CheckpointStatus(Model):
    """Where the run's checkpoint is and how far it goes."""

    uri: Annotated[str, Field(max_length=1024)] = ""
    seq: int = 0
    epoch: int = 0
    digest: Annotated[str, Field(max_length=64)] = ""


Counts = Annotated[dict[str, int], Field(max_length=32)]


class RunStatus(Model):
    """What the operator saw. Only ever written through the status subresource."""

    observed_generation: int = 0
    phase: Phase | None = None
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()
    progress: Annotated[str, Field(max_length=64, description="Finished steps of those expected.")] = ""
    attempt: Annotated[int, Field(description="Number of the newest pod.")] = 0
    run_id: Annotated[str, Field(max_length=20)] = ""
    pod: PodStatus = Field(default_factory=PodStatus)
    disruptions: Annotated[Counts, Field(description="Pods lost through no fault of the agent.")] = Field(
        default_factory=dict
    )
    failures: Annotated[Counts, Field(description="Pods lost by the agent's own fault.")] = Field(
        default_factory=dict
    )
    start_time: Annotated[str, Field(max_length=32)] | None = None
    completion_time: Annotated[str, Field(max_length=32)] | None = None
    result: Annotated[Any, Field(description="The agent's result, where it is at most 4 KiB.")] = None
    result_ref: Annotated[str, Field(max_length=1024, description="Where a larger result is.")] = ""
    checkpoint: CheckpointStatus = Field(default_factory=CheckpointStatus)


class AgentRun(Model):
    """A run as the API server keeps it: what the operator reads of it, with the rest left out."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, use_enum_values=False
    )

    name: str
    namespace: str
    uid: str
    generation: int = 1
    generate_name: str = ""
    deletion_timestamp: str | None = None
    spec: RunSpec
    status: RunStatus = Field(default_factory=RunStatus)
