from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from milepost.api.resource import RunSpec

# The example's folder is no package name, so it cannot stand in an import statement.
text = import_module("examples.01-documents.documents_agent.text")

EXAMPLE = Path(__file__).parents[2] / "examples" / "01-documents"
DOCUMENTS = EXAMPLE / "documents"


def a_note(document: str, *terms: str) -> object:
    return text.Note(document=document, title=document, terms=list(terms), links=[])


def test_there_are_ten_documents_of_readable_length() -> None:
    lengths = {path.name: len(path.read_text().split()) for path in DOCUMENTS.iterdir()}

    assert len(lengths) == 10
    assert {name for name, words in lengths.items() if not 250 <= words <= 450} == set()


@pytest.mark.parametrize("path", sorted(DOCUMENTS.iterdir()), ids=lambda path: path.stem)
def test_a_document_links_to_its_neighbours_and_to_public_pages(path: Path) -> None:
    links = text.take_notes(str(path)).links
    public = {link for link in links if link.startswith("https://")}

    assert public
    assert set(links) - public
    assert {link for link in set(links) - public if not (DOCUMENTS / link).is_file()} == set()


def test_a_note_holds_the_title_the_most_frequent_terms_and_each_link_once(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text(
        "# On heads\n\nA Head with [a head](b.md), then [one more](b.md): an epoch, and those heads.\n"
    )

    assert text.take_notes(str(path)) == text.Note(
        document="a.md", title="On heads", terms=["head", "epoch", "heads"], links=["b.md"]
    )


def test_the_index_holds_what_documents_share_the_most_shared_first() -> None:
    notes = [a_note("1", "head", "etag", "blob"), a_note("2", "epoch", "head", "etag"), a_note("3", "etag")]

    index = text.index_of(notes)

    assert index == {"etag": ["1", "2", "3"], "head": ["1", "2"]}
    assert list(index) == ["etag", "head"]


def test_the_index_fits_the_status_of_a_run_however_many_documents_there_are() -> None:
    notes = [a_note(f"{number:04}.md", *(f"term{n}" for n in range(number % 7, 8))) for number in range(500)]

    assert len(json.dumps(text.index_of(notes))) <= text.LARGEST_INDEX


def test_a_folder_that_does_not_exist_is_not_an_empty_one() -> None:
    with pytest.raises(NotADirectoryError, match=re.escape("there is no folder nowhere")):
        text.find_documents("nowhere")


def test_the_manifest_is_a_run_that_names_what_the_example_holds() -> None:
    manifest = yaml.safe_load((EXAMPLE / "run.yaml").read_text())
    spec = RunSpec.model_validate(manifest["spec"])
    module, _, name = spec.agent.entrypoint.partition(":")
    source = (EXAMPLE / Path(*module.split("."))).with_suffix(".py").read_text()

    assert (manifest["apiVersion"], manifest["kind"]) == ("milepost.dev/v1alpha1", "AgentRun")
    assert f"async def {name}(" in source
    assert text.find_documents(str(EXAMPLE / spec.inputs["folder"]))
