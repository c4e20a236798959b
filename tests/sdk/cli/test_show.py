"""Tables, as a program reads them."""

import pytest

from milepost.cli.show import new_table, print_table


def test_without_a_terminal_each_row_is_one_line_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    table = new_table("seq", "step", "note")
    table.add_row("1", "写", "why " * 100)
    table.add_row("12", "a", "")

    print_table(table)

    assert capsys.readouterr().out.splitlines() == [
        "seq  step  note",
        f"1    写    {'why ' * 99}why",
        "12   a",
    ]
