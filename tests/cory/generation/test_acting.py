"""A policy that plays the PettingZoo AEC env token by token.

Shapes: B rows, S cells of a table, T response tokens, V vocabulary.
"""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import cory_env
from cory import rng
from cory.policies.table import TablePolicy
from cory_env.tasks.echo import Task as Echo
from cory_env.tokenizer import HFTokenizer
from tests.helpers.models import make_policy, make_team, stir

ECHO = Echo()
EOS, PAD, V = ECHO.tokenizer.eos, ECHO.tokenizer.pad, ECHO.tokenizer.vocab_size


def make_table(name: str, seed: int = 0, *, max_response: int = 4) -> TablePolicy:
    """A table with random logits and the special ids of echo."""
    table = TablePolicy(name, vocab_size=V, eos=EOS, pad=PAD, max_response=max_response)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        table.logits_SV.copy_(torch.randn(table.logits_SV.shape, generator=generator))
    return table


def table_players():
    return Echo(), {"pioneer_0": make_table("llm_1", 1), "observer_1": make_table("llm_2", 2)}


def lm_players(kind: str = "gpt2"):
    policies = {"pioneer_0": make_policy(kind, "llm_1"), "observer_1": make_policy(kind, "llm_2", seed=1)}
    first = policies["pioneer_0"]
    return Echo(HFTokenizer(first.tokenizer, eos=first.eos, vocab_size=first.vocab_size)), policies


PLAYERS = {"table": table_players, "gpt2": lm_players, "llama": lambda: lm_players("llama")}


def play(task, policies, *, env_seed: int = 3, seed: int = 0, **options):
    """One game in the loop of PettingZoo: the actions of each seat, the env and what each seat was paid."""
    env = cory_env.env(task, max_response=4, **options)
    env.reset(seed=env_seed)
    actions = {seat: [] for seat in env.possible_agents}
    paid = dict.fromkeys(env.possible_agents, 0.0)
    for seat in env.agent_iter():
        observation, reward, termination, truncation, info = env.last()
        paid[seat] += reward
        if termination or truncation:
            env.step(None)
            continue
        token = policies[seat].act(observation, info, seed=seed)
        assert type(token) is int
        assert env.action_space(seat).contains(token)
        mask = info.get("action_mask") if isinstance(observation, np.ndarray) else observation["action_mask"]
        assert mask is None or mask[token] == 1
        actions[seat].append(token)
        env.step(token)
    return actions, env.unwrapped, paid


@pytest.mark.parametrize("action_mask", [None, "info", "obs"])
@pytest.mark.parametrize("players", PLAYERS)
def test_policy_acts_legal_tokens_and_the_same_game_twice_for_the_same_seed(players, action_mask):
    task, policies = PLAYERS[players]()
    first, env, paid = play(task, policies, action_mask=action_mask)
    for seat, ids in env.game.responses.items():
        assert first[seat] == list(ids)
        assert 1 <= len(ids) <= 4
        assert len(ids) == 4 or ids[-1] in policies[seat].eos
        assert not policies[seat].eos & set(ids[:-1])
    assert paid["pioneer_0"] == paid["observer_1"]  # the collective reward
    again, _, _ = play(task, policies, action_mask=action_mask)
    assert again == first
    fresh, _, _ = play(*PLAYERS[players](), action_mask=action_mask)
    assert fresh == first
    others = [play(task, policies, seed=seed, action_mask=action_mask)[0] for seed in range(1, 6)]
    assert any(other != first for other in others)


@pytest.mark.parametrize("players", PLAYERS)
def test_policy_acts_the_tokens_that_sampling_chooses_for_the_same_uniforms(players):
    task, policies = PLAYERS[players]()
    for seed in range(10):
        actions, env, _ = play(task, policies, env_seed=seed, seed=seed)
        for seat, policy in policies.items():
            prompt = env.game.prompt(seat)
            drawn = policy.sample(
                torch.tensor([prompt]),
                torch.tensor([len(prompt)]),
                uniforms_BT=torch.from_numpy(rng.uniforms((seed, "act", *prompt), np.zeros(1), 4)),
                caps_B=torch.tensor([4]),
            )
            assert drawn.response_BT[0].tolist() == actions[seat]


def test_settled_seats_play_pad_on_their_extra_turns():
    task, policies = table_players()
    actions, env, paid = play(task, policies, payout="settle")
    plain, _, same = play(task, policies)
    assert actions["pioneer_0"] == [*plain["pioneer_0"], PAD]
    assert actions["observer_1"] == plain["observer_1"]
    assert env.game.responses["pioneer_0"] == tuple(plain["pioneer_0"])
    assert paid == same


def as_env(prompt: tuple[int, ...], response: tuple[int, ...], *, cap: int = 2, width: int = 12):
    """Observation and info of a seat."""
    row = np.full(width, PAD)
    row[: len(prompt + response)] = prompt + response
    return row, {"prompt_length": len(prompt), "response_length": len(response), "cap": cap}


@pytest.mark.slow
def test_responses_of_many_seeds_have_the_probabilities_of_the_table():
    """A table over two tokens of response: 3 letters, EOS and nothing else, of known probability.

    Of 2,000 seeds each response occurs as often as its probability says (chi-square, fixed seeds).
    """
    table, (stop,), prompt = make_table("llm_1"), EOS, (0, 1)
    known = {0: 0.4, 1: 0.2, 2: 0.1, stop: 0.3}
    with torch.no_grad():
        table.logits_SV.fill_(-torch.inf)
        for token, probability in known.items():
            table.logits_SV[:, token] = np.log(probability)
        table.logits_SV.clamp_(min=-1e4)
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(2000):
        response: tuple[int, ...] = ()
        while len(response) < 2 and stop not in response:
            response += (table.act(*as_env(prompt, response), seed=seed),)
        counts[response] = counts.get(response, 0) + 1
    want = {(stop,): 0.3}
    want |= {(a, b): known[a] * p for a, (b, p) in product((0, 1, 2), known.items())}
    assert counts.keys() == want.keys()
    expected = [2000 * want[response] for response in counts]
    assert chisquare(list(counts.values()), expected).pvalue > 0.01


def test_a_response_that_has_ended_gets_pad():
    table, (stop,) = make_table("llm_1"), EOS
    assert table.act(*as_env((0, 1), (2, stop), cap=4)) == PAD
    assert table.act(*as_env((0, 1), (2, 2), cap=2)) == PAD


class Calls:
    """Counts the calls of a decoder."""

    def __init__(self, decoder) -> None:
        self.decoder, self.starts, self.steps = decoder, 0, 0

    def start(self, *prompt, **options):
        self.starts += 1
        return self.decoder.start(*prompt, **options)

    def step(self, token_B):
        self.steps += 1
        return self.decoder.step(token_B)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_each_token_of_a_response_is_decoded_once(kind, monkeypatch):
    """Four tokens: one prompt and three steps. Where the env shows other ids, the rest is sampled again."""
    policy = make_policy(kind)
    plain, made = policy.decoder, []
    monkeypatch.setattr(policy, "decoder", lambda: made.append(Calls(plain())) or made[-1])
    response: tuple[int, ...] = ()
    while len(response) < 4:
        response += (policy.act(*as_env((9, 10, 11), response, cap=4)),)
    assert not policy.eos & set(response)
    assert [(calls.starts, calls.steps) for calls in made] == [(1, 3)]
    policy.act(*as_env((9, 10, 11), (5, 6), cap=4))
    policy.act(*as_env((9, 10), (5, 6), cap=4))
    policy.act(*as_env((9, 10), (5, 6, 7), cap=4))
    assert [(calls.starts, calls.steps) for calls in made[1:]] == [(1, 3), (1, 3), (1, 3)]


def test_a_draw_depends_on_seed_and_ids_only_not_on_what_was_played_before():
    _, policies = lm_players()
    policy, other = policies["pioneer_0"], lm_players()[1]["pioneer_0"]
    sequences = [((9, 10, 11), (5,)), ((9, 10, 11), (5, 6)), ((12,), ()), ((9, 10, 11), (5, 6))]
    want = [other.act(*as_env(*ids, cap=9), seed=4) for ids in reversed(sequences)]
    assert [policy.act(*as_env(*ids, cap=9), seed=4) for ids in sequences] == want[::-1]


@pytest.mark.parametrize("kind", ["whole model", "adapter"])
def test_a_change_of_weights_between_two_tokens_discards_what_was_sampled(kind, tiny_folder, monkeypatch):
    policy = make_policy("gpt2") if kind == "whole model" else make_team(tiny_folder).policies["llm_1"]
    plain, made = policy.decoder, []
    monkeypatch.setattr(policy, "decoder", lambda: made.append(Calls(plain())) or made[-1])
    first = policy.act(*as_env((9, 10, 11), (5,), cap=4))
    stir(policy)
    policy.act(*as_env((9, 10, 11), (5, first), cap=4))
    assert [calls.starts for calls in made] == [1, 1]


def test_a_response_that_may_leave_the_window_is_refused():
    policy = make_policy("llama", "llm_1")
    ids, info = np.arange(policy.window), {"prompt_length": policy.window - 2, "response_length": 0, "cap": 3}
    with pytest.raises(ValueError, match=f"has a window of {policy.window}: lower the response cap"):
        policy.act(ids, info)


def test_broken_weights_are_named():
    policy = make_policy("gpt2")
    with torch.no_grad():
        policy.model.transformer.ln_f.weight[0] = float("nan")
    with pytest.raises(FloatingPointError, match="logits of row 0 are not finite at response token 0"):
        policy.act(*as_env((9, 10), ()))
