"""Classifiers and n-gram judges."""

import json
import math
import random

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import save_file
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BloomConfig,
    BloomForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
    XLNetConfig,
    XLNetForSequenceClassification,
)

from cory.judges.classifier import Classifier
from cory.judges.ngrams import NGrams, ngram_buckets
from tests.helpers.tables import letters

TEXTS = ["good", "a bad film", "this was the best of all bad films, I liked it", "you did not", "good film"]


@pytest.fixture(scope="session")
def folder(tiny_folder, tmp_path_factory):
    """A random classifier of three labels with a window of 16 tokens and no pad id."""
    return save_classifier(tiny_folder, tmp_path_factory.mktemp("judge"), ["sad", "Positive", "other"])


def save_classifier(tiny_folder, folder, names):
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    shape = GPT2Config(
        vocab_size=len(tokenizer), n_embd=16, n_head=2, n_layer=1, n_positions=16, initializer_range=0.5,
        id2label=dict(enumerate(names)), label2id={name: i for i, name in enumerate(names)},
    )  # fmt: skip
    GPT2ForSequenceClassification(shape).half().save_pretrained(folder)
    return folder


@pytest.mark.parametrize("batch_size", [1, 2, 256])
def test_each_text_scores_as_the_model_scores_it_by_itself(folder, batch_size):
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    want = [model(**tokenizer(text, return_tensors="pt")).logits[0, 1].item() for text in TEXTS]
    got = Classifier(folder, output="logit", batch_size=batch_size)(TEXTS)
    assert got == pytest.approx(want, abs=1e-5)
    assert len(set(got)) == len(TEXTS)


def test_a_label_that_is_a_number_is_a_name_before_it_is_an_index(tiny_folder, tmp_path):
    stars = save_classifier(tiny_folder, tmp_path, ["1", "2", "3"])
    shares = [Classifier(stars, label=name, output="probability")(TEXTS)[0] for name in "123"]
    assert sum(shares) == pytest.approx(1)
    assert Classifier(stars, label="0")(TEXTS) == Classifier(stars, label="1")(TEXTS)  # the first


# logits 0, log 2, log 3: the label "positive" has P = 2/6 and odds of 2 to 4
@pytest.mark.parametrize(
    ("output", "want"), [("logit", math.log(2)), ("probability", 1 / 3), ("log_odds", math.log(0.5))]
)
def test_outputs_by_hand(folder, output, want):
    judge = Classifier(folder, output=output)
    for parameter in judge.model.parameters():
        parameter.data.zero_()
    judge.model.transformer.ln_f.bias.data[0] = 1.0
    judge.model.score.weight.data[:, 0] = torch.tensor([1.0, 2.0, 3.0]).log()
    assert judge(["a film", "good"]) == pytest.approx([want, want])


def test_label_is_found_by_name_in_any_case_or_by_index(folder):
    assert Classifier(folder, label="positive")(TEXTS) == Classifier(folder, label=1)(TEXTS)
    assert Classifier(folder, label="sad")(TEXTS) != Classifier(folder, label=1)(TEXTS)
    assert Classifier(folder, label="1")(TEXTS) == Classifier(folder, label=1)(TEXTS)


def test_of_a_text_longer_than_the_window_the_end_is_read(folder):
    """The response is there; special tokens stay around what is left."""
    judge = Classifier(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = "this was all bad, you did not " * 20
    last = tokenizer.decode(tokenizer(f"{prompt} the best of all films")["input_ids"][-16:])
    scores = judge([f"{prompt} the best of all films", last, f"{prompt} the worst of all films"])
    assert scores[0] == pytest.approx(scores[1])
    assert scores[0] != pytest.approx(scores[2])


def test_text_longer_than_the_window_is_cut_if_positions_start_after_the_pad_id(tiny_folder, tmp_path):
    """RoBERTa with 16 positions and pad id 0 reads 15 tokens."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    tokenizer.save_pretrained(tmp_path)
    shape = RobertaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_attention_heads=2,
        num_hidden_layers=1, max_position_embeddings=16, pad_token_id=0, type_vocab_size=1, num_labels=2,
    )  # fmt: skip
    RobertaForSequenceClassification(shape).save_pretrained(tmp_path)
    judge = Classifier(tmp_path, label=1)
    assert judge.window == 15
    assert math.isfinite(judge(["good film " * 50])[0])


def test_no_text_and_an_empty_text_have_scores(folder):
    judge = Classifier(folder)
    assert judge([]) == []
    with_empty = judge(["good", "", "a bad film"])
    assert all(math.isfinite(score) for score in with_empty)
    assert with_empty[::2] == pytest.approx(judge(["good", "a bad film"]))


def test_the_error_for_an_unknown_label_lists_the_known_ones(folder):
    with pytest.raises(ValueError, match="no label 'happy'; choose one of 0: sad, 1: Positive, 2: other"):
        Classifier(folder, label="happy")
    with pytest.raises(ValueError, match="no label 3; choose one of"):
        Classifier(folder, label=3)


def test_unknown_output_is_refused(folder):
    with pytest.raises(ValueError, match="output is 'odds'; choose log_odds, logit or probability"):
        Classifier(folder, output="odds")


def test_missing_folder_is_refused_without_a_request_to_the_hub(tmp_path):
    with pytest.raises(ValueError, match=r"judge folder .*nowhere has no config\.json"):
        Classifier(tmp_path / "nowhere")


def test_folder_without_weights_is_refused(folder, tmp_path):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(ValueError, match="no sequence classifier could be read"):
        Classifier(tmp_path)


def as_pipeline(folder, texts, **options):
    """What transformers itself makes of a classifier: a score by label for each text."""
    pipeline = transformers.pipeline("text-classification", str(folder), dtype=torch.float32)
    found = pipeline(texts, top_k=None, **options)
    return [{row["label"]: row["score"] for row in rows} for rows in found]


def test_labels_that_do_not_exclude_each_other_are_scored_one_by_one(tiny_folder, tmp_path):
    folder = save_classifier(tiny_folder, tmp_path, ["toxic", "insult", "threat"])
    config = json.loads((folder / "config.json").read_text())
    config["problem_type"] = "multi_label_classification"
    (folder / "config.json").write_text(json.dumps(config))
    texts = ["good", "a bad film", "film"]
    want = [row["insult"] for row in as_pipeline(folder, texts)]
    assert Classifier(folder, label="insult", output="probability")(texts) == pytest.approx(want, abs=1e-6)
    log_odds = [math.log(p / (1 - p)) for p in want]
    assert Classifier(folder, label="insult")(texts) == pytest.approx(log_odds, abs=1e-5)


def test_the_one_output_of_a_reward_model_is_its_score(tiny_folder, tmp_path):
    folder = save_classifier(tiny_folder, tmp_path, ["LABEL_0"])
    texts = ["good", "a bad film"]
    want = [row["LABEL_0"] for row in as_pipeline(folder, texts, function_to_apply="none")]
    assert Classifier(folder)(texts) == pytest.approx(want, abs=1e-6)
    assert Classifier(folder, output="logit")(texts) == Classifier(folder)(texts)


def test_buckets_are_words_and_pairs_in_lower_case_without_repeats():
    # a, good, "a good", "good a": four; in another order of the same words the pairs differ
    assert len(ngram_buckets("A good, a good", 2**30)) == 4
    assert ngram_buckets("A good, a good", 2**30) == ngram_buckets("a GOOD a good", 2**30)
    assert len(set(ngram_buckets("good film", 2**30)) & set(ngram_buckets("film good", 2**30))) == 2
    assert all(0 <= bucket < 7 for bucket in ngram_buckets("any words at all will do here", 7))


def test_ngrams_by_hand(tmp_path):
    # every weight 1.5, four different n-grams: -0.25 + 4^-0.5 * 4 * 1.5 = 2.75; no n-gram: the bias
    save_file({"weights": np.full(1000, 1.5, np.float16)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"exponent": 0.5, "bias": -0.25}))
    assert len(ngram_buckets("A good, a good", 1000)) == 4
    assert NGrams(tmp_path)(["A good, a good", "", "..."]) == [2.75, -0.25, -0.25]


def test_ngrams_folder_must_be_complete(tmp_path):
    with pytest.raises(
        ValueError, match=r"has no config\.json; make it with examples\.pocket_models\.fit_second_judge"
    ):
        NGrams(tmp_path)


def test_scores_come_in_the_order_of_the_texts(folder):
    shuffled = random.Random(0).sample(TEXTS, len(TEXTS))
    judge = Classifier(folder)
    by_text = dict(zip(TEXTS, judge(TEXTS), strict=True))
    assert judge(shuffled) == pytest.approx([by_text[text] for text in shuffled])


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (BloomForSequenceClassification, BloomConfig(vocab_size=300, hidden_size=16, n_layer=1, n_head=2)),
        (
            XLNetForSequenceClassification,
            XLNetConfig(vocab_size=300, d_model=16, n_layer=1, n_head=2, d_inner=16),
        ),
    ],
)
def test_a_classifier_without_a_limit_of_positions_reads_whole_texts(kind, shape, tmp_path):
    kind(shape).save_pretrained(tmp_path)
    letters().save_pretrained(tmp_path)
    judge = Classifier(str(tmp_path), label="0")
    assert judge.window is None
    short, long = judge(["a", "ab" * 40])
    assert short != long
