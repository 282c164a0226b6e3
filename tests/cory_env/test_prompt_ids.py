"""Ids of prompts are those of the tokenizer, BOS once at the start; texts are cut at lengths, never by id."""

import json
import string

import numpy as np
import pytest

from cory_env import make_views, tasks
from cory_env.envs.token import raw_env
from cory_env.tasks.echo import Task as Echo
from cory_env.tokenizer import HFTokenizer, encode_prompt
from cory_env.types import Query, Response
from cory_env.vector import VectorGame
from cory_env.views import compile_view
from tests.helpers.tables import CHAT

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

SPECIAL = ("<s>", "</s>", "<pad>")
BOS, EOS = 0, 1


def characters(template="<s> $A", **options):
    """A Hugging Face tokenizer with an id per printable character, which puts BOS before texts."""
    alphabet = [*SPECIAL, *string.printable]
    vocabulary = {token: i for i, token in enumerate(alphabet)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    made.add_special_tokens(list(SPECIAL))
    made.decoder = tokenizers.decoders.Fuse()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single=template, special_tokens=[("<s>", BOS), ("</s>", EOS)]
    )
    options = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"} | options
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **options)


def prompts_file(folder, prompts):
    rows = ({"prompt": prompt, "question": prompt, "answer": "1"} for prompt in prompts)
    path = folder / "data.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


TASKS = ("prompts", "reviews", "gsm8k", "arithmetic", "relay", "handover", "verify", "echo")


@pytest.mark.parametrize("name", TASKS)
def test_every_seat_of_every_task_reads_what_the_tokenizer_makes_of_its_prompt(name, tmp_path):
    inner = characters()
    data = prompts_file(tmp_path, [f"{letter} film" for letter in string.ascii_letters])
    known = {"data": data, "judge": lambda texts: [0.0] * len(texts), "column": "prompt"}
    options = {key: value for key, value in known.items() if key in tasks.options(name)}
    task = tasks.load(name, tokenizer=HFTokenizer(inner), **options)
    env = raw_env(task, seats=3, max_response=2, window=2_000)
    env.reset(seed=0)
    game = VectorGame(task, seats=3, max_response=2)
    game.reset([env.game.query])
    for seat in env.possible_agents:
        ids_BP, length_B = game.prompts(seat)
        ids = list(env.game.prompt(seat))
        assert ids == ids_BP[0, : length_B[0]].tolist()
        assert ids[0] == BOS
        assert BOS not in ids[1:]
        assert ids == inner(inner.decode(ids, skip_special_tokens=True)).input_ids
        assert env.observe(seat)[: len(ids)].tolist() == ids or seat != env.agent_selection
        written = inner.encode("7a", add_special_tokens=False)
        env.game.respond(written)
        game.respond(seat, np.array([written]), np.array([2]))


def test_the_limit_on_prompts_counts_bos(tmp_path):
    data = prompts_file(tmp_path, [f"{letter} film" for letter in string.ascii_letters])
    options = {"tokenizer": HFTokenizer(characters()), "judge": len, "data": data}
    assert tasks.load("prompts", **options, max_query=7).max_query == 7
    with pytest.raises(ValueError, match="raise it to at least 7"):
        tasks.load("prompts", **options, max_query=6)


@pytest.mark.parametrize(("template", "start"), [("<s> $A </s>", [BOS]), ("$A </s>", []), ("$A", [])])
def test_a_prompt_never_ends_with_the_eos_that_a_tokenizer_appends(template, start):
    inner = characters(template)
    ids = encode_prompt(HFTokenizer(inner), "ab")
    assert ids == [*start, *inner.encode("ab", add_special_tokens=False)]


def test_byt5_appends_eos_and_gets_none():
    inner = transformers.ByT5Tokenizer()
    assert inner("ab").input_ids == [100, 101, 1]
    assert encode_prompt(HFTokenizer(inner), "ab") == [100, 101]
    assert HFTokenizer(inner).decode([100, 1, 0, 101]) == "ab"


def test_a_prompt_that_begins_with_bos_in_its_text_gets_no_second_one():
    wrapped = HFTokenizer(characters())
    assert encode_prompt(wrapped, "<s>ab") == encode_prompt(wrapped, "ab")
    view = compile_view("observer_1", "<s>b{query}{response_0}", seen=(0,), tokenizer=wrapped)
    a, b = wrapped.encode("ab")
    for query in ((a,), (BOS, a)):
        assert view.prompt(query, [(b, EOS)]) == (BOS, b, a, b)


def test_queries_of_a_task_that_knows_no_bos_get_it():
    wrapped = HFTokenizer(characters())
    task = Echo(wrapped, length=2)
    view = make_views(task, seats=1)[0]
    assert view.prompt(task.queries("train")[0].ids, []) == (BOS, *task.queries("train")[0].ids)
    assert view.max_prompt(2, 1) == 3


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("name", ["prompts", "gsm8k"])
def test_a_chat_template_alone_decides_about_bos(name, writes, tmp_path):
    inner = characters(chat_template="<s>" * writes + CHAT)
    data = prompts_file(tmp_path, [f"{letter} film" for letter in string.ascii_letters])
    options = {"data": data, "chat": True} | ({"judge": len} if name == "prompts" else {})
    task = tasks.load(name, tokenizer=HFTokenizer(inner), **options)
    pioneer, observer = make_views(task, seats=2)
    query = task.queries("train")[0]
    ids = list(pioneer.prompt(query.ids, []))
    if name == "prompts":
        chat = [{"role": "user", "content": query.row["prompt"]}]
        assert ids == inner.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    for prompt in (ids, list(observer.prompt(query.ids, [HFTokenizer(inner).encode("7")]))):
        assert prompt.count(BOS) == writes
        assert prompt[0] == BOS or not writes


def test_a_chat_cannot_have_words_before_the_chat_template(tmp_path):
    data = prompts_file(tmp_path, [f"{letter} film" for letter in string.ascii_letters])
    options = {"tokenizer": HFTokenizer(characters(chat_template=CHAT)), "judge": len, "data": data}
    with pytest.raises(ValueError, match=r"'Read \{references\}: \{query\}' .* begin with \{query\}"):
        tasks.load("prompts", **options, chat=True, observer="Read {references}: {query}")


@pytest.mark.parametrize("reloaded", [False, True])
def test_a_pad_or_eos_that_is_an_ordinary_token_stays_in_texts(reloaded, tmp_path):
    inner = characters()
    inner.pad_token = "!"
    if reloaded:  # transformers then flags "!" as special
        inner.save_pretrained(tmp_path)
        inner = transformers.AutoTokenizer.from_pretrained(tmp_path)
        assert inner.decode(inner("!a!").input_ids, skip_special_tokens=True) == "a"
    newline = inner.convert_tokens_to_ids("\n")
    tokenizer = HFTokenizer(inner, eos=[EOS, newline])
    ids = inner("!a\n!", add_special_tokens=False).input_ids
    assert tokenizer.pad == ids[0]
    assert tokenizer.decode(ids) == "!a\n!"
    assert Response.of([*ids, newline], tokenizer).text == "!a\n!"
    assert Response.of([BOS, *ids, EOS], tokenizer).text == "!a\n!"


def test_a_merged_token_that_serves_as_pad_stays_in_texts_when_transformers_calls_it_special():
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(["end of"] * 9, special_tokens=["<e>"], show_progress=False)
    assert "end" in trained.get_vocab()
    inner = transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer, eos_token="<e>", pad_token="end"
    )
    tokenizer = HFTokenizer(inner)
    ids = inner.encode("end of")
    assert ids[0] == tokenizer.pad
    assert tokenizer.decode([*ids, *tokenizer.eos]) == "end of"


def test_judges_read_the_pad_that_a_response_holds_and_no_bos(tmp_path):
    inner = characters()
    inner.pad_token = "!"
    texts, tokenizer = [], HFTokenizer(inner)
    data = prompts_file(tmp_path, [f"{letter} film" for letter in string.ascii_letters])

    def judge(given):
        texts.extend(given)
        return [0.0] * len(given)

    ids = (*tokenizer.encode("go!!"), EOS)
    for name in ("prompts", "reviews"):
        task = tasks.load(name, tokenizer=tokenizer, judge=judge, data=data, column="prompt")
        task.score([Query("a film", tuple(encode_prompt(tokenizer, "a film")))], [Response(ids, "go!!")])
    assert texts == ["a filmgo!!"] * 2


def test_a_pad_beyond_the_vocabulary_is_replaced_by_eos():
    inner = characters()
    inner.add_special_tokens({"pad_token": "[PAD]"})
    assert HFTokenizer(inner, vocab_size=len(inner) - 1).pad == EOS
    assert HFTokenizer(inner, vocab_size=len(inner) - 1, pad=2).pad == 2
