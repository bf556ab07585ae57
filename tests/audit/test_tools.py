import pytest

from rollbook.audit import Status
from rollbook.trace import Trace
from tests.audit.build import TOOL, Build, check, sound


def given(rendered: bool | None, *, tokens: bool = True) -> Trace:
    build = Build(tools=(TOOL,), tools_rendered=rendered, tokens=tokens)
    return build.observe().turn().end()


def test_rendered_tools_are_fine() -> None:
    row = check("tools_unrendered", given(True))
    assert (row.status, row.value, row.n) == (Status.OK, 0, 1)


@pytest.mark.parametrize(("rendered", "what"), [(False, "do not stand"), (None, "not known to stand")])
def test_tools_that_do_not_stand_in_the_prompt_break(rendered: bool | None, what: str) -> None:
    row = check("tools_unrendered", given(rendered))
    assert (row.status, row.value) == (Status.BROKE, 1)
    assert (row.findings[0].rollout, row.findings[0].text) == ("r0", f"1 tools {what} in the prompt")


def test_what_a_text_engine_rendered_is_not_known() -> None:
    row = check("tools_unrendered", given(None, tokens=False))
    assert (row.status, row.value, row.details["unknown"]) == (Status.NOT_JUDGED, None, 1)


def test_what_stood_in_a_prompt_that_somebody_else_made_is_not_known() -> None:
    trace = Build(tools=(TOOL,), tools_rendered=None).observe().end()
    row = check("tools_unrendered", trace)
    assert (row.status, row.value, row.details["unknown"]) == (Status.NOT_JUDGED, None, 1)


def test_rollouts_without_tools_do_not_count() -> None:
    row = check("tools_unrendered", sound())
    assert (row.status, row.n) == (Status.OK, 0)


def test_a_rollout_that_stopped_before_its_first_prompt_is_not_judged() -> None:
    died = Build("r1", tools=(TOOL,), tools_rendered=None).end()
    row = check("tools_unrendered", given(True), died)
    assert (row.status, row.value, row.n) == (Status.OK, 0, 1)
