"""The prompts task: data that are read, prompts of each seat, arguments of the judge."""

import json
import random

import pytest

from cory_env import Query, Response, make_views, tasks
from cory_env.data.splits import text_hash
from cory_env.tokenizer import CharTokenizer, HFTokenizer

PRINTABLE = CharTokenizer("\n" + "".join(map(chr, range(32, 127))))
SPLITS = ("train", "validation", "test")
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
def chat_tokenizer():
    """A tokenizer whose chat template begins the response with a brace."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    special = ["<|im_start|>", "<|im_end|>"]
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    vocab = {c: i for i, c in enumerate([*special, *sorted(alphabet)])}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    inner.add_special_tokens(special)
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", chat_template=CHATML
    )


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def load(data, judge=zero, tokenizer=PRINTABLE, **options):
    return tasks.load("prompts", tokenizer=tokenizer, judge=judge, data=data, **options)


def test_the_pioneer_reads_a_text_unchanged_and_observers_read_references_before_it(tmp_path):
    task = load(write(tmp_path / "a.jsonl", [{"prompt": f"Add {n}:"} for n in range(20)]))
    pioneer, observer, third = make_views(task, seats=3)
    responses = [PRINTABLE.encode("first"), PRINTABLE.encode("second")]
    query = task.queries("train")[0]
    assert query.ids == tuple(PRINTABLE.encode(query.text))
    assert PRINTABLE.decode(pioneer.prompt(query.ids, [])) == query.text
    assert PRINTABLE.decode(observer.prompt(query.ids, responses)) == f"Reference:\nfirst\n\n{query.text}"
    assert (
        PRINTABLE.decode(third.prompt(query.ids, responses))
        == f"Reference:\nfirst\n\nReference:\nsecond\n\n{query.text}"
    )


def test_the_templates_of_the_observers_are_options(tmp_path):
    data = write(tmp_path / "a.jsonl", [{"prompt": f"Add {n}:"} for n in range(20)])
    task = load(data, observer="{query} [{references}] Better:", reference="<{response}>")
    *_, third = make_views(task, seats=3)
    responses = [PRINTABLE.encode("1"), PRINTABLE.encode("2")]
    assert PRINTABLE.decode(third.prompt(PRINTABLE.encode("Add"), responses)) == "Add [<1>\n\n<2>] Better:"
    for options in ({"observer": "{query}"}, {"observer": "{references}"}, {"reference": "mine"}):
        with pytest.raises(ValueError, match=r"lacks \{"):
            load(data, **options)


@pytest.mark.parametrize("texts", [False, True])
def test_a_chat_is_rendered_by_the_chat_template(tmp_path, chat_tokenizer, texts):
    rows = [{"prompt": f"Say {n}"} for n in range(20)] if texts else chats(20)
    task = load(write(tmp_path / "a.jsonl", rows), tokenizer=HFTokenizer(chat_tokenizer), chat=texts)
    pioneer, observer = make_views(task, seats=2)
    for query in task.queries("train"):
        prompt = query.row["prompt"]
        chat = [{"role": "user", "content": prompt}] if texts else prompt
        expected = chat_tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
        assert list(pioneer.prompt(query.ids, [])) == expected
        chat = [*chat[:-1], {"role": "user", "content": chat[-1]["content"] + "\n\nReference:\nYes {no}"}]
        response = chat_tokenizer.encode("Yes {no}", add_special_tokens=False)
        expected = chat_tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
        assert list(observer.prompt(query.ids, [response])) == expected


def test_the_judge_gets_prompts_completions_and_every_column(tmp_path, chat_tokenizer):
    calls = []

    def reward(prompts, completions, **columns):
        calls.append((prompts, completions, columns))
        return [1.0, 2.0]

    tokenizer = HFTokenizer(chat_tokenizer)
    task = load(write(tmp_path / "a.jsonl", chats(20, level="easy")), reward, tokenizer)
    first, other = task.queries("train")[0], Query("Say x", (5, 6))
    responses = [Response.of(tokenizer.encode(text), tokenizer) for text in ("one", "two")]
    assert task.score([first, other], responses) == [1, 2]
    ((prompts, completions, columns),) = calls
    assert prompts == [first.row["prompt"], "Say x"]
    assert completions == [[{"role": "assistant", "content": "one"}], "two"]
    assert columns == {"gold": [first.row["gold"], None], "level": ["easy", None]}


def test_a_judge_of_texts_reads_prompt_and_response_as_one(tmp_path, chat_tokenizer):
    judged = []

    def judge(texts):
        judged.extend(texts)
        return zero(texts)

    task = load(write(tmp_path / "a.jsonl", [{"prompt": f"Add {n}: "} for n in range(20)]), judge)
    query = task.queries("train")[0]
    task.score([query], [Response.of(PRINTABLE.encode("one"), PRINTABLE)])
    tokenizer = HFTokenizer(chat_tokenizer)
    chat = load(write(tmp_path / "b.jsonl", chats(20)), judge, tokenizer)
    query_of_chat = chat.queries("train")[0]
    chat.score([query_of_chat], [Response.of(tokenizer.encode("one"), tokenizer)])
    text_of_chat = f"system: Be short.\nuser: Say {query_of_chat.row['gold']}"
    assert judged == [query.text + "one", f"{text_of_chat}\nassistant: one"]
    assert query_of_chat.text == text_of_chat


def test_a_file_is_split_by_the_hash_of_the_prompt_and_a_prompt_counts_once(tmp_path):
    rows = [{"prompt": f"Add {n}", "n": n} for n in range(50)]
    shuffled = random.Random(0).sample(rows + rows, 100)
    task, other = load(write(tmp_path / "a.jsonl", rows)), load(write(tmp_path / "b.jsonl", shuffled))
    for split in SPLITS:
        assert {q.text for q in task.queries(split)} == {q.text for q in other.queries(split)}
        assert all((text_hash(q.text) % 5 == 0) == (split == "test") for q in task.queries(split))
    assert sum(len(task.queries(split)) for split in SPLITS) == 50
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "train_a.jsonl", rows[:9])
    (tmp_path / "data" / "test.csv").write_text("prompt,n,more\nAdd 3,3,x\nAdd 30,30,y\n")
    task = load(tmp_path / "data")
    assert [q.row for q in task.queries("test")] == [{"prompt": "Add 30", "n": "30", "more": "y"}]
    assert task.queries("train")[0].row == {"prompt": "Add 0", "n": 0, "more": None}


def test_rows_that_repeat_a_prompt_with_another_answer_are_counted(tmp_path):
    rows = [{"prompt": f"Item {i % 60} is", "answer": "A" if i < 60 else "B"} for i in range(120)]
    task = load(write(tmp_path / "a.jsonl", rows))
    assert task.left_out == ["60 rows repeat an earlier prompt with other values, and are left out"]
    assert {q.row["answer"] for split in SPLITS for q in task.queries(split)} == {"A"}
    assert load(write(tmp_path / "b.jsonl", rows[:60] * 2)).left_out == []


def test_rows_that_another_split_has_too_are_counted(tmp_path):
    for split, numbers in (("train", range(30)), ("validation", range(28, 70)), ("test", range(20, 60))):
        write(tmp_path / f"{split}.jsonl", [{"prompt": f"Item {i} is", "of": split} for i in numbers])
    task = load(tmp_path)
    assert [len(task.queries(split)) for split in SPLITS] == [30, 10, 30]
    assert task.left_out == [
        "32 validation rows have a prompt of train or test, and are left out",
        "10 test rows have a prompt of train, and are left out",
    ]


class Vowels(CharTokenizer):
    """A tokenizer that drops what it does not know, as normalisers drop zero-width spaces."""

    def encode(self, text):
        return super().encode("".join(character for character in text if character in self.alphabet))


def test_prompts_without_a_token_are_left_out_before_a_game_starts_from_one(tmp_path):
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "train.jsonl", [{"prompt": text} for text in ("ae", "\u200b", "xyz", "io")])
    write(tmp_path / "data" / "test.jsonl", [{"prompt": "u"}])
    task = load(tmp_path / "data", tokenizer=Vowels("aeiou"))
    assert [query.text for query in task.queries("train")] == ["ae", "io"]
    assert task.left_out == ["2 train queries of no tokens are left out"]
    write(tmp_path / "data" / "test.jsonl", [{"prompt": "zzz"}])
    with pytest.raises(ValueError, match="the test queries have no tokens; give others"):
        load(tmp_path / "data", tokenizer=Vowels("aeiou"))


def test_chats_are_split_like_texts(tmp_path, chat_tokenizer):
    task = load(write(tmp_path / "a.jsonl", chats(40)), tokenizer=HFTokenizer(chat_tokenizer))
    numbers = {split: {q.row["gold"] for q in task.queries(split)} for split in SPLITS}
    assert numbers["train"] | numbers["validation"] | numbers["test"] == set(range(40))
    assert sum(map(len, numbers.values())) == 40


def test_chats_are_equal_with_and_without_keys_that_are_null(tmp_path, chat_tokenizer):
    """Arrow gives every message all keys of its column."""

    def chats(name, numbers, extra):
        rows = [{"messages": [{"role": "user", "content": f"Add {n}", **extra}]} for n in numbers]
        write(tmp_path / f"{name}.jsonl", rows)

    chats("train", range(30), {"name": None})
    chats("test", range(20, 40), {})
    task = load(tmp_path, tokenizer=HFTokenizer(chat_tokenizer))
    assert len(task.queries("test")) == 10
    assert all(message.keys() == {"role", "content"} for message in task.queries("train")[0].row["messages"])


def test_prompts_that_differ_in_what_no_model_reads_are_one(tmp_path, chat_tokenizer):
    """Chats with ids of messages, as logs have them, and texts with other white space around them."""
    messages = [[{"role": "user", "content": f"Add {n % 40}", "id": f"m-{n}"}] for n in range(80)]
    for rows, options in (
        ([{"messages": chat} for chat in messages], {"tokenizer": HFTokenizer(chat_tokenizer)}),
        ([{"prompt": " " * (n // 40) + f"Add {n % 40}"} for n in range(80)], {}),
    ):
        task = load(write(tmp_path / "a.jsonl", rows), **options)
        read = {split: [q.text.strip() for q in task.queries(split)] for split in SPLITS}
        assert sum(map(len, read.values())) == 40
        assert not set(read["test"]) & {*read["train"], *read["validation"]}


def test_messages_that_call_other_tools_are_other_prompts(tmp_path, chat_tokenizer):
    def call(n):
        return {"role": "assistant", "content": "", "tool_calls": [{"name": "add", "arguments": n}]}

    rows = [{"messages": [call(n), {"role": "user", "content": "And?"}]} for n in range(40)]
    task = load(write(tmp_path / "a.jsonl", rows), tokenizer=HFTokenizer(chat_tokenizer))
    assert len(task.queries("train")) + len(task.queries("test")) > 30


def test_prompts_that_are_too_long_are_left_out_and_counted(tmp_path):
    data = write(tmp_path / "a.jsonl", [{"prompt": "x" * n} for n in range(1, 41)])
    task = load(data, max_query=30)
    assert task.max_query == 30
    assert sum(int(line.split()[0]) for line in task.left_out) == 10
    with pytest.raises(ValueError, match="max_query is 0; give the most tokens of a prompt, from 1"):
        load(data, max_query=0)
    with pytest.raises(ValueError, match="queries is longer than max_query, 1 tokens; raise it to at least"):
        load(write(tmp_path / "b.jsonl", [{"prompt": "xy" * n} for n in range(1, 41)]), max_query=1)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"task": "a"}], {}, "has no column 'prompt' or .*; its columns are 'task'"),
        ([{"prompt": "a"}], {"column": "task"}, "has no column 'task'; its columns are 'prompt'"),
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
        (chats(30), {}, "the prompts are chats and this tokenizer has no chat template"),
    ],
)
def test_the_error_for_bad_data_names_the_remedy(tmp_path, rows, options, message):
    with pytest.raises(ValueError, match=message):
        load(write(tmp_path / "a.jsonl", rows), **options)


def test_a_missing_argument_is_named():
    with pytest.raises(ValueError, match="the prompts task needs the argument tokenizer"):
        tasks.load("prompts")
    with pytest.raises(ValueError, match="the prompts task needs the argument judge"):
        tasks.load("prompts", tokenizer=PRINTABLE)
    with pytest.raises(ValueError, match="the prompts task needs the argument data"):
        tasks.load("prompts", tokenizer=PRINTABLE, judge=zero)


def test_a_model_without_a_chat_template_is_refused(tmp_path, chat_tokenizer):
    chat_tokenizer.chat_template = None
    with pytest.raises(ValueError, match="this tokenizer has no chat template; write the prompt as text"):
        load(write(tmp_path / "a.jsonl", chats(20)), tokenizer=HFTokenizer(chat_tokenizer))


@pytest.mark.parametrize("role", ["assistant", "tool", "system"])
def test_a_chat_that_does_not_end_with_the_user_is_refused_with_the_role_it_ends_with(role, tmp_path):
    rows = [{"messages": [{"role": "user", "content": "a"}, {"role": role, "content": "b"}]}]
    with pytest.raises(ValueError, match=f"its last message is of {role}; .* a column of its own"):
        load(write(tmp_path / "a.jsonl", rows))


def test_contents_in_parts_of_text_are_read_as_one_text(tmp_path, chat_tokenizer):
    parts = [{"type": "text", "text": "Say "}, {"type": "text", "text": "x"}]
    rows = [
        {"prompt": [{"role": "user", "content": [*parts, {"type": "text", "text": str(n)}]}]}
        for n in range(30)
    ]
    task = load(write(tmp_path / "a.jsonl", rows), tokenizer=HFTokenizer(chat_tokenizer))
    other = load(
        write(
            tmp_path / "b.jsonl", [{"prompt": [{"role": "user", "content": f"Say x{n}"}]} for n in range(30)]
        ),
        tokenizer=HFTokenizer(chat_tokenizer),
    )
    assert task.queries("train") == other.queries("train")
    rows[3]["prompt"][0]["content"][0] = {"type": "image", "url": "cat.png"}
    with pytest.raises(ValueError, match=r"row 4 .* the content of a message is .*image.*; give text"):
        load(write(tmp_path / "c.jsonl", rows), tokenizer=HFTokenizer(chat_tokenizer))


def test_the_form_of_sharegpt_is_named(tmp_path):
    rows = [{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}]
    with pytest.raises(
        ValueError, match=r"row 1 .* ShareGPT's from and value; give them as role and content"
    ):
        load(write(tmp_path / "a.jsonl", rows))
