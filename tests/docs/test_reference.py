"""docs/reference.md says what the code says."""

from tools.reference import PAGE, page


def test_the_reference_is_what_the_code_says_of_itself() -> None:
    assert PAGE.read_text() == page(), "python -m tools.reference writes it"
