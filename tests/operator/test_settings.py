"""Settings and the stores file: what they say, and what stops the operator with a clear message."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.checkpoint.s3 import S3Config
from milepost_operator.core.executor_pod import StoreAccess
from milepost_operator.core.observation import StoreProblem
from milepost_operator.shell.settings import BadSettings, Settings, kopf_settings, read_settings
from milepost_operator.shell.stores_file import StoreEntry, read_stores

STORES = """
stores:
  default:
    endpoint: http://10.0.0.1:8333
    bucket: checkpoints
    prefix: /milepost/
    region: eu-central-1
    allowedNamespaces: ["*"]
    credentials: {secretName: store-keys}
    isolation: none
    recoverFrom: [cluster-0]
  aws: {bucket: theirs, allowedNamespaces: [team-a]}
"""


def test_an_empty_environment_gives_the_defaults() -> None:
    assert read_settings({}) == Settings()


def test_settings_come_from_the_environment() -> None:
    settings = read_settings(
        {
            "MILEPOST_STORES": "/s.yaml",
            "MILEPOST_STORE_CREDENTIALS": "/c",
            "MILEPOST_NAMESPACES": "team-b, team-a",
            "MILEPOST_HEALTH_PORT": "9090",
            "MILEPOST_RELEASE_NAMESPACE": "milepost",
            "MILEPOST_LOG_LEVEL": "debug",
            "MILEPOST_STORE_SWEEP_SECONDS": "0",
        }
    )

    assert settings == Settings(
        Path("/s.yaml"), Path("/c"), ("team-a", "team-b"), 9090, "milepost", "DEBUG", store_sweep_s=0
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MILEPOST_LOG_LEVEL", "LOUD"),
        ("MILEPOST_HEALTH_PORT", "http"),
        ("MILEPOST_STORE_SWEEP_SECONDS", "59"),
        ("MILEPOST_STORE_SWEEP_SECONDS", "soon"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(BadSettings, match=name):
        read_settings({name: value})


def test_stores_are_read_with_what_executors_and_the_operator_need() -> None:
    stores = read_stores(STORES)
    entry = stores.entry("default", "team-b")

    assert isinstance(entry, StoreEntry)
    assert entry.config(Path("/c/default")) == S3Config(
        "http://10.0.0.1:8333",
        "checkpoints",
        "milepost",
        "eu-central-1",
        Path("/c/default"),
        read_timeout=5.0,
    )
    assert entry.access == StoreAccess(
        "s3://checkpoints/milepost?endpoint=http://10.0.0.1:8333&region=eu-central-1", "store-keys", "none"
    )
    assert entry.recover_from == ("cluster-0",)


@pytest.mark.req("S3", "S7")
def test_a_store_asks_for_isolation_and_takes_nothing_over_unless_it_is_told() -> None:
    entry = read_stores(STORES).stores["aws"]

    assert (entry.access.isolation, entry.recover_from) == ("required", ())


def test_a_store_that_is_not_there_or_not_open_is_said_with_what_would_be_right() -> None:
    stores = read_stores(STORES)

    assert stores.entry("mine", "team-a") == StoreProblem(
        "StoreUnknown",
        "spec.store.name: there is no store 'mine'; the administrator's stores file has: aws, default",
    )
    assert stores.entry("aws", "team-b") == StoreProblem(
        "StoreNotAllowed",
        "store 'aws' is not open to namespace 'team-b'; "
        "the administrator can add it to allowedNamespaces in the stores file",
    )
    assert isinstance(stores.entry("aws", "team-a"), StoreEntry)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stores: [", "not YAML"),
        ("- a", "must hold one key"),
        ("stores: {}\nmore: 1", "must hold one key"),
        ("stores: {Not_a_name: {bucket: b, allowedNamespaces: ['*']}}", "must be a DNS label"),
        ("stores: {default: {allowedNamespaces: ['*']}}", r"stores\.default\.bucket: Field required"),
        ("stores: {default: {bucket: b}}", r"stores\.default\.allowedNamespaces: Field required"),
        (
            "stores: {default: {bucket: b, allowedNamespaces: ['*'], secretKey: x}}",
            r"stores\.default\.secretKey: Extra inputs are not permitted",
        ),
    ],
)
def test_a_mistake_in_the_stores_file_is_named(text: str, message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        read_stores(text)


def test_kopf_is_kept_from_marking_objects_and_scanning_the_cluster() -> None:
    settings = kopf_settings()

    assert settings.scanning.disabled
    assert settings.peering.standalone
    assert not settings.posting.enabled
    assert list(settings.watching.label_selectors.values()) == ["app.kubernetes.io/managed-by=milepost"]
