"""New weights for the embedded engine, on the model that comes with the package."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from rollbook.errors import ModelError, UsageError
from rollbook.models import ModelFiles, load_model
from rollbook.models.gguf_tensors import read_tensors, write_gguf
from rollbook.policy.local import LocalConfig, LocalPolicy
from rollbook.policy.local_control import LocalControl
from rollbook.policy.weights import PauseMode, swap_weights
from rollbook.trace.call import Finish, Sampling

PROMPT = np.arange(20, 50, dtype=np.int32)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    return load_model("tiny", tmp_path_factory.mktemp("cache"))


def weights_at(files: ModelFiles, path: Path, *, scale: float = 1.0, endless: bool = False) -> Path:
    """The same model with its last norm scaled. `endless`: it hardly ever ends a reply."""
    assert files.weights is not None
    tensors = read_tensors(files.weights)
    tensors["model.norm.weight"] = tensors["model.norm.weight"] * np.float32(scale)
    if endless:
        ends = sorted(files.stop_ids)
        tensors["model.embed_tokens.weight"][ends] = 0.0
    write_gguf(path, files.weights, tensors)
    return path


def policy_of(files: ModelFiles, weights: Path | None = None) -> LocalPolicy:
    chosen = weights or files.weights
    assert chosen is not None
    return LocalPolicy(
        LocalConfig(
            name="local:tiny",
            weights=chosen,
            weights_hash=files.weights_hash or "",
            stop_ids=files.stop_ids,
            context_length=1024,
            slots=2,
            float32=True,
        )
    )


def test_tokens_have_the_version_of_the_weights_that_sampled_them(tiny: ModelFiles, tmp_path: Path) -> None:
    async def go() -> None:
        policy = policy_of(tiny)
        control = LocalControl(policy)
        await policy.start()
        try:
            sampling = Sampling(max_tokens=4, seed=1)
            before = await policy.sample(PROMPT, sampling, session="s")
            await swap_weights(control, weights_at(tiny, tmp_path / "new.gguf", scale=0.8), 3)
            after = await policy.sample(PROMPT, sampling, session="s")
            assert before.versions == ((0, len(before.token_ids)),)
            assert after.versions == ((3, len(after.token_ids)),)
            assert await control.version() == 3
            assert policy.info.weights_hash == "", "rollouts that have begun would name the old weights"
            assert before.token_ids.tolist() != after.token_ids.tolist() or not np.allclose(
                before.logprobs, after.logprobs, atol=1e-3
            )
            await policy.close()
            await policy.start()
            again = await policy.sample(PROMPT, sampling, session="s")
            assert again.versions == ((3, len(again.token_ids)),), "a new start keeps the newest weights"
            assert again.token_ids.tolist() == after.token_ids.tolist()
        finally:
            await policy.close()

    asyncio.run(go())


@pytest.mark.parametrize("mode", [PauseMode.KEEP, PauseMode.ABORT])
def test_a_generation_outlives_an_update(tiny: ModelFiles, tmp_path: Path, mode: PauseMode) -> None:
    """It goes on with the new weights, or ends as aborted with what it has; never in silence with the old ones."""

    async def go() -> None:
        policy = policy_of(tiny, weights_at(tiny, tmp_path / "old.gguf", endless=True))
        control = LocalControl(policy)
        new = weights_at(tiny, tmp_path / "new.gguf", scale=0.9, endless=True)
        await policy.start()
        try:
            for seed in range(20):
                asked = asyncio.create_task(policy.sample(PROMPT, Sampling(max_tokens=400, seed=seed), session="s"))
                await asyncio.sleep(0.02)
                await control.pause(mode)
                await control.update(new, seed + 1)
                await control.resume()
                reply = await asked
                versions = [version for version, _ in reply.versions]
                assert sum(count for _, count in reply.versions) == len(reply.token_ids) == len(reply.logprobs)
                if mode is PauseMode.KEEP and len(versions) == 2:
                    assert versions == [seed, seed + 1]
                    return
                if mode is PauseMode.ABORT and reply.finish is Finish.ABORT:
                    assert versions in ([], [seed])
                    return
            pytest.fail("no generation was under way when the weights changed")
        finally:
            await policy.close()

    asyncio.run(go())


def test_what_cannot_be_loaded_is_refused(tiny: ModelFiles, tmp_path: Path) -> None:
    async def go() -> None:
        policy = policy_of(tiny)
        control = LocalControl(policy)
        with pytest.raises(UsageError, match="pause it"):
            await control.update(tmp_path / "x.gguf", 1)
        await control.pause(PauseMode.KEEP)
        with pytest.raises(UsageError, match="holds 0 GGUF files"):
            await control.update(tmp_path, 1)
        await control.update(tmp_path / "x.gguf", 1)  # the engine does not run: its next start looks for the file
        with pytest.raises(ModelError, match="no model file"):
            await policy.start()
        await control.close()
        assert not policy.gate.paused

    asyncio.run(go())
