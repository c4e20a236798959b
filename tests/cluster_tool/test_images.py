from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools.cluster.archives import image_digest, write_single_program
from tools.cluster.images import PROJECT, copied, input_key
from tools.cluster.interface import ClusterError

if TYPE_CHECKING:
    from pathlib import Path

DOCKERFILE = """FROM base
COPY --chown=1:1 package \\
     data.txt /app/
COPY --from=builder /opt/venv /opt/venv
"""


@pytest.fixture
def context(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "agent.py").write_text("one")
    (tmp_path / "data.txt").write_text("data")
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    return tmp_path


def key(context: Path, *, target: str | None = None, base: str = "a", inner: str = "1") -> str:
    return input_key(context / "Dockerfile", context, target, {"BASE": base}, {base: inner})


def test_what_a_dockerfile_copies_is_found_over_continued_lines_and_options() -> None:
    assert copied(DOCKERFILE) == ["package", "data.txt"]


@pytest.mark.parametrize("line", ['COPY ["a", "b"]', "COPY *.py /app/"])
def test_what_is_not_understood_is_refused(line: str) -> None:
    with pytest.raises(ClusterError, match="only plain names"):
        copied(line)


def test_an_untouched_tree_keeps_its_key(context: Path) -> None:
    before = key(context)
    (context / "package" / "__pycache__").mkdir()
    (context / "package" / "__pycache__" / "agent.pyc").touch()
    (context / "not-copied.txt").touch()

    assert key(context) == before


def test_every_input_changes_the_key(context: Path) -> None:
    keys = [key(context), key(context, target="t"), key(context, base="b"), key(context, inner="2")]
    (context / "package" / "agent.py").write_text("two")
    keys.append(key(context))
    (context / "data.txt").rename(context / "package" / "data.txt")
    (context / "data.txt").write_text("data")
    keys.append(key(context))
    (context / "package" / "agent.py").chmod(0o755)
    keys.append(key(context))

    assert len(set(keys)) == len(keys)


def test_a_missing_file_is_named(context: Path) -> None:
    (context / "data.txt").unlink()

    with pytest.raises(ClusterError, match=r"data\.txt is to be copied into an image and does not exist"):
        key(context)


def test_the_project_can_be_keyed() -> None:
    assert copied((PROJECT / "Dockerfile").read_text())[-2:] == ["sdk", "operator"]


def test_an_image_made_by_hand_has_a_digest(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"program")
    write_single_program(tmp_path / "one.tar", "localhost/pause:1", program)
    write_single_program(tmp_path / "two.tar", "localhost/pause:2", program)

    assert image_digest(tmp_path / "one.tar") == image_digest(tmp_path / "two.tar")
