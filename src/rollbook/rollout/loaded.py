"""A policy with the renderer that speaks for it: what a rollout is given."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from rollbook.policy.protocol import Policy
from rollbook.render.protocol import Renderer
from rollbook.trace import PolicyRecord

__all__ = ["LoadedPolicy", "derive_seed"]


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy and its renderer. ``async with`` starts the engine and frees it."""

    policy: Policy
    renderer: Renderer
    trainable: bool = True
    """False: its tokens are never trained (a judge, an opponent)."""

    async def __aenter__(self) -> LoadedPolicy:
        await self.policy.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.policy.close()

    def record(self) -> PolicyRecord:
        """The row for a trace's policy table."""
        info, renderer = self.policy.info, self.renderer.info
        return PolicyRecord(
            name=info.name,
            engine=info.engine,
            tokenizer_hash=renderer.tokenizer_hash,
            template_hash=renderer.template_hash,
            weights_hash=info.weights_hash,
            trainable=self.trainable,
            tool_prompt=renderer.tool_prompt,
            template_findings=renderer.findings,
            template_settings=dict(renderer.settings),
        )


def derive_seed(*parts: int | str) -> int:
    """A seed in [0, 2**31) that depends on all parts: the same parts give the same seed, on every machine."""
    text = "\x1f".join(str(part) for part in parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "little") & 0x7FFF_FFFF
