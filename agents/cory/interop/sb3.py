"""Stable-Baselines3 on the vocabulary of a language model: a features extractor, a trained model as player.

Imports the library; nothing else in the package imports this module. Knows no games.

Shapes: B rows, L tokens of an observation, D width of the embeddings.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn


class TokenFeatures(BaseFeaturesExtractor):
    """Features of padded token ids, [B, L] -> [B, D]: a layer on the mean and the last token's embedding.

    One row of ids takes L numbers in buffers; one-hot vectors would take L times the vocabulary.
    """

    def __init__(self, observation_space: Any, *, embeddings: Tensor, pad: int, freeze: bool = True) -> None:
        """`embeddings` [vocabulary, D] are copied, as those of a language model, and stay fixed if `freeze`.

        ValueError if the observations are no row of ids, or hold ids without an embedding.
        """
        width = embeddings.shape[-1]
        super().__init__(observation_space, features_dim=width)
        ids = getattr(observation_space, "high", np.zeros(()))
        if ids.ndim != 1 or observation_space.dtype.kind != "i":
            raise ValueError(f"the observations are {observation_space}; give rows of token ids, not one-hot")
        if int(ids.max()) >= len(embeddings):
            raise ValueError(
                f"observations hold ids up to {int(ids.max())}, and there are {len(embeddings)} embeddings; "
                "give those of the model whose tokenizer the task has"
            )
        self.pad = pad
        self.embedding = nn.Embedding.from_pretrained(embeddings.detach().clone(), freeze=freeze)
        self.layer = nn.Sequential(nn.Linear(2 * width, width), nn.Tanh())

    def forward(self, observations: Tensor) -> Tensor:
        """Features of observations, which Stable-Baselines3 hands over as floats."""
        ids_BL = observations.long()
        real_BL1 = (ids_BL != self.pad).unsqueeze(-1)
        count_B1 = real_BL1.sum(1).clamp(min=1)
        vectors_BLD = self.embedding(ids_BL) * real_BL1
        positions_L1 = torch.arange(ids_BL.shape[1], device=ids_BL.device).unsqueeze(-1)
        last_B = (real_BL1 * positions_L1).amax(1)[:, 0]  # a response may hold the padding's id
        last_BD = vectors_BLD[torch.arange(len(ids_BL)), last_B]
        features_BD: Tensor = self.layer(torch.cat([vectors_BLD.sum(1) / count_B1, last_BD], dim=1))
        return features_BD


class SB3Player:
    """A trained model of Stable-Baselines3 that plays by `act`, as `cory evaluate` calls it."""

    def __init__(self, model: Any, *, deterministic: bool = False) -> None:
        """`model` was trained in `cory_env.seat_env` with the same task and response cap."""
        self.model, self.deterministic = model, deterministic

    def act(self, observation: np.ndarray, info: Mapping[str, Any]) -> int:  # noqa: ARG002 (the contract)
        """The next token id for a row of ids."""
        action, _ = self.model.predict(observation, deterministic=self.deterministic)
        return int(action)
