"""versitygw as a second S3 server of tests, alone on loopback: another code base, and AWS's own answers.

It is built from its Go module into the cache (`python -m tools.cluster build versitygw`), never downloaded
as a program. `lacking` says what keeps a machine from running it; it refuses to be started there.

The surprise: it keeps metadata and ETags in extended attributes, which not every file system has. So its
folder is looked for where one can be written, beginning with the folder of temporary files.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tools.cluster import local_cluster, s3_process
from tools.cluster.binaries import OLDEST_GO, go_numbers, installed_go
from tools.cluster.interface import ClusterError, Identity, S3Server
from tools.cluster.paths import Paths

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKET = "milepost"
REGION = "us-east-1"

_ATTRIBUTE = "user.milepost-test"


def lacking() -> str:
    """Return what this machine lacks to build and run the server, in words; empty where it lacks nothing."""
    if local_cluster().binaries.missing("versitygw"):
        go, needed = installed_go(), "{}.{}".format(*OLDEST_GO)
        if go is None or go_numbers(go) < OLDEST_GO:
            return f"versitygw is built with Go {needed} or later, and here is {go or 'none'}"
    if _folder_with_attributes() is None:
        return f"versitygw needs a file system with extended attributes, and none of {_places()} is on one"
    return ""


@contextlib.contextmanager
def server(*, bucket: str = BUCKET) -> Iterator[S3Server]:
    """Run a server of one's own in a temporary folder, and yield where it is once it takes writes.

    It is built first where it is not in the cache. The server dies with this process, however that ends.
    Raises ClusterError where the machine lacks something, and where the server does not start.
    """
    if lack := lacking():
        raise ClusterError(lack)
    cluster = local_cluster()
    cluster.build("versitygw")
    admin = Identity("admin", f"{bucket}-admin", secrets.token_hex(20))
    with (
        tempfile.TemporaryDirectory(
            prefix="milepost-s3-", dir=_folder_with_attributes(), ignore_cleanup_errors=True
        ) as name,
        s3_process.ports() as ports,
    ):
        folder = Path(name)
        (folder / "data").mkdir()
        address = f"127.0.0.1:{ports[0]}"
        found = S3Server(f"http://{address}", bucket, REGION, admin)
        argv = [str(cluster.binaries.path("versitygw")), "--port", address, "--region", REGION, "--quiet"]
        with s3_process.running(
            [*argv, "posix", str(folder / "data")],
            folder,
            # Unlike arguments, the environment is not shown to everybody on the machine.
            environment={"ROOT_ACCESS_KEY_ID": admin.access_key, "ROOT_SECRET_ACCESS_KEY": admin.secret_key},
            wait_until_ready=lambda alive: s3_process.wait_until_ready(found, alive),
        ):
            yield found


def _places() -> tuple[Path, ...]:
    return (Path(tempfile.gettempdir()), Path("/var/tmp"), Paths.from_environment().cache)  # noqa: S108  a folder is made inside it


def _folder_with_attributes() -> Path | None:
    return next((place for place in _places() if _keeps_attributes(place)), None)


def _keeps_attributes(place: Path) -> bool:
    try:
        with tempfile.TemporaryDirectory(prefix="milepost-", dir=place) as probe:
            os.setxattr(probe, _ATTRIBUTE, b"1")
            return os.getxattr(probe, _ATTRIBUTE) == b"1"
    except OSError:
        return False
