"""Whether what was typed fits what a gate asks for, and what is said of what does not."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from milepost.errors import InvalidRun
from milepost.local.fitting import answer_in

SLOT = {
    "type": "object",
    "properties": {"room": {"type": "string"}, "seats": {"type": "integer"}},
    "required": ["room", "seats"],
}


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        pytest.param(None, None, None, id="nothing is asked for"),
        pytest.param({"type": "integer"}, "5", 5, id="a number"),
        pytest.param({"type": "number"}, "2.5", 2.5, id="a number with a fraction"),
        pytest.param({"type": "string"}, "5", "5", id="digits where text is asked for"),
        pytest.param({"type": "string"}, "tomorrow at ten", "tomorrow at ten", id="text as it is"),
        pytest.param({"type": "string"}, '"quoted"', "quoted", id="text as JSON"),
        pytest.param({"type": "boolean"}, "yes", True, id="yes"),
        pytest.param({"type": "boolean"}, "N", False, id="no"),
        pytest.param({"type": "boolean"}, "true", True, id="true"),
        pytest.param({"type": "string"}, "yes", "yes", id="yes where text is asked for"),
        pytest.param({"enum": ["small", "large"]}, "large", "large", id="one of several"),
        pytest.param(SLOT, '{"room": "b", "seats": 3}', {"room": "b", "seats": 3}, id="an object"),
        pytest.param({"anyOf": [{"type": "string"}, {"type": "null"}]}, None, None, id="none will do"),
    ],
)
def test_what_fits_is_taken(schema: Any, text: str | None, expected: Any) -> None:
    assert answer_in(schema, text, "--answer") == expected


@pytest.mark.parametrize(
    ("schema", "text", "message"),
    [
        pytest.param(
            None,
            "5",
            "--answer: the gate asks for no answer beyond yes or no; leave it out",
            id="an answer that nobody asked for",
        ),
        pytest.param(
            {"type": "integer"},
            None,
            '--answer: is needed; asked for is JSON of this schema: {"type": "integer"}',
            id="no answer",
        ),
        pytest.param(
            {"type": "integer"},
            "five",
            "--answer: it is not JSON: Expecting value: line 1 column 1 (char 0); asked for is JSON of this "
            'schema: {"type": "integer"}',
            id="no JSON",
        ),
        pytest.param(
            {"type": "array", "items": {"type": "integer"}},
            '[1, "two"]',
            "--answer: answer[1]: 'two' is not of type 'integer'; asked for is JSON of this schema: "
            '{"type": "array", "items": {"type": "integer"}}',
            id="an item that does not fit",
        ),
        pytest.param(
            {"type": "object", "properties": {"a": {"const": 1}}},
            '{"a": 2, "a": 1}',
            "--answer: the key 'a' stands twice in one object; ",
            id="a key that stands twice",
        ),
    ],
)
def test_what_does_not_fit_is_refused_and_told(schema: Any, text: str | None, message: str) -> None:
    with pytest.raises(InvalidRun) as refused:
        answer_in(schema, text, "--answer")

    assert str(refused.value).startswith(message)


def test_the_part_that_does_not_fit_is_named() -> None:
    with pytest.raises(InvalidRun, match=r"^--answer: answer\.seats: 'two' is not of type 'integer'"):
        answer_in(SLOT, '{"room": "b", "seats": "two"}', "--answer")


class Asked(BaseHTTPRequestHandler):
    """Serves a schema that everything fits, and notes who asks for it."""

    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")


def test_what_a_schema_refers_to_is_not_fetched() -> None:
    with HTTPServer(("127.0.0.1", 0), Asked) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        url = f"http://127.0.0.1:{server.server_port}/schema"
        with pytest.raises(InvalidRun) as refused:
            answer_in({"$ref": url}, "1", "--answer")
        server.shutdown()
        serving.join()

    assert str(refused.value).startswith(
        f"--answer: nobody can tell whether it fits, as the schema refers to {url}"
    )
    assert Asked.paths == []
