"""A lookup-table policy for tests and tiny games.

Shapes: B rows, P prompt tokens, T response tokens, K chosen tokens, V vocabulary.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import one_hot, pad

from cory.batch import Rows
from cory.policies.base import Policy


class TablePolicy(Policy):
    """Next-token logits and values looked up by response position and the prompt's token at that position."""

    def __init__(
        self, name: str, *, vocab_size: int, eos: frozenset[int], pad: int, max_response: int
    ) -> None:
        super().__init__()
        self.name, self.vocab_size, self.eos, self.pad = name, vocab_size, eos, pad
        self.logits_SV = nn.Parameter(torch.zeros(max_response * vocab_size, vocab_size))
        self.values_S = nn.Parameter(torch.zeros(max_response * vocab_size))

    def save(self, folder: str | Path) -> None:
        """Write one safetensors file."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        save_file(self.state_dict(), Path(folder) / "table.safetensors")

    def restore(self, folder: str | Path) -> None:
        """Load what `save` wrote, in place."""
        path = Path(folder) / "table.safetensors"
        try:
            saved = load_file(path)
        except (OSError, SafetensorError) as error:
            raise ValueError(f"no table could be read from {path} ({error})") from error
        if any(saved[name].shape != table.shape for name, table in self.state_dict().items()):
            raise ValueError(
                f"{folder} holds a table of shape {tuple(saved['logits_SV'].shape)}; this task and response "
                f"cap need {tuple(self.logits_SV.shape)}: name a table that was trained on the same task"
            )
        self.load_state_dict(saved)

    def cell(self, prompt_BP: Tensor, prompt_length_B: Tensor, at_T: Tensor) -> Tensor:
        """Return the rows of the table [B, T] for response positions `at_T`.

        A prompt that is shorter than a position counts with its last token.
        """
        read_BT = torch.minimum(at_T[None], prompt_length_B[:, None] - 1)
        return at_T * self.vocab_size + prompt_BP.gather(1, read_BT)

    def hidden_states(self, rows: Rows) -> Tensor:
        at_T = torch.arange(rows.response_BT.shape[1], device=rows.response_BT.device)
        return rows.chosen(self.cell(rows.prompt_BP, rows.prompt_length_B, at_T))

    def logits(self, state_KD: Tensor) -> Tensor:
        return self.logits_SV[state_KD] / self.temperature

    def values(self, state_KD: Tensor) -> Tensor:
        return self.values_S[state_KD]

    def head_parameters(self) -> Sequence[nn.Parameter]:
        return [self.logits_SV, self.values_S]

    def value_parameters(self) -> Sequence[nn.Parameter]:
        return [self.values_S]

    def critic_states(self, rows: Rows, max_length: int) -> Tensor:
        """Return the tokens before each chosen one, one-hot by position [K, max_length x V].

        The policy's own cells see one prompt token only.
        """
        ids_BL, at_K = rows.input_ids(), rows.predicting_positions()
        L = ids_BL.shape[1]
        ids_KL = ids_BL[at_K // L]
        before_KL = torch.arange(L, device=ids_KL.device) <= (at_K % L)[:, None]
        one_hot_KLV = one_hot(ids_KL, self.vocab_size) * before_KL[..., None]
        return pad(one_hot_KLV.flatten(1), (0, (max_length - L) * self.vocab_size))

    def decoder(self) -> "TableDecoder":
        return TableDecoder(self)


class TableDecoder:
    """Decoder of a table: stores the prompts and the response position."""

    def __init__(self, policy: TablePolicy) -> None:
        self.policy = policy
        self.t = 0

    def start(self, prompt_BP: Tensor, prompt_length_B: Tensor, *, tokens: int) -> Tensor:
        self.prompt_BP, self.prompt_length_B = prompt_BP, prompt_length_B
        return self._logits()

    def step(self, token_B: Tensor) -> Tensor:
        self.t += 1
        return self._logits()

    def _logits(self) -> Tensor:
        at_1 = torch.tensor([self.t], device=self.prompt_BP.device)
        return self.policy.logits(self.policy.cell(self.prompt_BP, self.prompt_length_B, at_1)[:, 0])
