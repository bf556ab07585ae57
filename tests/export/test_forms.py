import io

import pytest

from rollbook.errors import UsageError
from rollbook.export import FORMS
from rollbook.export.forms import Form, find_form, open_writer


@pytest.mark.parametrize("name", FORMS)
def test_each_form_opens(name: str) -> None:
    form = find_form(name)
    assert form.name == name
    assert form.about.endswith(".")
    file = io.BytesIO()
    open_writer(form, file).release()


def test_an_unknown_form_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="no form 'csv'; forms: arrow, jsonl, parquet"):
        find_form("csv")


def test_a_missing_extra_is_named_with_its_remedy() -> None:
    form = Form("x", "X.", "rollbook_no_such_module.inner", "rollbook_no_such_module", "fancy")
    with pytest.raises(
        UsageError, match=r"needs rollbook_no_such_module, .*pip install '\.\[fancy\]' in Rollbook's checkout"
    ):
        open_writer(form, io.BytesIO())


def test_a_broken_form_is_a_fault_of_ours() -> None:
    with pytest.raises(ModuleNotFoundError):
        open_writer(Form("x", "X.", "rollbook.export.no_such_form"), io.BytesIO())
