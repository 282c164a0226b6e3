"""The features extractor for Stable-Baselines3, by hand, and a model of it as a player."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from stable_baselines3 import PPO

from cory.interop.sb3 import SB3Player, TokenFeatures
from cory_env import one_hot, seat_env

EMBEDDINGS = torch.tensor([[9.0, 9.0], [1.0, 0.0], [0.0, 2.0], [4.0, 4.0]])
SPACE = Box(0, 3, (4,), np.int64)


@pytest.fixture
def features():
    return TokenFeatures(SPACE, embeddings=EMBEDDINGS, pad=0)


def test_features_are_a_layer_on_the_mean_and_the_last_token(features):
    with torch.no_grad():
        features.layer[0].weight.copy_(torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 1.0]]))
        features.layer[0].bias.zero_()
    rows = torch.tensor([[1.0, 2, 0, 0], [3, 3, 1, 2], [0, 0, 0, 0]])
    # [mean of the first coordinate, the last token's second one]; pads count for nothing.
    want = torch.tensor([[0.5, 2.0], [9 / 4, 2.0], [0.0, 0.0]]).tanh()
    torch.testing.assert_close(features(rows), want)
    # a pad that a response holds ends nothing: the last token is 2, of (1 + 0) / 2 and 2
    torch.testing.assert_close(features(torch.tensor([[1.0, 0, 0, 2]])), torch.tensor([[0.5, 2.0]]).tanh())


def test_embeddings_are_a_copy_that_learns_only_if_asked(features):
    assert not features.embedding.weight.requires_grad
    assert features.embedding.weight.data_ptr() != EMBEDDINGS.data_ptr()
    assert TokenFeatures(SPACE, embeddings=EMBEDDINGS, pad=0, freeze=False).embedding.weight.requires_grad


def test_ids_without_embeddings_and_one_hot_rows_are_refused():
    with pytest.raises(ValueError, match=r"ids up to 3, and there are 2 embeddings"):
        TokenFeatures(SPACE, embeddings=EMBEDDINGS[:2], pad=0)
    with pytest.raises(ValueError, match="give rows of token ids, not one-hot"):
        TokenFeatures(one_hot(seat_env()).observation_space, embeddings=EMBEDDINGS, pad=0)


def test_a_model_of_it_plays_by_act():
    env = seat_env("pioneer_0", "echo", max_response=3)
    kwargs = {"embeddings": torch.randn(8, 4), "pad": 7}
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=8,
        batch_size=8,
        seed=0,
        device="cpu",
        policy_kwargs={"features_extractor_class": TokenFeatures, "features_extractor_kwargs": kwargs},
    )
    assert model.learn(8).rollout_buffer.observations.shape == (8, 9)  # ids, not 9 x 8 floats
    with torch.no_grad():
        model.policy.action_net.bias[5] = 50.0
    observation, info = env.reset(seed=0)
    assert SB3Player(model).act(observation, info) == 5
