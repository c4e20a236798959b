"""Large creations of the S3 store: sent in parts, one write for everybody who looks."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from milepost.checkpoint.answers import Done, Purpose, Write
from milepost.checkpoint.s3 import S3Store
from milepost.checkpoint.s3_multipart import PART
from milepost.checkpoint.sending import Patience, send
from milepost.checkpoint.store import Answer, Clash, Expired, Found, Refused, Stored, Undecided, Unknown
from milepost.errors import StoreUnavailable
from milepost.testing.fake_s3 import Action, Drop, FakeS3, Fault, Flip, Hold, Reply, Truncate
from tests.support.store_doubles import FakeTime, Numbers

LARGE = b"%032d" % 7 * (PART // 32) * 2 + b"the last part"
KEY = "some/prefix/ns/blob"

SENT = 96 * 1024**2
WRITE_AND_READ = """
import pathlib, sys, tracemalloc
from milepost.checkpoint.s3 import open_store, parse_url

store = open_store(parse_url(sys.argv[1], pathlib.Path(sys.argv[2])))
store.get("none")
body = bytes(int(sys.argv[3]))
tracemalloc.start()
store.put_new("ns/blob", body, {})
print(tracemalloc.get_traced_memory()[1])
tracemalloc.reset_peak()
store.get("ns/blob")
print(tracemalloc.get_traced_memory()[1])
"""


def at_completion(action: Action) -> Fault:
    return Fault(action, method="POST", key="?uploadId=")


def create(store: S3Store, body: bytes = LARGE) -> Answer:
    return store.put_new("ns/blob", body, {"N": "1"})


def lines(fake_s3: FakeS3) -> list[tuple[str, int]]:
    """Return what was asked and answered: `create`, `part 1`, `complete`, `abort`, or a plain method."""

    def name(method: str, query: list[str], part: str) -> str:
        match method, query:
            case "POST", ["uploads"]:
                return "begin"
            case "PUT", ["partNumber", "uploadId"]:
                return f"part {part}"
            case "POST", ["uploadId"]:
                return "complete"
            case "DELETE", ["uploadId"]:
                return "abort"
            case _:
                return method

    return [
        (
            name(
                seen.request.method,
                sorted(set(seen.request.query) - {"x-id"}),
                seen.request.query.get("partNumber", ""),
            ),
            seen.status,
        )
        for seen in fake_s3.journal
    ]


@pytest.mark.req("C1")
def test_a_large_object_is_sent_in_parts_and_reads_back(fake_s3: FakeS3, fake_store: S3Store) -> None:
    answer = create(fake_store)

    assert isinstance(answer, Stored)
    assert fake_store.get("ns/blob") == Found(LARGE, answer.etag, {"n": "1"})
    assert lines(fake_s3) == [
        ("HEAD", 404),
        ("begin", 200),
        ("part 1", 200),
        ("part 2", 200),
        ("part 3", 200),
        ("complete", 200),
        ("GET", 200),
    ]
    sent = [seen.request for seen in fake_s3.journal]
    assert [len(each.body) for each in sent if each.method == "PUT"] == [PART, PART, len(b"the last part")]
    assert all("x-amz-checksum-sha256" in each.headers for each in sent if each.method == "PUT")
    assert [each.headers["if-none-match"] for each in sent if "if-none-match" in each.headers] == ["*"]
    assert fake_s3.uploads() == []


@pytest.mark.parametrize(("size", "parts"), [(PART, 0), (PART + 1, 2)])
def test_only_what_is_larger_than_a_part_is_sent_in_parts(
    fake_s3: FakeS3, fake_store: S3Store, size: int, parts: int
) -> None:
    answer = create(fake_store, bytes(size))

    assert isinstance(answer, Stored)
    assert [name for name, _ in lines(fake_s3) if name.startswith("part")] == [
        f"part {number}" for number in range(1, parts + 1)
    ]


@pytest.mark.req("C2")
def test_an_object_that_is_there_clashes_before_any_part_is_sent(
    fake_s3: FakeS3, fake_store: S3Store
) -> None:
    create(fake_store, b"first")

    assert create(fake_store) == Clash()
    assert lines(fake_s3)[1:] == [("HEAD", 200)]


@pytest.mark.req("C2")
def test_an_object_that_appears_during_the_upload_clashes_and_stays(
    fake_s3: FakeS3, fake_store: S3Store
) -> None:
    hold = Hold()
    fake_s3.fail(at_completion(hold))
    other = S3Store(fake_s3.config("some/prefix"))
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(create(fake_store)))
    thread.start()
    assert hold.reached.wait(30)
    assert isinstance(create(other, b"faster"), Stored)
    hold.release.set()
    thread.join(30)

    assert answers == [Clash()]
    assert fake_s3.body(KEY) == b"faster"
    assert lines(fake_s3)[-2:] == [("complete", 412), ("abort", 204)]
    assert fake_s3.uploads() == []


def test_a_conflict_at_the_completion_is_undecided_and_the_whole_upload_is_given_up(
    fake_s3: FakeS3, fake_store: S3Store
) -> None:
    fake_s3.fail(at_completion(Reply(409, "ConditionalRequestConflict")))
    answers = [create(fake_store) for _ in range(2)]

    assert answers[0] == Undecided("409 ConditionalRequestConflict: as the test asked")
    assert isinstance(answers[1], Stored)
    assert [name for name, _ in lines(fake_s3)] == [
        *("HEAD", "begin", "part 1", "part 2", "part 3", "complete", "abort"),
        *("HEAD", "begin", "part 1", "part 2", "part 3", "complete"),
    ]
    assert fake_s3.uploads() == []


UNCLEAR: list[tuple[Action, str]] = [
    (Drop(), "ConnectionClosedError"),
    (Drop(after=True), "ConnectionClosedError"),
    (Reply(500, "InternalError", after=True), "500 InternalError"),
    (Reply(503, "SlowDown"), "503 SlowDown"),
    (Reply(404, "NoSuchUpload"), "404 NoSuchUpload"),
    (Reply(404, "NoSuchKey"), "404 NoSuchKey to a creation"),
    (Reply(200, "InternalError"), "500 InternalError"),
    (Reply(200, "PreconditionFailed"), "500 PreconditionFailed"),
    (Truncate(at=60), ""),
]


@pytest.mark.req("C4")
@pytest.mark.parametrize(("action", "cause"), UNCLEAR, ids=lambda each: str(each)[:30])
def test_an_unclear_answer_to_the_completion_is_unknown_and_nothing_is_given_up(
    fake_s3: FakeS3, fake_store: S3Store, action: Action, cause: str
) -> None:
    fake_s3.fail(at_completion(action))
    answer = create(fake_store)

    assert isinstance(answer, Unknown)
    assert answer.cause.startswith(cause)
    assert "abort" not in [name for name, _ in lines(fake_s3)]


@pytest.mark.req("C4")
@pytest.mark.parametrize("after", [True, False])
def test_a_creation_whose_last_answer_is_lost_finds_itself(
    fake_s3: FakeS3, fake_store: S3Store, *, after: bool
) -> None:
    fake_s3.fail(at_completion(Drop(after=after)))
    time = FakeTime()
    patience = Patience(Numbers(), monotonic=time.monotonic, pause=time.pause)
    done = send(fake_store, Write(Purpose.CREATE, "ns/blob", LARGE), patience)

    found = fake_store.get("ns/blob")
    assert isinstance(found, Found)
    assert done == Done(found.etag)
    assert [name for name, _ in lines(fake_s3)].count("complete") == (1 if after else 2)


@pytest.mark.parametrize(
    "action",
    [Drop(), Drop(after=True), Reply(503, "SlowDown"), Reply(400, "BadDigest"), Reply(400, "ExpiredToken")],
)
@pytest.mark.parametrize("where", ["?uploads", "partNumber=2"])
def test_what_comes_before_the_completion_is_repeated(
    fake_s3: FakeS3, fake_store: S3Store, action: Action, where: str
) -> None:
    fake_s3.fail(Fault(action, key=where))

    assert isinstance(create(fake_store), Stored)
    assert fake_s3.body(KEY) == LARGE


def test_a_part_that_never_gets_through_gives_the_upload_up(fake_s3: FakeS3, fake_store: S3Store) -> None:
    fake_s3.fail(Fault(Reply(500, "InternalError"), key="partNumber=2", times=99))
    answer = create(fake_store)

    assert answer == Unknown("500 InternalError: as the test asked")
    assert lines(fake_s3)[-1] == ("abort", 204)
    assert (fake_s3.objects(), fake_s3.uploads()) == ({}, [])


def test_giving_up_is_tried_once_and_its_failure_changes_nothing(
    fake_s3: FakeS3, fake_store: S3Store
) -> None:
    fake_s3.fail(Fault(Reply(403, "AccessDenied"), key="partNumber=2"))
    fake_s3.fail(Fault(Reply(500, "InternalError"), method="DELETE", times=99))
    answer = create(fake_store)

    assert isinstance(answer, Refused)
    assert answer.reason == "StoreForbidden"
    assert [status for name, status in lines(fake_s3) if name == "abort"] == [500]
    assert fake_s3.uploads() == [KEY]


def test_a_clear_no_to_the_completion_gives_the_upload_up(fake_s3: FakeS3, fake_store: S3Store) -> None:
    fake_s3.fail(at_completion(Reply(403, "AccessDenied")))

    assert isinstance(create(fake_store), Refused)
    assert fake_s3.uploads() == []


def test_keys_that_run_out_at_the_completion_are_read_anew(fake_s3: FakeS3, fake_store: S3Store) -> None:
    fake_s3.fail(at_completion(Reply(400, "ExpiredToken")))
    answers = [create(fake_store) for _ in range(2)]

    assert answers[0] == Expired("400 ExpiredToken: as the test asked")
    assert isinstance(answers[1], Stored)


@pytest.mark.parametrize("action", [Flip(at=PART + 5), Truncate(at=PART + 5)])
@pytest.mark.req("C1")
def test_a_large_body_that_was_damaged_on_its_way_is_read_again(
    fake_s3: FakeS3, fake_store: S3Store, action: Action
) -> None:
    create(fake_store)
    fake_s3.fail(Fault(action, method="GET", times=2))
    found = fake_store.get("ns/blob")

    assert isinstance(found, Found)
    assert found.body == LARGE
    assert [status for name, status in lines(fake_s3) if name == "GET"] == [200] * 3


@pytest.mark.req("C1")
def test_a_large_body_that_stays_damaged_is_not_returned(fake_s3: FakeS3, fake_store: S3Store) -> None:
    create(fake_store)
    fake_s3.fail(Fault(Flip(at=PART + 5), method="GET", times=99))

    with pytest.raises(StoreUnavailable, match="the body has the SHA-256"):
        fake_store.get("ns/blob")


def test_beside_the_body_a_write_takes_the_memory_of_a_few_parts_and_a_read_twice_the_body(
    fake_s3: FakeS3,
) -> None:
    argv = [sys.executable, "-c", WRITE_AND_READ, fake_s3.config().url, str(fake_s3.credentials), str(SENT)]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
    to_write, to_read = (int(each) for each in said)

    assert to_write < 3 * PART
    assert SENT < to_read < 2 * SENT
