"""Your own data: what is read, how it is worded, what the judge is handed."""

import json
import random

import pytest

from cory_env import Query, Response, make_views, tasks
from cory_env.rows import text_hash
from cory_env.tokenizer import CharTokenizer, wrap

PRINTED = CharTokenizer("\n" + "".join(map(chr, range(32, 127))))
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n{' }}{% endif %}"
)


def zero(texts):
    return [0.0] * len(texts)


def chats(count, **more):
    system = {"role": "system", "content": "Be short."}
    return [
        {"prompt": [system, {"role": "user", "content": f"Say {n}"}], "gold": n, **more} for n in range(count)
    ]


@pytest.fixture
def chatting():
    """A tokenizer whose chat template opens the answer with a brace."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    special = ["<|im_start|>", "<|im_end|>"]
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    vocab = {c: i for i, c in enumerate([*special, *sorted(alphabet)])}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    made.add_special_tokens(special)
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", chat_template=CHATML
    )


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def load(data, judge=zero, tokenizer=PRINTED, **options):
    return tasks.load("prompts", tokenizer=tokenizer, judge=judge, data=data, **options)


def test_a_text_goes_to_the_pioneer_as_it_is_and_the_observer_reads_the_response_before_it(tmp_path):
    task = load(write(tmp_path / "a.jsonl", [{"prompt": f"Add {n}:"} for n in range(20)]))
    pioneer, observer, third = make_views(task, seats=3)
    said = [PRINTED.encode("first"), PRINTED.encode("second")]
    query = task.queries("train")[0]
    assert query.ids == tuple(PRINTED.encode(query.text))
    assert PRINTED.decode(pioneer.prompt(query.ids, [])) == query.text
    assert PRINTED.decode(observer.prompt(query.ids, said)) == f"Reference:\nfirst\n\n{query.text}"
    assert (
        PRINTED.decode(third.prompt(query.ids, said))
        == f"Reference:\nfirst\n\nReference:\nsecond\n\n{query.text}"
    )


def test_the_observers_words_are_yours(tmp_path):
    data = write(tmp_path / "a.jsonl", [{"prompt": f"Add {n}:"} for n in range(20)])
    task = load(data, observer="{query} [{references}] Better:", reference="<{response}>")
    *_, third = make_views(task, seats=3)
    said = [PRINTED.encode("1"), PRINTED.encode("2")]
    assert PRINTED.decode(third.prompt(PRINTED.encode("Add"), said)) == "Add [<1>\n\n<2>] Better:"
    for options in ({"observer": "{query}"}, {"observer": "{references}"}, {"reference": "mine"}):
        with pytest.raises(ValueError, match=r"lacks \{"):
            load(data, **options)


@pytest.mark.parametrize("texts", [False, True])
def test_a_chat_is_worded_as_its_template_words_it(tmp_path, chatting, texts):
    rows = [{"prompt": f"Say {n}"} for n in range(20)] if texts else chats(20)
    task = load(write(tmp_path / "a.jsonl", rows), tokenizer=wrap(chatting), chat=texts)
    pioneer, observer = make_views(task, seats=2)
    for query in task.queries("train"):
        row = query.row["prompt"]
        turns = [{"role": "user", "content": row}] if texts else row
        want = chatting.apply_chat_template(turns, add_generation_prompt=True)["input_ids"]
        assert list(pioneer.prompt(query.ids, [])) == want
        turns = [*turns[:-1], {"role": "user", "content": turns[-1]["content"] + "\n\nReference:\nYes {no}"}]
        said = chatting.encode("Yes {no}", add_special_tokens=False)
        want = chatting.apply_chat_template(turns, add_generation_prompt=True)["input_ids"]
        assert list(observer.prompt(query.ids, [said])) == want


def test_the_judge_is_handed_prompts_completions_and_every_column(tmp_path, chatting):
    seen = []

    def reward(prompts, completions, **columns):
        seen.append((prompts, completions, columns))
        return [1.0, 2.0]

    task = load(write(tmp_path / "a.jsonl", chats(20, level="easy")), reward, wrap(chatting))
    first, stranger = task.queries("train")[0], Query("Say x", (5, 6))
    said = [Response.of(wrap(chatting).encode(text), wrap(chatting)) for text in ("one", "two")]
    assert task.score([first, stranger], said) == [1, 2]
    ((prompts, completions, columns),) = seen
    assert prompts == [first.row["prompt"], "Say x"]
    assert completions == [[{"role": "assistant", "content": "one"}], "two"]
    assert columns == {"gold": [first.row["gold"], None], "level": ["easy", None]}


def test_a_judge_of_texts_reads_prompt_and_response_as_one(tmp_path, chatting):
    seen = []

    def judge(texts):
        seen.extend(texts)
        return zero(texts)

    task = load(write(tmp_path / "a.jsonl", [{"prompt": f"Add {n}: "} for n in range(20)]), judge)
    query = task.queries("train")[0]
    task.score([query], [Response.of(PRINTED.encode("one"), PRINTED)])
    chat = load(write(tmp_path / "b.jsonl", chats(20)), judge, wrap(chatting))
    asked = chat.queries("train")[0]
    chat.score([asked], [Response.of(wrap(chatting).encode("one"), wrap(chatting))])
    assert seen == [query.text + "one", f"system: Be short.\nuser: Say {asked.row['gold']}\nassistant: one"]
    assert asked.text == f"system: Be short.\nuser: Say {asked.row['gold']}"


def test_a_file_is_split_by_the_hash_of_the_prompt_and_a_prompt_counts_once(tmp_path):
    rows = [{"prompt": f"Add {n}", "n": n} for n in range(50)]
    shuffled = random.Random(0).sample(rows + rows, 100)
    task, other = load(write(tmp_path / "a.jsonl", rows)), load(write(tmp_path / "b.jsonl", shuffled))
    for split in ("train", "test"):
        assert {q.text for q in task.queries(split)} == {q.text for q in other.queries(split)}
        assert all((text_hash(q.text) % 5 == 0) == (split == "test") for q in task.queries(split))
    assert len(task.queries("train")) + len(other.queries("test")) == 50
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "train_a.jsonl", rows[:9])
    (tmp_path / "data" / "test.csv").write_text("prompt,n,more\nAdd 3,3,x\nAdd 30,30,y\n")
    task = load(tmp_path / "data")
    assert [q.row for q in task.queries("test")] == [{"prompt": "Add 30", "n": "30", "more": "y"}]
    assert task.queries("train")[0].row == {"prompt": "Add 0", "n": 0, "more": None}


def test_chats_are_split_like_texts(tmp_path, chatting):
    task = load(write(tmp_path / "a.jsonl", chats(40)), tokenizer=wrap(chatting))
    numbers = {split: {q.row["gold"] for q in task.queries(split)} for split in ("train", "test")}
    assert numbers["train"] | numbers["test"] == set(range(40))
    assert not numbers["train"] & numbers["test"]


def test_prompts_that_are_too_long_are_left_out_and_counted(tmp_path):
    data = write(tmp_path / "a.jsonl", [{"prompt": "x" * n} for n in range(1, 41)])
    task = load(data, max_query=30)
    assert task.max_query == 30
    assert sum(task.too_long.values()) == 10
    with pytest.raises(ValueError, match="max_query is 0; give the most tokens of a prompt, from 1"):
        load(data, max_query=0)
    with pytest.raises(ValueError, match="prompts is longer than max_query, 1 tokens; raise it to at least"):
        load(write(tmp_path / "b.jsonl", [{"prompt": "xy" * n} for n in range(1, 41)]), max_query=1)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"ask": "a"}], {}, "has no column 'prompt' or .*; its columns are 'ask'"),
        ([{"prompt": "a"}], {"column": "ask"}, "has no column 'ask'; its columns are 'prompt'"),
        ([], {}, "is empty; give a file with rows"),
        ([{"prompt": "a"}, {"prompt": " "}], {}, "row 2 of .* has no prompt in column 'prompt' but ' '"),
        ([{"prompt": "a"}, {"n": 1}], {}, "row 2 of .* has no prompt in column 'prompt' but 'None'"),
        ([{"prompt": 7}], {}, "row 1 of .* has no prompt .* but '7'; give a text, or a list of messages"),
        ([{"prompt": [{"role": "user"}]}], {}, "row 1 of .* has no prompt"),
        (
            [{"prompt": [{"role": "assistant", "content": "a"}]}],
            {},
            "has no prompt .*the last one the user's",
        ),
        (
            [{"prompt": "a", "completions": 1}],
            {},
            "has a column 'completions', a name that reward functions need",
        ),
        (
            [{"prompt": "a"}, *chats(9)],
            {},
            "mixes texts and chats in column 'prompt'; give all prompts as one of them",
        ),
        ([{"prompt": "a"}], {}, "has no rows for"),
        (chats(30), {}, "the prompts are chats and this tokenizer has no words for one"),
    ],
)
def test_bad_data_is_named_with_its_remedy(tmp_path, rows, options, message):
    with pytest.raises(ValueError, match=message):
        load(write(tmp_path / "a.jsonl", rows), **options)


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match="the prompts task needs a tokenizer"):
        tasks.load("prompts")
    with pytest.raises(ValueError, match="the prompts task needs a judge"):
        tasks.load("prompts", tokenizer=PRINTED)
    with pytest.raises(ValueError, match="the prompts task needs a data"):
        tasks.load("prompts", tokenizer=PRINTED, judge=zero)


def test_a_model_without_a_chat_template_is_refused(tmp_path, chatting):
    chatting.chat_template = None
    with pytest.raises(ValueError, match="this tokenizer has no chat template; write the prompt as text"):
        load(write(tmp_path / "a.jsonl", chats(20)), tokenizer=wrap(chatting))
