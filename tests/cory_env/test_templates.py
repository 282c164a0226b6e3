"""Templates as texts and as chats."""

import pytest

from cory_env import make_views
from cory_env.tasks.echo import Task as Echo
from cory_env.templates import read_template
from cory_env.tokenizer import CharTokenizer, HFTokenizer
from cory_env.types import seat_names
from cory_env.views import compile_view

CHAT = (
    "{% for message in messages %}<{{ message.role[0] }}>{{ message.content | trim }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)
MESSAGES = [{"role": "system", "content": " be kind "}, {"role": "user", "content": "{query}!{response_0}"}]


def characters(metaspace=False):
    """A loaded Hugging Face tokenizer with one id per character; `metaspace` opens texts with a space."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    alphabet = [*"abcdefghijklmnopqrstuvwxyz!\n.", "▁" if metaspace else " ", "<s>", "<u>", "<a>", "</s>"]
    vocabulary = {token: i for i, token in enumerate(alphabet)}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    if metaspace:
        inner.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first")
    inner.add_special_tokens(["<s>", "<u>", "<a>", "</s>"])
    loaded = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>")
    loaded.chat_template = CHAT
    return HFTokenizer(loaded), vocabulary


def test_a_chat_is_rendered_by_the_tokenizer_with_ids_in_place_of_the_placeholders():
    tokenizer, ids = characters()
    view = compile_view("observer_1", MESSAGES, seen=(0,), tokenizer=tokenizer)
    assert view.template == "<s>be kind</s><u>{query}!{response_0}</s><a>"
    a, eos = ids["a"], ids["</s>"]
    kind = [ids["<s>"], *(ids[c] for c in "be kind"), eos]
    # special tokens in the chat template become their ids; the EOS of the response is left out
    assert view.prompt((a, a), [(a, eos)]) == (*kind, ids["<u>"], a, a, ids["!"], a, eos, ids["<a>"])


def test_chats_and_texts_can_be_mixed_by_seat():
    tokenizer, _ = characters()
    views = make_views(Echo(tokenizer, length=2), seats=2, templates={"observer_1": MESSAGES})
    assert [view.template[:3] for view in views] == ["{qu", "<s>"]


class Chatty(Echo):
    """echo whose prompts are chats."""

    def template(self, seat):
        shown = "".join(f"{{response_{k}}}." for k in range(seat_names(3).index(seat)))
        return [{"role": "user", "content": f"{{query}}!{shown}"}]


def test_a_task_may_have_chats_as_templates_under_every_view():
    task = Chatty(characters()[0], length=2)

    def templates(sees):
        return [view.template.removeprefix("<u>") for view in make_views(task, seats=3, sees=sees)]

    alone, one = "{query}!</s><a>", "{query}!{response_0}.</s><a>"
    assert templates("all") == [alone, one, "{query}!{response_0}.{response_1}.</s><a>"]
    assert templates("previous") == [alone, one, one.replace("0", "1")]
    assert templates("none") == [alone] * 3


def test_braces_of_the_chat_template_itself_stay():
    tokenizer, _ = characters()
    tokenizer.inner.chat_template = "{{ '{x}' }}" + CHAT
    pieces = read_template("observer_1", MESSAGES, tokenizer)
    assert [piece[0] for piece in pieces] == ["{x}<s>be kind</s><u>", "!", "</s><a>"]


@pytest.mark.parametrize(
    ("chat", "messages", "fault"),
    [
        (CHAT, [{"role": "user", "content": "{query}"}], r"template of observer_1 lacks \{response_0\}"),
        (CHAT, [{"role": "user"}], "a message has a role and a content"),
        (
            "only words",
            MESSAGES,
            r"template of observer_1 lacks \{query\}",
        ),  # it drops the message of the user
        ("{{ raise_exception('no system') }}", MESSAGES, "the chat template refuses .* no system"),
        (None, MESSAGES, "this tokenizer has no chat template; write the prompt as text"),
    ],
)
def test_a_wrong_chat_is_refused(chat, messages, fault):
    tokenizer, _ = characters()
    tokenizer.inner.chat_template = chat
    with pytest.raises(ValueError, match=fault):
        compile_view("observer_1", messages, seen=(0,), tokenizer=tokenizer)


def test_the_error_for_a_tokenizer_without_chat_names_the_remedy():
    with pytest.raises(ValueError, match=r"this tokenizer has no chat template; put .*HFTokenizer"):
        compile_view("observer_1", MESSAGES, seen=(0,), tokenizer=CharTokenizer())


def test_no_space_is_added_to_literals_behind_a_placeholder():
    tokenizer, ids = characters(metaspace=True)
    assert tokenizer.encode("b") == [ids["▁"], ids["b"]]  # as Llama's tokenizer does at the start of a text
    view = compile_view("pioneer_0", "b{query}b{query} b{query}\nb", seen=(), tokenizer=tokenizer)
    literals = [segment for segment in view.segments if isinstance(segment, tuple)]
    b, space = ids["b"], ids["▁"]
    assert literals == [(space, b), (b,), (space, b), (ids["\n"], b)]


def test_what_a_chat_template_refuses_is_said():
    tokenizer, _ = characters()
    tokenizer.inner.chat_template = "{{ raise_exception('no users') }}"
    with pytest.raises(ValueError, match=r"the chat template refuses .*: no users"):
        tokenizer.chat([{"role": "user", "content": "hi"}])
