"""PPO's losses beside TorchRL's `ClipPPOLoss`, which holds new values near old ones as we do."""

import pytest
import torch
from torch import nn

pytest.importorskip("torchrl", reason="needs the extra `interop`")
from tensordict import TensorDict
from tensordict.nn import ProbabilisticTensorDictModule, ProbabilisticTensorDictSequential, TensorDictModule
from torch.distributions import Categorical
from torchrl.objectives import ClipPPOLoss

from cory.algorithms import ppo
from cory.token_loss import Tokens

pytestmark = pytest.mark.interop

K, V = 64, 5


def test_policy_and_value_loss_are_those_of_clip_ppo_loss():
    """Its critic loss is the square, not half of it; ratios and values lie on both sides of the bounds."""
    torch.manual_seed(0)
    actor, critic = nn.Linear(3, V), nn.Linear(3, 1)
    state_KD, action_K = torch.randn(K, 3), torch.randint(V, (K,))
    advantage_K, return_K = torch.randn(2, K)
    with torch.no_grad():
        logp_KV = actor(state_KD).log_softmax(-1)
        logprob_K, value_K = logp_KV.gather(1, action_K[:, None]).squeeze(1), critic(state_KD).squeeze(1)
        old_logprob_K = logprob_K + 0.4 * torch.randn(K)
        old_value_K = value_K + 0.4 * torch.randn(K)
    loss = ClipPPOLoss(
        ProbabilisticTensorDictSequential(
            TensorDictModule(actor, in_keys=["observation"], out_keys=["logits"]),
            ProbabilisticTensorDictModule(
                in_keys=["logits"], out_keys=["action"], distribution_class=Categorical, return_log_prob=True
            ),
        ),
        TensorDictModule(critic, in_keys=["observation"], out_keys=["state_value"]),
        clip_epsilon=0.2,
        clip_value=0.2,
        loss_critic_type="l2",
        critic_coeff=1.0,
        entropy_bonus=False,
        normalize_advantage=False,
    )
    rows = {
        "observation": state_KD,
        "action": action_K,
        loss.tensor_keys.sample_log_prob: old_logprob_K,
        "advantage": advantage_K[:, None],
        "value_target": return_K[:, None],
        "state_value": old_value_K[:, None],
    }
    theirs = loss(TensorDict(rows, batch_size=[K]))
    tokens = Tokens(
        logprob_K=logprob_K,
        value_K=value_K,
        entropy_K=torch.zeros(K),
        exact_kl_K=None,
        old_logprob_K=old_logprob_K,
        ref_logprob_K=torch.zeros(K),
        old_value_K=old_value_K,
        advantage_K=advantage_K,
        return_K=return_K,
    )
    ours = ppo.token_loss(tokens, ppo.Config(clip=0.2, value_clip=0.2)).metrics
    torch.testing.assert_close(ours["policy_loss"].mean(), theirs["loss_objective"].detach())
    torch.testing.assert_close(2 * ours["value_loss"].mean(), theirs["loss_critic"].detach())
    assert 0.1 < ours["clip_share"].mean() < theirs["clip_fraction"] < 0.9
    assert 0.1 < theirs["value_clip_fraction"] < 0.9
