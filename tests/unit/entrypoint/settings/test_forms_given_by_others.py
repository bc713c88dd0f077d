"""Names that others set as well: a start is not refused for them."""

import pytest

from entrypoint.settings import forms


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("true", 1), ("yes please", 1), ("0", 0), ("00", 0), ("False", 0), (" off ", 0)],
)
def test_any_text_is_a_flag(text: str, value: int) -> None:
    assert forms.flag().parse(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("9400", 9400), ("tcp://10.0.0.1:9090", 0), ("0", None), ("x", None)]
)
def test_kubernetes_variable_of_a_service_is_no_port(text: str, value: int | None) -> None:
    assert forms.port_or_service().parse(text) == value
