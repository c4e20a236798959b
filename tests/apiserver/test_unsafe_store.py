"""The operator's own process with a bucket that looks at no condition: nothing is begun in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.apiserver import test_operator_process as process
from tests.support.api_server import ApiServer
from tests.support.bent_stores import CarelessS3
from tools.cluster.progress import wait_until

pytestmark = pytest.mark.usefixtures("definition")

operator: Final = process.operator
ports: Final = process.ports


@pytest.fixture
def bucket() -> Iterator[CarelessS3]:
    """Take the place of the bucket that the operator is started with."""
    with CarelessS3() as s3:
        yield s3


@pytest.mark.req("S2")
def test_a_run_of_an_unsafe_store_says_why_it_waits_and_nothing_is_begun(
    api: ApiServer, operator: process.Operator, bucket: CarelessS3
) -> None:
    process.apply(api, "careless")

    wait_until(
        lambda: process.reason(api, "careless") == "StoreUnsafe",
        "the reason StoreUnsafe",
        within=60,
        hint=lambda: operator.log.read_text()[-4000:],
    )

    conditions = {part["type"]: part for part in process.run(api, "careless")["status"]["conditions"]}
    assert (
        "create-race: 32 of 32 writers were told that they alone had written"
        in conditions["Ready"]["message"]
    )
    assert (conditions["StoreReady"]["status"], conditions["StoreReady"]["reason"]) == (
        "False",
        "StoreUnsafe",
    )
    assert (process.pods(api, "careless"), list(bucket.objects())) == ([], ["_owner"])
