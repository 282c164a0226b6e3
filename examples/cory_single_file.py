"""CORY in one file: two copies of an LLM play pioneer and observer, learn by PPO, and exchange roles.

    python examples/cory_single_file.py --iterations 20

The pocket model continues openings of movie reviews; a small classifier scores them (log odds of positive).
All of the method is here in plain torch and transformers; only the game (`cory_env.VectorGame`: who reads
what, who is paid what) is imported. `tests/examples/test_cory_single_file.py` checks `PPO` against numbers
that the released code computes. The package `cory` adds speed, checkpoints, evaluation, and much more.

Paper: arXiv:2410.06101. Shapes: B games, P prompt tokens, T response tokens, L = P + T, V vocabulary.
`mask_BT` is True at response tokens. Prompts are padded on the left, responses on the right.
"""

import argparse
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from cory import pocket
from cory_env import VectorGame, tasks
from cory_env.tokenizer import HFTokenizer


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The paper's PPO (table 1); learning rate and KL as in the pocket preset."""

    lr: float = 1e-4
    epochs: int = 4
    minibatch: int | None = None
    """Rows per micro-batch; None = the whole batch."""
    accumulate: int = 1
    """Micro-batches per optimiser step; the loss is the mean of their means, as in the released code."""
    gamma: float = 1.0
    lam: float = 0.95
    clip: float = 0.2
    value_clip: float = 0.2
    value_coef: float = 0.1
    kl: str = "k1"
    """Estimator of KL(policy || reference) in the reward: k1, k2, abs, or full over the vocabulary."""
    kl_coef: float = 0.2
    kl_target: float | None = None
    """Adapt the KL coefficient towards this KL per response in nats; None = keep it."""
    kl_horizon: int = 10_000
    scale: str = "none"
    """`scale` divides payoffs by their running deviation, `normalise` subtracts the running mean first."""
    payoff_clip: float | None = None
    whiten_rewards: bool = False
    """As in the released code, whose rewards behind a response are whitened too."""


@dataclass
class Rollout:
    """Prompts and responses of one seat with everything PPO needs; zero where `mask_BT` is False."""

    prompt_BP: Tensor
    real_BP: Tensor
    """True = a prompt token, False = padding."""
    response_BT: Tensor
    mask_BT: Tensor
    payoff_B: Tensor
    old_BT: Tensor = field(init=False)
    values_BT: Tensor = field(init=False)
    kl_BT: Tensor = field(init=False)
    rewards_BT: Tensor = field(init=False)
    advantages_BT: Tensor = field(init=False)
    returns_BT: Tensor = field(init=False)


class Policy(nn.Module):
    """A causal LM with a linear value head on its last hidden state."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.eval()  # no dropout: the scored distribution is the sampled one
        self.value_head = nn.Linear(model.config.hidden_size, 1)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)

    def hidden(self, ids_BL: Tensor, real_BL: Tensor) -> Tensor:
        """Last hidden states [B, L, D]; positions count real tokens only."""
        position_BL = (real_BL.long().cumsum(1) - 1).clamp(min=0)
        inputs = {"attention_mask": real_BL.long(), "position_ids": position_BL}
        return self.model.base_model(ids_BL, **inputs).last_hidden_state

    def forward(self, r: Rollout) -> tuple[Tensor, Tensor]:
        """Logits [B, T, V] and values [B, T] in the states in which the response tokens are chosen."""
        ids_BL = torch.cat([r.prompt_BP, r.response_BT], dim=1)
        real_BL = torch.cat([r.real_BP, torch.ones_like(r.mask_BT)], dim=1)
        state_BTD = self.hidden(ids_BL, real_BL)[:, r.prompt_BP.shape[1] - 1 : -1]
        return self.model.lm_head(state_BTD), self.value_head(state_BTD).squeeze(-1)

    @torch.no_grad()
    def respond(self, prompt_BP: Tensor, real_BP: Tensor, caps_B: Tensor, eos: list) -> tuple[Tensor, Tensor]:
        """Sample responses [B, T] up to EOS or the cap of each row; and their mask."""
        ids_BL, real_BL, columns, masks = prompt_BP, real_BP, [], []
        active_B = torch.ones(len(prompt_BP), dtype=torch.bool)
        for t in range(int(caps_B.max())):
            hidden_BLD = self.hidden(ids_BL, real_BL)
            token_B1 = torch.multinomial(self.model.lm_head(hidden_BLD[:, -1]).softmax(-1), 1)
            columns.append(token_B1[:, 0] * active_B)
            masks.append(active_B)
            active_B = active_B & ~torch.isin(token_B1[:, 0], torch.tensor(eos)) & (t + 1 < caps_B)
            ids_BL, real_BL = torch.cat([ids_BL, token_B1], 1), pad(real_BL, (0, 1), value=True)
            if not active_B.any():
                break
        return torch.stack(columns, 1), torch.stack(masks, 1)


def token_logprobs(logits_BTV: Tensor, response_BT: Tensor) -> Tensor:
    """Log-probabilities [B, T] of the response tokens."""
    return logits_BTV.log_softmax(-1).gather(-1, response_BT[..., None]).squeeze(-1)


def whiten(values_BT: Tensor, mask_BT: Tensor, *, shift_mean: bool = True) -> Tensor:
    """Response tokens with deviation 1, and mean 0 unless `shift_mean` is off."""
    chosen = values_BT[mask_BT]
    white_BT = (values_BT - chosen.mean()) * torch.rsqrt(chosen.var() + 1e-8)
    return white_BT if shift_mean else white_BT + chosen.mean()


class PPO:
    """PPO with a KL penalty for one policy, which keeps all of this through every exchange."""

    def __init__(self, policy: Policy, reference: Policy, settings: Settings) -> None:
        self.policy, self.reference, self.s = policy, reference.requires_grad_(False), settings
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=settings.lr)
        self.kl_coef = settings.kl_coef
        self.mean, self.var, self.count = 0.0, 1.0, 1e-24

    def update(self, r: Rollout, orders: list[Tensor]) -> list[dict[str, float]]:
        """One PPO update, one pass per order (a permutation of the rows); losses by micro-batch."""
        self.evaluate(r)
        self.reward(r)
        self.advantage(r)
        history = []
        for order_B in orders:
            parts = order_B.split(self.s.minibatch or len(order_B))
            for start in range(0, len(parts), self.s.accumulate):
                self.optimizer.zero_grad()
                for part_B in parts[start : start + self.s.accumulate]:
                    losses = self.loss(r, part_B)
                    (losses["total"] / self.s.accumulate).backward()
                    history.append({name: loss.item() for name, loss in losses.items()})
                self.optimizer.step()
        if self.s.kl_target is not None:  # arXiv:1909.08593, section 2.2
            kl = (r.kl_BT * r.mask_BT).sum(1).mean().item()
            error = min(max(kl / self.s.kl_target - 1, -0.2), 0.2)
            self.kl_coef *= 1 + error * len(r.payoff_B) / self.s.kl_horizon
        return history

    @torch.no_grad()
    def evaluate(self, r: Rollout) -> None:
        """Log-probs, values and KL before the update, of policy and reference under the same prompt."""
        (logits_BTV, r.values_BT), (ref_logits_BTV, _) = self.policy(r), self.reference(r)
        r.old_BT = token_logprobs(logits_BTV, r.response_BT)
        logp_BTV, ref_logp_BTV = logits_BTV.log_softmax(-1), ref_logits_BTV.log_softmax(-1)
        log_ratio_BT = r.old_BT - token_logprobs(ref_logits_BTV, r.response_BT)
        r.kl_BT = {
            "k1": log_ratio_BT,
            "k2": log_ratio_BT.square() / 2,
            "abs": log_ratio_BT.abs(),
            "full": (logp_BTV.exp() * (logp_BTV - ref_logp_BTV)).sum(-1),
        }[self.s.kl]

    def reward(self, r: Rollout) -> None:
        """r_t = -kl_coef KL_t, plus the payoff (the collective reward) at the last token (eq. 2 and 4)."""
        r.rewards_BT = -self.kl_coef * r.kl_BT * r.mask_BT
        last_B = r.mask_BT.sum(1) - 1
        r.rewards_BT[torch.arange(len(last_B)), last_B] += self.scaled(r.payoff_B)

    def scaled(self, payoff_B: Tensor) -> Tensor:
        """Payoffs scaled by running statistics of all payoffs so far, if asked for (Chan et al. 1979)."""
        if self.s.scale != "none":
            n, mean, var = len(payoff_B), payoff_B.mean().item(), payoff_B.var(correction=0).item()
            total, delta = self.count + n, mean - self.mean
            spread = self.var * self.count + var * n + delta**2 * self.count * n / total
            self.mean, self.var, self.count = self.mean + delta * n / total, spread / total, total
            std = (self.var * self.count / (self.count - 1)) ** 0.5 + torch.finfo(payoff_B.dtype).eps
            payoff_B = (payoff_B - (self.mean if self.s.scale == "normalise" else 0.0)) / std
        c = self.s.payoff_clip
        return payoff_B if c is None else payoff_B.clamp(-c, c)

    def advantage(self, r: Rollout) -> None:
        """Generalised advantage estimation (arXiv:1506.02438); returns before, advantages after whitening."""
        rewards_BT = r.rewards_BT
        beyond_B = torch.zeros_like(r.payoff_B)
        if self.s.whiten_rewards:
            beyond_B = self.leaked_advantage(r)
            rewards_BT = whiten(rewards_BT, r.mask_BT, shift_mean=False)
        next_B, advantages, last_B = torch.zeros_like(beyond_B), [], beyond_B
        for t in reversed(range(rewards_BT.shape[1])):
            value_B = r.values_BT[:, t] * r.mask_BT[:, t]
            delta_B = rewards_BT[:, t] + self.s.gamma * next_B - value_B
            last_B = torch.where(r.mask_BT[:, t], delta_B + self.s.gamma * self.s.lam * last_B, beyond_B)
            next_B = value_B
            advantages.append(last_B)
        raw_BT = torch.stack(advantages[::-1], 1)
        r.returns_BT = (raw_BT + r.values_BT) * r.mask_BT
        r.advantages_BT = whiten(raw_BT, r.mask_BT) * r.mask_BT

    def leaked_advantage(self, r: Rollout) -> Tensor:
        """The advantage past each response in the released code, which whitens padding too."""
        chosen, length_B = r.rewards_BT[r.mask_BT], r.real_BP.sum(1) + r.mask_BT.sum(1)
        phantom = chosen.mean() * (1 - torch.rsqrt(chosen.var() + 1e-8))
        steps_B = length_B.max() - length_B
        decay = self.s.gamma * self.s.lam
        return phantom * torch.stack([(decay ** torch.arange(int(n))).sum() for n in steps_B])

    def loss(self, r: Rollout, part_B: Tensor) -> dict[str, Tensor]:
        """Clipped policy loss + value_coef * clipped value loss, means over tokens."""
        fields = ("prompt_BP", "real_BP", "response_BT", "mask_BT", "payoff_B")
        logits_BTV, value_BT = self.policy(Rollout(**{name: getattr(r, name)[part_B] for name in fields}))
        mask_BT, advantage_BT = r.mask_BT[part_B], r.advantages_BT[part_B]
        log_ratio_BT = token_logprobs(logits_BTV, r.response_BT[part_B]) - r.old_BT[part_B]
        ratio_BT = log_ratio_BT.exp()
        clipped_BT = ratio_BT.clamp(1 - self.s.clip, 1 + self.s.clip)
        policy = -torch.minimum(ratio_BT * advantage_BT, clipped_BT * advantage_BT)[mask_BT].mean()
        old_BT, return_BT, c = r.values_BT[part_B], r.returns_BT[part_B], self.s.value_clip
        held_BT = value_BT.clamp(old_BT - c, old_BT + c)
        errors_BT = torch.maximum((value_BT - return_BT).square(), (held_BT - return_BT).square())
        value = errors_BT[mask_BT].mean() / 2
        return {"policy": policy, "value": value, "total": policy + self.s.value_coef * value}


def left_padded(ids_BP: np.ndarray, lengths_B: np.ndarray) -> tuple[Tensor, Tensor]:
    """Prompts shifted to the right end, and which of their tokens are real."""
    P = ids_BP.shape[1]
    source_BP = np.arange(P)[None] - (P - lengths_B)[:, None]
    real_BP = torch.from_numpy(source_BP >= 0)
    shifted_BP = np.take_along_axis(ids_BP, source_BP.clip(min=0), axis=1)
    return torch.from_numpy(shifted_BP) * real_BP, real_BP


def play(game: VectorGame, policies: dict[str, Policy], queries: list, caps_BN: Any) -> dict[str, Rollout]:
    """One game per query: the pioneer responds, then the observer, who reads the pioneer's response."""
    game.reset(queries, caps_BN)
    rollouts = {}
    for i, seat in enumerate(game.seats):
        prompt_BP, real_BP = left_padded(*game.prompts(seat))
        eos = sorted(game.task.tokenizer.eos)
        response_BT, mask_BT = policies[seat].respond(prompt_BP, real_BP, torch.tensor(caps_BN[:, i]), eos)
        game.respond(seat, response_BT.numpy(), mask_BT.sum(1).numpy())
        rollouts[seat] = Rollout(prompt_BP, real_BP, response_BT, mask_BT, torch.zeros(len(queries)))
    payoffs_BN = game.payoffs()  # W @ scores; W of ones pays every seat the sum
    for i, seat in enumerate(game.seats):
        rollouts[seat].payoff_B = torch.tensor(payoffs_BN[:, i], dtype=torch.float32)
    return rollouts


def main() -> None:
    """Fine-tune two pocket models."""
    options = argparse.ArgumentParser(description="CORY in one file.")
    for name, default in {"iterations": 20, "batch": 64, "exchange-every": 5, "seed": 0}.items():
        options.add_argument(f"--{name}", type=int, default=default)
    args = options.parse_args()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(pocket.LM)
    classifier = AutoModelForSequenceClassification.from_pretrained(pocket.JUDGE, dtype=torch.float32).eval()
    read = AutoTokenizer.from_pretrained(pocket.JUDGE)

    @torch.no_grad()
    def judge(texts: list[str]) -> list[float]:
        logits_BC = classifier(**read(texts, padding=True, truncation=True, return_tensors="pt")).logits
        logp_B = logits_BC.log_softmax(-1)[:, classifier.config.label2id["positive"]]
        return (logp_B - (-logp_B.exp()).log1p()).tolist()

    model = lambda: AutoModelForCausalLM.from_pretrained(pocket.LM, dtype=torch.float32)  # noqa: E731
    learners = {name: PPO(Policy(model()), Policy(model()), Settings()) for name in ("llm_1", "llm_2")}
    game_tokenizer = HFTokenizer(tokenizer, eos={tokenizer.eos_token_id}, vocab_size=len(tokenizer))
    task = tasks.load("reviews", tokenizer=game_tokenizer, judge=judge, data=pocket.OPENINGS)
    game = VectorGame(task, seats=2, payoff="cooperative", max_response=(4, 16))
    train = task.queries("train")
    names = list(learners)
    for iteration in range(args.iterations):
        if iteration and iteration % args.exchange_every == 0:
            names = names[-1:] + names[:-1]  # role exchange: policies change seats, weights stay
        seating = dict(zip(game.seats, names, strict=True))
        policies = {seat: learners[name].policy for seat, name in seating.items()}
        queries = [train[int(i)] for i in rng.integers(len(train), size=args.batch)]
        caps_BN = rng.integers(4, 17, size=(args.batch, len(game.seats)))
        rollouts = play(game, policies, queries, caps_BN)
        for seat, name in seating.items():
            learner = learners[name]
            learner.update(rollouts[seat], [torch.randperm(args.batch) for _ in range(learner.s.epochs)])
        scores = dict(zip(game.seats, game.scores().mean(0), strict=True))
        kls = {seat: (r.kl_BT * r.mask_BT).sum(1).mean().item() for seat, r in rollouts.items()}
        line = " | ".join(f"{s} {seating[s]} score {scores[s]:+.2f} KL {kls[s]:.1f}" for s in game.seats)
        print(f"iteration {iteration + 1:3d}: {line}", flush=True)


if __name__ == "__main__":
    main()
