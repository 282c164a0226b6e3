"""The check of a policy when it is made: its log-probs are those of the whole model's own forward pass.

Truth is `model(input_ids).logits` of every row by itself, without cache and padding. The scorer pads right
and runs trunk and head apart; the sampler pads left and keeps a cache. What differs is computed another way
if there is one (a transform of the logits, decoding without cache), else the model is refused. `policy`
is a `CausalLMPolicy`, whose constructor calls `fit`.

Shapes: B rows, P prompt tokens, T response tokens, L tokens of a row, V vocabulary.
"""

import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from cory.batch import Rows
from cory.policies.head import measure

LENGTHS = (5, 2)
"""Prompt tokens of the two rows that are compared."""
STEPS, LONGER = 3, 16
"""Response tokens of each, and of those as long as the longest of a game."""


def fit(policy: Any) -> None:
    """Set a policy's logit transform, window and decoding; ValueError where its log-probs would differ."""
    check_torch()
    policy.window = getattr(policy.model.config.get_text_config(), "max_position_embeddings", None)
    if policy.device.type == "meta":  # a shape without numbers that could be compared
        return
    before = versions(policy)
    with refusals(policy), torch.no_grad(), policy.forward_context():
        policy.head = measure(policy.model, _ids(policy, min(8, policy.window or 8))[None])
        policy.window = _window(policy)
        if versions(policy) != before:
            raise ValueError("a forward pass changes its weights")
        _check_gradient(policy, _rows(policy, 0))
    check(policy)


def check(policy: Any, *, longest: int = 0) -> None:
    """Compare a policy's log-probs with its model's on two rows, one of them of `longest` tokens.

    Sets `policy.caches` to False where only decoding with a cache differs. ValueError where scoring differs.
    """
    with refusals(policy):
        rows = _rows(policy, longest)
        policy.max_rows(rows.max_length)
        with torch.no_grad():
            truth_BTV = torch.stack([_truth(policy, rows, row) for row in range(len(rows.prompt_BP))])
            scored_BTV = _scored(policy, rows).view_as(truth_BTV)
            if (apart := _difference(policy, scored_BTV, truth_BTV)) > 0:
                raise ValueError(
                    f"log-probs of rows in a padded batch differ by {apart:.2g} nats from those of the whole "
                    "model on each row alone"
                )
            if policy.caches and not _decodes_alike(policy, rows, truth_BTV):
                policy.caches = False
            if not policy.caches and (apart := _difference(policy, _decoded(policy, rows), truth_BTV)) > 0:
                raise ValueError(
                    f"sampled tokens have log-probs that differ by {apart:.2g} nats from scored ones"
                )


def versions(policy: Any) -> list[int]:
    """How often each weight has been written to."""
    return [weight._version for weight in policy.model.parameters()]


def check_torch() -> None:
    """Raise ValueError within `torch.inference_mode` and for a default dtype other than float32."""
    if torch.is_inference_mode_enabled():
        raise ValueError("policies made within torch.inference_mode cannot learn; leave that block first")
    if (dtype := torch.get_default_dtype()) != torch.float32:
        raise ValueError(
            f"torch's default dtype is {dtype}, and weights are trained in float32; call "
            "torch.set_default_dtype(torch.float32) first and choose bfloat16 products by policy.precision"
        )


@contextmanager
def refusals(policy: Any) -> Iterator[None]:
    """Turn whatever goes wrong with a model inside into one sentence with its class and what to do."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        reason = (str(error).strip().splitlines() or ["no message"])[0]
        raise ValueError(
            f"{type(policy.model).__name__} cannot be a policy ({kind}{reason}); take a model of an "
            "architecture that docs/api/families.md lists as trained"
        ) from error


def _ids(policy: Any, count: int, start: int = 1) -> Tensor:
    """Token ids spread over the vocabulary."""
    V: int = policy.vocab_size
    return (start + torch.arange(count, device=policy.device) * (V // 7 + 1)) % V


def _rows(policy: Any, longest: int) -> Rows:
    """Two rows of unequal prompts that fit the window."""
    steps = max(STEPS, min(LONGER, longest // 2))
    lengths = (max(longest - steps, LENGTHS[0]), LENGTHS[1])
    if policy.window is not None:
        lengths = (min(lengths[0], policy.window - steps), min(lengths[1], policy.window - steps))
    prompts = [_ids(policy, length, start=row + 1) for row, length in enumerate(lengths)]
    return Rows(
        prompt_BP=pad_sequence(prompts, batch_first=True, padding_value=policy.pad),
        prompt_length_B=torch.tensor(lengths, device=policy.device),
        response_BT=torch.stack([_ids(policy, steps, start=row + 3) for row in range(len(lengths))]),
        response_length_B=torch.full((len(lengths),), steps, device=policy.device),
    )


def _truth(policy: Any, rows: Rows, row: int) -> Tensor:
    """Log-probs [T, V] at the response positions of a row, by the whole model."""
    length = int(rows.prompt_length_B[row])
    ids_L = torch.cat([rows.prompt_BP[row, :length], rows.response_BT[row, :-1]])
    with policy.forward_context():
        out = policy.model(input_ids=ids_L[None], use_cache=False)
    return _log_softmax(out.logits[0, length - 1 :, : policy.vocab_size] / policy.temperature)


def _scored(policy: Any, rows: Rows) -> Tensor:
    """Log-probs [K, V] as the learner computes them."""
    return _log_softmax(policy.logits(policy.hidden_states(rows)))


def _decoded(policy: Any, rows: Rows) -> Tensor:
    """Log-probs [B, T, V] as the sampler computes them."""
    decoder = policy.decoder()
    with policy.forward_context():
        logits = [decoder.start(rows.prompt_BP, rows.prompt_length_B, tokens=rows.response_BT.shape[1])]
        logits += [decoder.step(token_B) for token_B in rows.response_BT[:, :-1].unbind(1)]
    return _log_softmax(torch.stack(logits, dim=1))


def _decodes_alike(policy: Any, rows: Rows, truth_BTV: Tensor) -> bool:
    """Whether decoding with a cache gives the model's log-probs; no if the model takes no such cache."""
    try:
        return _difference(policy, _decoded(policy, rows), truth_BTV) == 0
    except torch.OutOfMemoryError:
        raise
    except Exception:  # caches differ between architectures, and so do the errors of those without
        return False


def _log_softmax(logits: Tensor) -> Tensor:
    return logits.float().log_softmax(-1)


def _difference(policy: Any, ours: Tensor, truth: Tensor) -> float:
    """The largest difference in nats; 0 where it is rounding, which grows with the size of log-probs."""
    apart = (ours - truth).abs()
    bound = policy.tolerance / 4 * (1 + truth.abs() / 10)  # of tokens drawn, many more are compared
    return 0.0 if bool((apart <= bound).all()) else float(apart.nan_to_num(torch.inf).max())


def _check_gradient(policy: Any, rows: Rows) -> None:
    """Raise ValueError unless gradients are finite; that of the smallest parameter takes no memory."""
    trunk = [p for p in policy.model.base_model.parameters() if p.requires_grad]
    if trunk:
        with torch.enable_grad():
            total = _scored(policy, rows).sum()
            (gradient,) = torch.autograd.grad(total, [min(trunk, key=Tensor.numel)], allow_unused=True)
        if gradient is not None and not bool(gradient.isfinite().all()):
            raise ValueError("its gradient is not finite")


def _window(policy: Any) -> int | None:
    """The longest row whose log-probs do not depend on how long other rows of its batch are.

    That is the model's window, except where rotary positions are scaled by the longest row (longrope).
    """
    window: int | None = policy.window
    if window is None or "position_ids" not in inspect.signature(policy.model.base_model.forward).parameters:
        return window
    alone_LD = _beside(policy, 2)
    if torch.equal(alone_LD, _beside(policy, window)):
        return window
    fits, fails = 2, window
    while fails - fits > 1:
        middle = (fits + fails) // 2
        alike = torch.allclose(alone_LD, _beside(policy, middle), atol=1e-5, rtol=1e-4)
        fits, fails = (middle, fails) if alike else (fits, middle)
    warnings.warn(
        f"{type(policy.model).__name__} scales positions by the longest row of a batch beyond {fits} tokens: "
        f"rows would depend on their neighbours, so {fits} tokens count as its window",
        stacklevel=2,
    )
    return fits


def _beside(policy: Any, length: int) -> Tensor:
    """Last hidden states [L, D] of a row of two tokens in a batch with the last two of a row of `length`."""
    ids_BL = _ids(policy, 2).expand(2, 2)
    position_BL = torch.tensor([[0, 1], [length - 2, length - 1]], device=policy.device)
    inputs: dict[str, Any] = {"attention_mask": torch.ones_like(ids_BL), "use_cache": False}
    states: Tensor = policy.trunk(input_ids=ids_BL, position_ids=position_BL, **inputs).last_hidden_state
    return states[0]
