"""Few calls lie between one iteration of training and the loss of a token."""

import inspect
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

import cory
from cory.algorithms import ppo
from cory.config.schema import PolicyConfig
from cory.training.trainer import Trainer
from tests.helpers.tables import TABLES

PACKAGE = Path(cory.__file__).parent
LONGEST = 5


def frames_to(function: str) -> list[FrameType]:
    """The frames from the caller, the innermost, to the one of `function` (exclusive)."""
    frames, frame = [], sys._getframe(1)
    while frame.f_code.co_name != function:
        frames.append(frame)
        assert frame.f_back is not None, f"{function} is not on the stack"
        frame = frame.f_back
    return frames


@pytest.mark.parametrize("kind", ["table", "causal_lm"])
def test_at_most_five_frames_and_no_generator_lie_between_an_iteration_and_a_tokens_loss(
    kind, tiny_folder, monkeypatch
):
    stacks: list[list[FrameType]] = []
    plain = ppo.policy_loss

    def spy(*tensors, **options):  # called by ppo.token_loss
        stacks.append(frames_to("iterate")[1:])
        return plain(*tensors, **options)

    monkeypatch.setattr(ppo, "policy_loss", spy)
    policy = PolicyConfig(kind=kind, model=str(tiny_folder))
    Trainer(replace(TABLES, policy=policy, batch=4)).iterate(0)
    assert len(stacks) == 2 * 4  # two policies, four epochs
    for stack in stacks:
        codes = [frame.f_code for frame in stack]
        assert not [code.co_qualname for code in codes if code.co_flags & inspect.CO_GENERATOR]
        ours = [code.co_qualname for code in codes if PACKAGE in Path(code.co_filename).parents]
        assert ours[0] == "token_loss"
        assert len(ours) <= LONGEST, ours
