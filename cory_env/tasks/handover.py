r"""handover: worked sums in which an observer continues the response before its own.

    pioneer reads    Question: 39 + 85 + 55 - 3\nAnswer:
    and writes       39 + 85 = 124\n124 + 55                (its cap)
    observer reads   Question: 39 + 85 + 55 - 3\nAnswer: 39 + 85 = 124\n124 + 55
    and writes        = 179\n179 - 3 = 176\n#### 176        1 for the right final number, else 0

With a cap too short for a whole solution and long enough for half of it (18 tokens with `pocket-arithmetic`,
whose solutions take 24 to 35), only an observer can finish, and only from a beginning that is right. The
pioneer's own score is next to nothing, so a payoff of its own score teaches it nothing; the collective reward
teaches it to leave work that can be finished, and competition to leave work that misleads.

The problems are those of `arithmetic`, worked.
"""

from cory_env.tasks import arithmetic
from cory_env.tasks.base import earlier
from cory_env.tokenizer import Tokenizer


class Task(arithmetic.Task):
    """Every response continues those before it; each is scored by the final number in its own text."""

    def __init__(
        self, tokenizer: Tokenizer | None = None, *, digits: int = 2, terms: int = 4, signs: str = "+-"
    ) -> None:
        """Make the problems.

        Args:
            tokenizer: By default one id for each character.
            digits: The most digits of a number.
            terms: Numbers of a problem.
            signs: Signs between the numbers, out of `+-*`.
        """
        super().__init__(tokenizer, digits=digits, terms=terms, signs=signs, worked=True)

    def template(self, seat: str) -> str:
        """Return the question and, behind `Answer:`, what the earlier seats wrote, one behind the other."""
        return "Question:{query}\nAnswer:" + "".join(f"{{response_{k}}}" for k in earlier(seat))
