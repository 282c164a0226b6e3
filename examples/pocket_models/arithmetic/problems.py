"""The corpus of the arithmetic model: sums and word problems, answered with steps or without.

    Question: 37 + 48 - 12
    Reference: 37 + 48 = 86          (in some documents: an attempt, possibly with a slip)
    86 - 12 = 74
    #### 74
    Answer: 37 + 48 = 85             (in others the result only: `Answer: #### 73`)
    85 - 12 = 73
    #### 73

Sums that `cory_env.tasks.arithmetic` holds out are never drawn.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cory_env.data.splits import in_test
from cory_env.tasks.arithmetic import OPERATIONS, VERDICTS, Step, expression, steps, worked
from examples.pocket_models.arithmetic.stories import WORDS

LARGEST = 999
"""No number of a word problem, and no result of its steps, is larger."""


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Frequencies in the corpus."""

    stories: float = 0.35
    """Share of word problems among the problems."""

    worked: float = 0.5
    """Share of answers with steps; the others state the result only."""

    references: float = 0.2
    """Share of documents with an attempt before the answer."""

    slips: float = 0.5
    """Share of attempts with one wrong step."""

    verdicts: float = 0.0
    """Share of attempts followed by whether they are right, as the task's `verdict` says it to observers."""

    asides: float = 0.15
    """Share of word problems with a superfluous number."""


def documents(seed: int, shares: Shares) -> Iterator[str]:
    """Endless documents, a function of the seed."""
    rng = random.Random(seed)
    while True:
        problem, done = story(rng, shares) if rng.random() < shares.stories else small_sum(rng)
        text = f"Question: {problem}\n"
        if rng.random() < shares.references:
            attempt = slipped(done, rng) if rng.random() < shares.slips else done
            text += f"Reference: {answer(attempt, rng, shares)}"
            if shares.verdicts and rng.random() < shares.verdicts:  # no draw at 0: the GPT-2 model's corpus
                text += VERDICTS[attempt[-1].result == done[-1].result]
            text += "\n"
        yield f"{text}Answer: {answer(done, rng, shares)}"


def answer(done: Sequence[Step], rng: random.Random, shares: Shares) -> str:
    """The steps and the result, or the result only."""
    whole = worked(done)
    return whole if rng.random() < shares.worked else whole[whole.index("####") :]


def small_sum(rng: random.Random) -> tuple[str, list[Step]]:
    """Two to four numbers of up to two digits to add and subtract, or two to multiply; no step below 0."""
    while True:
        count = rng.choice((2, 3, 3, 3, 4))
        numbers = [rng.randrange(10 ** rng.choice((1, 2, 2, 2))) for _ in range(count)]
        signs = [rng.choice("+-") for _ in numbers[1:]]
        if count == 2 and rng.random() < 0.2:
            numbers, signs = [rng.randrange(100), rng.randrange(10)], ["*"]
        done, text = steps(numbers, signs), expression(numbers, signs)
        if min(step.result for step in done) >= 0 and not in_test(text):
            return text, done


def story(rng: random.Random, shares: Shares) -> tuple[str, list[Step]]:
    """A word problem and its steps."""
    text, calculation = rng.choice(WORDS.stories)
    men = rng.random() < 0.5
    first = rng.choice(WORDS.men if men else WORDS.women)
    second = rng.choice([name for name in (*WORDS.men, *WORDS.women) if name != first])
    things, others = rng.sample(WORDS.things, 2)
    if rng.random() < 0.2:
        things = f"{rng.choice(WORDS.colours)} {things}"
    box, boxes = rng.choice(WORDS.boxes)
    if rng.random() < shares.asides:
        setting, question = text[: (cut := text[:-1].rfind(".") + 1)], text[cut:]
        text = f"{setting} {rng.choice(WORDS.asides)}{question}".strip()
    numbers, done = calculated(calculation, rng)
    problem = text.format(
        A=first, B=second, things=things, others=others, box=box, boxes=boxes, place=rng.choice(WORDS.places),
        colour=rng.choice(WORDS.colours), w=rng.randint(2, 99), he="he" if men else "she",
        He="He" if men else "She", his="his" if men else "her", him="him" if men else "her", **numbers,
    )  # fmt: skip
    return problem[0].upper() + problem[1:], done


def calculated(calculation: str, rng: random.Random) -> tuple[dict[str, int], list[Step]]:
    """Numbers for x, y, z that make every result whole, positive and not too large; and the steps."""
    while True:
        numbers = {name: rng.randint(2, rng.choice((12, 40, 99))) for name in "xyz"}
        done: list[Step] = []
        for part in calculation.split(", "):
            left, sign, right = part.split()
            a, b = (done[-1].result if name == "_" else numbers[name] for name in (left, right))
            if sign == "*" and max(a, b) > 20 and min(a, b) > 9:
                break
            if sign == "/" and (b > 12 or a % b):
                break
            done.append(Step(a, sign, b, OPERATIONS[sign](a, b)))
            if not 0 < done[-1].result <= LARGEST:
                break
        else:
            return numbers, done


def slipped(done: Sequence[Step], rng: random.Random) -> list[Step]:
    """The steps with one result wrong by 1, 2 or 10; each later step starts from the wrong result."""
    at, wrong = rng.randrange(len(done)), list(done)
    now = max(done[at].result + rng.choice((-10, -2, -1, 1, 2, 10)), 0)
    wrong[at] = done[at]._replace(result=now)
    for i in range(at + 1, len(wrong)):
        _, sign, right, _ = wrong[i]
        wrong[i] = Step(now, sign, right, max(OPERATIONS[sign](now, right), 0))
        now = wrong[i].result
    return wrong
