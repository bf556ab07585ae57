"""slime: `Sample`, its debug rollout file, its own conversion, split and policy loss, from its public source."""

from __future__ import annotations

import asyncio
import itertools
import os
from types import SimpleNamespace
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compiling a loss takes a minute and changes nothing here

import numpy as np
import pytest
import torch

from rollbook.export import export
from rollbook.export.conformance.made import cases
from rollbook.export.doors import slime as door
from rollbook.rollout import LoadedPolicy
from rollbook.run.doors.slime import Generate, post_process_rewards
from rollbook.trace import MemorySink, Reason, RolloutFailure, Task
from rollbook.trace.sample import Sample as OurSample
from tests.rollout.made import SMOLLM, Engine, Talk, says
from tests.slow.trainers.absent import stand_in
from tests.slow.trainers.recorder import need_source
from tests.slow.trainers.toy import LINEAR, Table, made

need_source("slime")
MPU = SimpleNamespace(
    get_context_parallel_world_size=lambda: 1,
    get_context_parallel_rank=lambda: 0,
    get_tensor_model_parallel_group=lambda: None,
    is_pipeline_last_stage=lambda: True,
)
stand_in("sglang", "sglang_router", "megatron", needed={"megatron.core.mpu": MPU})

from slime.backends.megatron_utils import loss as slime_loss
from slime.backends.megatron_utils.cp_utils import get_sum_of_sample_mean
from slime.observability import rollout_data_utils as data_utils
from slime.ray.rollout import RolloutManager
from slime.utils.types import Sample

ARGS = SimpleNamespace(
    advantage_estimator="grpo",
    rewards_normalization=True,
    grpo_std_normalization=False,
    n_samples_per_prompt=len(LINEAR),
    rollout_batch_size=1,
    reward_key=None,
    rollout_top_p=1.0,
    rollout_temperature=1.0,
    log_probs_chunk_size=-1,
    allgather_cp=False,
    use_rollout_logprobs=True,
    use_opsm=False,
    eps_clip=0.2,
    eps_clip_high=0.2,
    eps_clip_c=None,
    get_mismatch_metrics=False,
    use_tis=False,
    entropy_coef=0.0,
    use_kl_loss=False,
    kl_coef=0.0,
    custom_advantage_function_path=None,
    use_opd=False,
    normalize_advantages=False,
    calculate_per_token_loss=False,
)


def theirs(samples: list[OurSample]) -> list[Sample]:
    return [Sample.from_dict(each) for each in door.records(samples)]


def manager(hook: Any = None) -> Any:
    """slime's rollout manager without its engines: what converts samples."""
    raw = RolloutManager.__ray_metadata__.modified_class
    made_manager = raw.__new__(raw)
    made_manager.args = ARGS
    made_manager.custom_reward_post_process_func = hook
    made_manager.custom_convert_samples_to_train_data_func = None
    return made_manager


def batch(samples: list[Sample], hook: Any = None) -> dict[str, Any]:
    """As slime's trainer has it: its own conversion, its own tensors, its own advantages."""
    data = manager(hook)._convert_samples_to_train_data(samples)
    data["total_lengths"] = [len(each) for each in data["tokens"]]
    data_utils.tensorize_rollout_data_for_training(data)
    data["unconcat_tokens"] = data["tokens"]
    slime_loss.compute_advantages_and_returns(ARGS, data)
    return data


def loss_of(model: Table, data: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """slime's policy loss, and the logits that it was computed from, so that their gradient can be seen."""
    logits = model(torch.cat(data["tokens"]))[None].detach().requires_grad_()
    reducer = get_sum_of_sample_mean(
        data["total_lengths"], data["response_lengths"], data["loss_masks"], data["rollout_mask_sums"]
    )
    loss, _ = slime_loss.policy_loss_function(ARGS, data, logits, reducer)
    return loss, logits


def predicted(data: dict[str, Any]) -> torch.Tensor:
    """bool over the packed logits: the token that this position predicts trains."""
    parts = []
    for total, answer, mask in zip(data["total_lengths"], data["response_lengths"], data["loss_masks"], strict=True):
        full = torch.zeros(total, dtype=torch.bool)
        full[total - answer - 1 : total - 1] = mask.bool()
        parts.append(full)
    return torch.cat(parts)


@pytest.mark.parametrize("name", [*LINEAR, "three_branches", "lost_end"])
def test_a_record_is_slimes_sample_and_comes_back(name: str) -> None:
    for record in door.records(made(name)):
        sample = Sample.from_dict(record)
        sample._validate_response_metadata_lengths()
        again = sample.to_dict()
        for key, value in record.items():
            assert again[key] == value or key in ("spec_info", "prefix_cache_info"), key
        assert set(record) == set(Sample.__dataclass_fields__)


def test_slime_appends_what_our_record_holds() -> None:
    """Built token by token with slime's own method, a sample of two turns is our record."""
    (ours,) = made("two_turns")
    record = door.record(ours, door.Numbers())
    start = ours.prompt_len
    built = Sample(tokens=ours.token_ids[:start].tolist())
    bounds = [0, *(np.flatnonzero(np.diff(ours.loss_mask[start:].astype(int))) + 1).tolist(), len(ours) - start]
    for first, last in itertools.pairwise(bounds):
        trains = bool(ours.loss_mask[start + first])
        piece = ours.token_ids[start + first : start + last].tolist()
        logprobs = ours.logprobs[start + first : start + last].tolist() if trains else None
        built.append_response_tokens(tokens=piece, log_probs=logprobs, trainable=trains)
    for key in ("tokens", "response_length", "loss_mask", "rollout_log_probs"):
        assert getattr(built, key) == record[key], key


def test_the_debug_rollout_file_is_read_by_slime(tmp_path: Any) -> None:
    sink = MemorySink()
    for case in cases():
        sink.seal(case.trace)
    done = export(sink, "slime", tmp_path / "rollout_0.pt")
    loaded = data_utils.load_debug_rollout_data(str(tmp_path / "rollout_{rollout_id}.pt"), rollout_id=0)
    assert len(loaded) == done.samples
    assert sum(sum(each.loss_mask) for each in loaded) == done.trained
    data_utils.save_debug_rollout_data(str(tmp_path / "again.pt"), loaded, rollout_id=0, evaluation=False)
    again = data_utils.load_debug_rollout_data(str(tmp_path / "again.pt"), rollout_id=0)
    assert [each.to_dict() for each in again] == [each.to_dict() for each in loaded]


def test_branches_of_one_attempt_pass_slimes_own_check() -> None:
    branches = theirs(made("three_branches"))
    data_utils.validate_rollout_id_annotated([[branches]])
    branches[0].rollout_id = 7
    with pytest.raises(AssertionError, match="share rollout_id"):
        data_utils.validate_rollout_id_annotated([[branches]])


def test_recomputed_logprobs_are_the_behaviours() -> None:
    """slime's own shift: its logprobs of our tokens, with the weights that sampled them, are those in the record."""
    data = batch(theirs(made(*LINEAR)))
    logits = Table()(torch.cat(data["tokens"]))[None]
    _, found = slime_loss.get_log_probs_and_entropy(
        logits,
        args=ARGS,
        unconcat_tokens=data["tokens"],
        total_lengths=data["total_lengths"],
        response_lengths=data["response_lengths"],
    )
    for new, old, mask in zip(found["log_probs"], data["rollout_log_probs"], data["loss_masks"], strict=True):
        assert (new - old)[mask.bool()].abs().max() < 1e-5


def test_masked_tokens_have_exactly_no_gradient() -> None:
    data = batch(theirs(made(*LINEAR)))
    loss, logits = loss_of(Table(), data)
    loss.backward()
    pulled = (logits.grad[0] != 0).any(dim=-1)
    assert torch.equal(pulled, predicted(data))


def test_slimes_group_norm_over_the_voters_is_our_advantage() -> None:
    ours = made(*LINEAR, "lost_host", "unscored")
    data = batch(theirs(ours))
    assert len(ours) == len(LINEAR)
    assert data["rewards"] == pytest.approx([each.advantage for each in ours], abs=1e-6)


def test_an_attempt_with_branches_weighs_as_much_as_one_without() -> None:
    """Each attempt's pull over its advantage is 1, whatever it fans out to."""
    ours = made("one_turn", "two_turns", "three_branches")
    data = batch(theirs(ours), hook=lambda args, samples: ([s.reward for s in samples], [1.0] * len(samples)))
    model, pull = Table(), dict[str, float]()
    loss, logits = loss_of(model, data)
    loss.backward()
    own = logits.grad[0].gather(-1, torch.cat([tokens.roll(-1) for tokens in data["tokens"]])[:, None])[:, 0]
    chance = torch.softmax(logits.detach()[0], -1).gather(-1, torch.cat([t.roll(-1) for t in data["tokens"]])[:, None])
    given = own / (1 - chance[:, 0])  # d loss / d logprob of the token that comes next
    start = 0
    for sample, total in zip(ours, data["total_lengths"], strict=True):
        pull[sample.rollout] = pull.get(sample.rollout, 0.0) - float(given[start : start + total].sum())
        start += total
    assert pull == pytest.approx(dict.fromkeys(pull, 1.0), abs=1e-4)


def test_a_removed_sample_changes_no_gradient() -> None:
    """What a live door hands over for an attempt without a vote: its prompt, nothing of a response, and no vote."""
    ours = made("one_turn", "two_turns")
    hook = lambda args, samples: ([0.0] * len(samples), [0.5 if s.response_length else 0.0 for s in samples])  # noqa: E731
    alone = batch(theirs(ours), hook)
    lost = Sample(tokens=[1, 2, 3], loss_mask=[], rollout_log_probs=[], reward=0.0, remove_sample=True, rollout_id=9)
    beside = batch([*theirs(ours), lost], hook)
    first, second = loss_of(Table(), alone), loss_of(Table(), beside)
    first[0].backward()
    second[0].backward()
    assert float(first[0]) == float(second[0])
    assert torch.equal(first[1].grad[0], second[1].grad[0][: first[1].shape[1]])
    assert not second[1].grad[0][first[1].shape[1] :].any()


def test_our_rollouts_as_slimes_generate_function_and_its_reward_hook() -> None:
    """Two attempts and one whose engine is gone: slime's own conversion and loss take what comes back."""

    async def rolled(member: int, engine: Engine) -> list[Sample]:
        generate = Generate(
            lambda: Talk("Again."),
            lambda sample: Task(id="t", prompt=sample.prompt, target=sample.label),
            LoadedPolicy(engine, SMOLLM.renderer),
        )
        given = Sample(group_index=4, index=member, prompt="What is the sum of two and three?", label="5")
        return await generate(ARGS, given, {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_new_tokens": 32})

    async def group() -> list[list[Sample]]:
        lost = Engine([RolloutFailure(Reason.ENGINE_CONTRACT, "gone")])
        engines = (Engine([says("4"), says("5")]), Engine([says("five"), says("5")]), lost)
        return [await rolled(member, engine) for member, engine in enumerate(engines)]

    made_group = asyncio.run(group())
    data_utils.validate_rollout_id_annotated([made_group])
    samples = list(itertools.chain.from_iterable(made_group))
    samples[0].reward = 0.0
    assert [sample.status for sample in samples] == [Sample.Status.COMPLETED] * 2 + [Sample.Status.FAILED]
    data = manager(post_process_rewards)._convert_samples_to_train_data(samples)
    assert data["rewards"] == [-0.5, 0.5, 0.0]
    assert data["rollout_ids"] == [0, 1, 2]
    assert [sum(mask) for mask in data["loss_masks"]][2] == 0
    assert min(sum(mask) for mask in data["loss_masks"][:2]) > 0
