"""One verdict on a template, alone or with its tokenizer: what `ChatRenderer` builds on, and what
``rollbook check template`` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rollbook.render.encode import Encoder
from rollbook.render.findings import TemplateRefused, TemplateReport
from rollbook.render.probe import Probe, probe, template_hash
from rollbook.render.properties import findings_of
from rollbook.render.template import ChatTemplate
from rollbook.render.tokens_check import token_findings

__all__ = ["judge"]


def judge(
    template: ChatTemplate, stops: Sequence[str], name: str, encoder: Encoder | None = None
) -> tuple[Probe | None, TemplateReport]:
    """What was seen, and the findings; nothing was seen where a finding forbids it at once.

    `stops`: the spellings of the tokens that end an assistant's turn. `encoder`: None leaves out what only tokens can
    tell (start tokens, control tokens from content).
    """
    digest = template_hash(template.text)
    try:
        seen = probe(template, stops)
    except TemplateRefused as refused:
        return None, TemplateReport(name, digest, (refused.finding,))
    tokens = () if encoder is None else token_findings(seen, encoder)
    return seen, TemplateReport(name, digest, (*findings_of(seen), *tokens))
