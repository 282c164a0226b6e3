"""Seats that do not learn: the reference, saved policies, programs, and checkpoints of the run itself."""

import shutil
from dataclasses import replace

import pytest
import torch

import cory
from cory.cli.main import main
from cory.config.schema import PayoffConfig, PolicyConfig
from cory.learner.central_critic import transcripts
from cory.rollout.role_exchange import ExchangeConfig
from cory.tracking.tracker import read
from cory.training import checkpoint, loop
from cory.training.held_out import HeldOut
from cory.training.run import train
from cory.training.targets import find, remembered
from cory.training.trainer import Trainer
from tests.helpers import players
from tests.helpers.runs import same, traces, without_report
from tests.helpers.tables import TABLES, flagged

FEW = replace(TABLES, batch=16, iterations=4, evaluation=replace(TABLES.evaluation, queries=8))
HELPERS = "tests.helpers.players"


@pytest.fixture(autouse=True)
def no_report(monkeypatch):
    without_report(monkeypatch)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A table that has trained alone, as a folder."""
    folder = tmp_path_factory.mktemp("runs") / "alone"
    train(replace(FEW, seats=1), folder, report=False)
    return folder


def seated(player: str, *, seat: str = "observer_1", **changes) -> Trainer:
    return Trainer(replace(FEW, players={seat: player}, **changes))


def test_a_frozen_observer_keeps_the_weights_of_the_reference_while_the_pioneer_learns():
    trainer = seated("frozen")
    before = trainer.references["llm_1"].logits_SV.clone()
    found = trainer.iterate(0)
    assert list(trainer.policies) == list(trainer.learners) == ["llm_1"]
    assert torch.equal(trainer.players["observer_1"].logits_SV, before)
    assert not torch.equal(trainer.policies["llm_1"].logits_SV, before)
    assert {"observer_1/reference/task_reward", "observer_1/reference/payoff"} <= found.keys()
    assert "observer_1/reference/kl" not in found
    assert found["pioneer_0/llm_1/payoff"] == pytest.approx(found["observer_1/reference/payoff"])  # the sum


def test_a_pioneer_before_a_frozen_observer_learns_what_it_learns_before_a_learning_one_at_the_start():
    """In the first iteration the observer is the reference in both: same games, same scores, same update."""
    alone, both = seated("frozen"), Trainer(FEW)
    found, expected = alone.iterate(0), both.iterate(0)
    for quantity in ("task_reward", "payoff", "response_length"):
        for seat, name, other in (("pioneer_0", "llm_1", "llm_1"), ("observer_1", "reference", "llm_2")):
            assert found[f"{seat}/{name}/{quantity}"] == expected[f"{seat}/{other}/{quantity}"]
    assert torch.equal(alone.policies["llm_1"].logits_SV, both.policies["llm_1"].logits_SV)


def test_exchange_moves_learning_policies_among_the_seats_without_a_player():
    config = replace(FEW, seats=3, players={"observer_1": "frozen"}, exchange=ExchangeConfig(every=1))
    trainer = Trainer(config)
    assert trainer.names(0) == {"pioneer_0": "llm_1", "observer_1": "reference", "observer_2": "llm_2"}
    assert trainer.names(1) == {"pioneer_0": "llm_2", "observer_1": "reference", "observer_2": "llm_1"}
    found = trainer.iterate(1)
    assert {"pioneer_0/llm_2/kl", "observer_2/llm_1/kl"} <= found.keys()


@pytest.mark.parametrize("seat", ["pioneer_0", "observer_1"])
@pytest.mark.parametrize("algorithm", ["mappo", "vdac_mix"])
def test_what_reads_whole_games_reads_what_a_player_wrote(algorithm, seat):
    """Of tables a state has a one at position * ids + id for each token before: those of the transcript."""
    config = replace(FEW, seats=3, players={seat: "frozen"})
    trainer = Trainer(flagged("--algorithm", algorithm, default=config))
    read = {}
    reference = trainer.references["llm_1"]
    whole = reference.critic_states

    def critic_states(rows, max_length):
        states_KD = whole(rows, max_length)
        read[int(rows.prompt_length_B[0])] = states_KD[0].nonzero().flatten().tolist()
        return states_KD

    reference.critic_states = critic_states
    trainer.iterate(0)
    rows = transcripts(trainer.batches)["observer_2"]
    start, ids = int(rows.prompt_length_B[0]), reference.vocab_size
    before = rows.prompt_BP[0, :start].tolist()
    assert read[start] == [position * ids + token for position, token in enumerate(before)]


def test_a_central_critic_holds_the_prompt_of_the_first_seat():
    """An observer of sums reads the query twice: `3+4=7;3+4=`."""
    sums = ("--task", "arithmetic", "--algorithm", "mappo")
    trainer = Trainer(flagged(*sums, default=replace(FEW, players={"pioneer_0": "frozen"})))
    trainer.iterate(0)
    rows_by_seat = transcripts(trainer.batches)
    assert trainer.critic.max_length >= max(rows.max_length for rows in rows_by_seat.values())


def test_a_saved_policy_plays_with_its_weights_under_a_name_of_its_own(saved):
    trainer = seated(str(saved / "policies/llm_1"), seat="pioneer_0")
    player = trainer.players["pioneer_0"]
    policy = Trainer(replace(FEW, seats=1)).policies["llm_1"]
    policy.restore(saved / "policies/llm_1")
    assert torch.equal(player.logits_SV, policy.logits_SV)
    assert list(trainer.policies) == ["llm_1"]
    assert "pioneer_0/player_llm_1/task_reward" in trainer.iterate(0)
    assert seated(str(saved)).players["observer_1"].name == "player_llm_1"  # a run with one policy


@pytest.mark.parametrize(("text", "response"), [("ab", "ab"), ("abcd", "abc"), ("", "")])
def test_a_text_player_reads_prompts_and_its_responses_are_cut_or_ended(text, response):
    """The cap is 3 tokens, a token a letter: two letters are followed by EOS, of four three are left."""
    player = players.Letters(text)
    trainer = seated(remembered(player))
    trainer.iterate(0)
    assert set(trainer.game.texts("observer_1")) == {response}
    queries = [query.text for query in trainer.game.queries]
    pioneers = trainer.game.texts("pioneer_0")
    decode = trainer.task.tokenizer.decode
    prompts_BP, lengths_B = trainer.game.prompts("observer_1")
    assert player.read == [decode(ids[:n].tolist()) for ids, n in zip(prompts_BP, lengths_B, strict=True)]
    assert all(q in t and r in t for q, r, t in zip(queries, pioneers, player.read, strict=True))


@pytest.mark.parametrize(
    ("player", "message"),
    [
        (players.Late(), "took longer than 0.2 s to respond to 16 prompts"),
        (players.Failing(), r"failed to respond \(OSError: no quota left\)"),
        (players.Short(), "to 16 prompts; return a list of texts, one for each"),
        (players.Numbers(), "to 16 prompts; return a list of texts, one for each"),
        (players.OneText(), "responded 'a+' to 16 prompts; return a list of texts, one for each"),
        (players.Takes(), "to 16 prompts; return a list of texts, one for each"),
        (players.Foreign(), r"responded 'a\?': '\?' in 'a\?' is not in the alphabet"),
    ],
)
def test_a_text_player_that_fails_is_named_before_an_update(player, message):
    trainer = seated(remembered(player))
    with pytest.raises(ValueError, match=message):
        trainer.iterate(0)
    assert not trainer.learning


def test_players_of_the_command_line_and_of_python_play_alike(tmp_path):
    """`--players.observer_1 module:function`, and the object itself."""
    flags = ["--task", "echo", "--policy.kind", "table", "--max-response", "3", "3", "--batch", "8"]
    common = [*flags, "--iterations", "1", "--evaluation.queries", "4", "--checkpoint-every", "0"]
    named = tmp_path / "named"
    argv = ["train", *common, "--run", str(named), "--players.observer_1", f"{HELPERS}:letters", "--quiet"]
    assert main(argv) == 0
    given = cory.train(
        task="echo", max_response=(3, 3), batch=8, iterations=1, checkpoint_every=0, run=tmp_path / "given",
        policy={"kind": "table"}, evaluation={"queries": 4}, quiet=True,
        players={"observer_1": players.Letters()},
    )  # fmt: skip
    rows = [
        {k.split("/")[2]: v for row in read(run) for k, v in row.items() if k.startswith("pioneer_0/")}
        for run in (named, given.path)
    ]
    assert rows[0] == rows[1]


def test_a_player_of_a_script_has_the_same_name_in_the_next_session_which_must_pass_it_again():
    """Two objects of equal content are one player; without any of it the name says what is missing."""
    name = remembered(players.Letters())
    assert name == remembered(players.Letters()) == f"Letters@{name.partition('@')[2]}"
    with pytest.raises(ValueError, match="player Letters@0 was an object of another session; pass it again"):
        find("Letters@0")


def test_evaluation_seats_the_players_of_the_run_and_those_that_are_given(saved, tmp_path):
    run = tmp_path / "run"
    train(replace(FEW, players={"observer_1": "frozen"}), run, report=False)
    found = cory.evaluate(run, evaluation={"queries": 8})["in_game"]
    assert {"pioneer_0/llm_1", "observer_1/reference"} <= found.keys()
    assert found["pioneer_0/llm_1"]["seating"] == {"pioneer_0": "llm_1", "observer_1": "reference"}
    other = cory.evaluate(run, evaluation={"queries": 8}, players={"observer_1": players.Letters()})
    assert any(seat.startswith("observer_1/Letters") for seat in other["in_game"])
    collective = {  # of the frozen player beside its like, and beside the policy: in each game one for both
        name: values["metrics"]["payoff"] for name, values in found.items()
    }
    assert collective["observer_1/reference"] == collective["pioneer_0/reference"]
    assert collective["observer_1/reference beside llm_1"] == collective["pioneer_0/llm_1"]
    both = cory.evaluate(run, run / "policies/llm_1", evaluation={"queries": 8})["in_game"]
    assert len({name for name in both if "reference" in name}) == 6
    with pytest.raises(ValueError, match=r"has players.observer_1, and a probe measures"):
        cory.probe(run)


def test_a_spectator_watches_a_player(tmp_path, capsys):
    run = tmp_path / "run"
    train(replace(FEW, players={"pioneer_0": f"{HELPERS}:letters"}), run, report=False)
    assert main(["play", str(run), "--games", "1"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("pioneer_0: players\nobserver_1: llm_1\n")
    assert any(line.split()[:2] == ["pioneer_0", "ab"] for line in printed.splitlines())


POOLED = replace(
    FEW, iterations=6, players={"pioneer_0": "pool:2"}, checkpoint_every=2, keep_checkpoints=1
)  # fmt: skip


PAYOFF_SCHEDULE = {"payoff_options": PayoffConfig(to="independent", over=4)}


def test_a_pool_draws_from_the_last_checkpoints_by_number():
    pool = Trainer(POOLED).pool
    assert [pool.members(i) for i in (0, 1, 2, 3, 4, 5)] == [[0], [0], [0, 2], [0, 2], [2, 4], [2, 4]]
    drawn = [pool.draw(i) for i in range(40)]
    assert drawn == [Trainer(POOLED).pool.draw(i) for i in range(40)]
    assert len({at for at, _ in drawn[2:4]} | {at for at, _ in drawn[4:6]}) > 1
    assert drawn != [Trainer(replace(POOLED, seed=1)).pool.draw(i) for i in range(40)]


def test_a_pool_plays_with_the_weights_of_the_drawn_checkpoint_which_is_kept(tmp_path):
    run, seen = tmp_path / "run", {}

    class Note:
        def on_iteration(self, trainer, iteration, metrics):
            at, name = trainer.pool.draw(iteration)
            table = Trainer(replace(FEW, seats=1)).policies["llm_1"]
            table.restore(checkpoint.folder_of(run, at) / name)
            assert torch.equal(trainer.players["pioneer_0"].logits_SV, table.logits_SV)
            assert "pioneer_0/pool/task_reward" in metrics
            seen[iteration] = at

    train(POOLED, run, callbacks=[Note()], report=False)
    assert seen.keys() == set(range(6))
    assert len(set(seen.values())) > 1


def test_a_run_with_a_pool_resumes_as_if_nothing_had_happened(tmp_path, monkeypatch):
    """Also from a checkpoint by the clock, between two of the pool, of which only the newest is kept."""
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    train(POOLED, whole, report=False)
    train(replace(POOLED, iterations=3), halves, report=False)
    shutil.rmtree(halves / "policies")
    train(POOLED, halves, resume="must", report=False)
    assert same(traces(halves, 6), traces(whole, 6))


def test_a_run_with_a_pool_resumes_from_the_checkpoint_before_a_damaged_one(tmp_path):
    run, settings = tmp_path / "run", replace(POOLED, keep_checkpoints=2)
    train(settings, run, report=False)
    whole = traces(run, 6)
    (checkpoint.folder_of(run, 6) / checkpoint.STATE).write_text("{}")
    train(settings, run, resume="must", report=False)
    assert same(traces(run, 6), whole)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"players": {"observer_1": "pool:1"}}, PAYOFF_SCHEDULE])
def test_team_games_and_samples_of_a_resumed_run_are_those_of_the_iteration(tmp_path, changes):
    """By its opponents and its payoff, not by those of the iteration before, which a resumed run lacks."""
    team = replace(FEW.evaluation, every=2, team=True)
    config = replace(FEW, iterations=5, checkpoint_every=2, evaluation=team, **changes)
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    train(config, whole, report=False)
    train(replace(config, iterations=4), halves, report=False)
    train(config, halves, resume="must", report=False)
    assert same(traces(halves, 5), traces(whole, 5))
    assert (halves / "samples.jsonl").read_text() == (whole / "samples.jsonl").read_text()


def test_checkpoints_of_a_pool_are_its_opponents_and_stay_as_far_apart(tmp_path):
    train(POOLED, tmp_path / "run", report=False)
    longer = replace(POOLED, iterations=8)
    with pytest.raises(ValueError, match="checkpoint_every was 2 and is 4"):
        train(replace(longer, checkpoint_every=4), tmp_path / "run", resume="must", report=False)
    train(longer, tmp_path / "run", resume="must", report=False)


@pytest.mark.parametrize(
    ("players_by_seat", "changes", "message"),
    [
        ({"observer_2": "frozen"}, {}, "observer_2"),
        ({"pioneer_0": "frozen", "observer_1": "frozen"}, {}, "nobody learns"),
        ({"observer_1": "pool:2"}, {"checkpoint_every": 0}, "checkpoint_every is 0"),
        (
            {"observer_2": "pool:1"},
            {"seats": 3, "policy": PolicyConfig(models=("pocket", "pocket-arithmetic"))},
            "pool:1 plays with the checkpoints of all policies in one model",
        ),
        ({"observer_1": "pool:x"}, {}, "pools of x checkpoints"),
        ({"observer_1": "pool:0"}, {}, "pools of 0 checkpoints"),
        ({"observer_1": "./nowhere"}, {}, "there is no folder"),
        ({"observer_1": f"{HELPERS}:nothing"}, {}, "which has no method act"),
        ({"observer_1": f"{HELPERS}:two"}, {}, "return one object for one seat"),
    ],
)
def test_wrong_players_are_refused(players_by_seat, changes, message):
    with pytest.raises(ValueError, match=message):
        Trainer(replace(FEW, players=players_by_seat, **changes))


def test_a_run_with_several_policies_is_no_player_and_the_error_names_one(tmp_path):
    run = tmp_path / "run"
    train(replace(FEW, iterations=1), run, report=False)
    with pytest.raises(ValueError, match=r"holds llm_1, llm_2; name one of them, as .*policies/llm_1"):
        seated(str(run))


def test_team_evaluation_seats_the_player():
    trainer = seated("frozen")
    responses = HeldOut(trainer).play_as_team(0)
    assert list(responses) == ["pioneer_0", "observer_1"]
