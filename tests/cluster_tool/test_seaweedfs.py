from __future__ import annotations

import signal
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tools.cluster import s3_process, s3_request, seaweedfs
from tools.cluster.interface import Identity, S3Server
from tools.cluster.progress import wait_until

if TYPE_CHECKING:
    from pathlib import Path


def test_a_scoped_identity_is_configured_with_its_prefix_on_every_verb() -> None:
    admin = Identity("admin", "a", "s")
    scoped = Identity("team-a", "b", "t", ("team-a/",))

    assert seaweedfs.configuration("bucket", admin, (scoped,)) == {
        "identities": [
            {
                "name": "admin",
                "credentials": [{"accessKey": "a", "secretKey": "s"}],
                "actions": ["Admin", "Read", "Write", "List", "Tagging"],
            },
            {
                "name": "team-a",
                "credentials": [{"accessKey": "b", "secretKey": "t"}],
                "actions": [
                    "Read:bucket/team-a/*",
                    "Write:bucket/team-a/*",
                    "List:bucket/team-a/*",
                    "Tagging:bucket/team-a/*",
                ],
            },
        ]
    }


def test_a_secret_key_is_not_shown() -> None:
    assert "hidden" not in repr(Identity("admin", "key", "hidden"))


def test_a_request_is_signed_as_the_signature_of_botocore_says() -> None:
    from botocore.auth import SIGV4_TIMESTAMP, S3SigV4Auth  # noqa: PLC0415  only this test compares with it
    from botocore.awsrequest import AWSRequest  # noqa: PLC0415  as above
    from botocore.credentials import Credentials  # noqa: PLC0415  as above

    at = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    signed = s3_request.sign(
        Identity("admin", "key", "secret"), "us-east-1", "PUT", "127.0.0.1:8333", "/b/k", "", b"x", at
    )

    auth = S3SigV4Auth(Credentials("key", "secret"), "s3", "us-east-1")
    request = AWSRequest(method="PUT", url="http://127.0.0.1:8333/b/k", data=b"x")
    request.context["timestamp"] = at.strftime(SIGV4_TIMESTAMP)
    request.headers["X-Amz-Date"] = request.context["timestamp"]
    request.headers["X-Amz-Content-SHA256"] = signed["x-amz-content-sha256"]
    expected = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    assert signed["authorization"].endswith(f"Signature={expected}")


@pytest.fixture
def server(seaweedfs_server: S3Server) -> S3Server:
    return seaweedfs_server


@pytest.mark.s3
def test_a_server_is_yielded_once_it_takes_conditional_writes(server: S3Server) -> None:
    assert s3_process.takes_conditional_writes(server)


@pytest.mark.s3
@pytest.mark.parametrize(
    ("path", "status"),
    [("/team-a/k", 200), ("/milepost/team-a/k", 200), ("/team-b/k", 403), ("/team-ab/k", 403)],
)
def test_scoped_keys_open_only_their_own_prefix(server: S3Server, path: str, status: int) -> None:
    own = server.identity("team-a")

    assert s3_request.send(server.endpoint, server.region, own, "PUT", f"/{server.bucket}{path}") == status


@pytest.mark.s3
def test_two_servers_run_side_by_side(server: S3Server) -> None:
    with seaweedfs.server() as second:
        assert second.endpoint != server.endpoint
        assert s3_process.takes_conditional_writes(second)


@pytest.mark.s3
def test_keys_of_a_namespace_that_comes_later_are_read_without_a_restart(tmp_path: Path) -> None:
    admin, scoped = seaweedfs.identities("bucket", ("team-a",))
    with s3_process.ports() as block:
        ports = seaweedfs.Ports(*block)
        data, config = seaweedfs.prepare(tmp_path, "bucket", admin, tuple(scoped.values()))
        before = S3Server(f"http://127.0.0.1:{ports.s3}", "bucket", seaweedfs.REGION, admin, scoped)
        with s3_process.running(
            seaweedfs.command(data, config, "127.0.0.1", ports),
            tmp_path,
            environment=seaweedfs.environment(),
            wait_until_ready=lambda alive: s3_process.wait_until_ready(before, alive),
        ) as process:
            server = seaweedfs.with_namespace(before, "late", config)
            known = seaweedfs.knows(server, "late")
            process.send_signal(signal.SIGHUP)
            wait_until(lambda: seaweedfs.knows(server, "late"), "the keys to be known", within=60)

            assert (known, seaweedfs.knows(server, "team-a")) == (False, True)
