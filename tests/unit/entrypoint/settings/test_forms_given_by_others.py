"""Variables that other programs set, too, never cause a refusal."""

import pytest

from entrypoint.settings import forms


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("true", 1), ("yes please", 1), ("0", 0), ("00", 0), ("False", 0), (" off ", 0)],
)
def test_any_text_is_a_flag(text: str, value: int) -> None:
    assert forms.flag().parse(text) == value
