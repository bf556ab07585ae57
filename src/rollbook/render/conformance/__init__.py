"""What every renderer must do, as one list of behaviours that hold over any `Renderer`, ours or a plug-in's.

Each behaviour is checked through the protocol alone, with conversations of its own. A conversation that a family may
refuse (no system role, no tools, one call at a time) is refused with a `ModelError`; then there is nothing to see and
`Behaviour.check` says False. Anything else that goes wrong is `NotConforming`, with what was seen. Nothing is patched,
timed or guessed, so a behaviour fails for the same renderer each time.

In a pytest suite::

    import pytest
    from rollbook.render.conformance import behaviours

    @pytest.mark.parametrize("behaviour", behaviours(), ids=str)
    def test_my_renderer(behaviour):
        behaviour.check(MyRenderer(), control={"<|im_end|>": 2})
"""

from rollbook.render.conformance.behaviour import Behaviour, NotConforming
from rollbook.render.conformance.continuing import CONTINUING
from rollbook.render.conformance.rendering import RENDERING
from rollbook.render.conformance.replies import REPLIES

__all__ = ["Behaviour", "NotConforming", "behaviours"]


def behaviours() -> tuple[Behaviour, ...]:
    """All of them, in the order in which a renderer is best got right."""
    return (*RENDERING, *CONTINUING, *REPLIES)
