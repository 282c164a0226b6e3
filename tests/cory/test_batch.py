import pytest
import torch

from cory.batch import Batch, Rows, concat, stack


def rows() -> Rows:
    # 9s are padding: they must show up nowhere
    return Rows(
        prompt_BP=torch.tensor([[1, 2, 9], [3, 4, 5]]),
        prompt_length_B=torch.tensor([2, 3]),
        response_BT=torch.tensor([[6, 7], [8, 9]]),
        response_length_B=torch.tensor([2, 1]),
    )


def batch(**changes) -> Batch:
    tensors = {name: getattr(rows(), name) for name in Rows.__dataclass_fields__}
    floats = [n for n in Batch.__dataclass_fields__ if n.endswith("_BT") and n != "response_BT"]
    tensors |= {name: torch.zeros(2, 2) for name in floats}
    return Batch(**{**tensors, "score_B": torch.tensor([1.0, 2.0]), "payoff_B": torch.zeros(2), **changes})


def test_joined_puts_each_response_right_behind_its_prompt():
    assert rows().joined().tolist() == [[1, 2, 6, 7], [3, 4, 5, 8]]


def test_mask_comes_from_lengths_so_a_pad_id_that_was_chosen_counts():
    assert rows().mask_BT.tolist() == [[True, True], [True, False]]


def test_predicting_positions_are_those_before_each_chosen_token():
    # input: 1 2 6 and 3 4 5 (8 predicts nothing). Row 0: 2, 6 predict 6, 7; row 1: 5 predicts 8, at 3 + 2
    assert rows().input_ids().tolist() == [[1, 2, 6], [3, 4, 5]]
    assert rows().predicting_positions().tolist() == [1, 2, 5]


def test_a_wrong_shape_is_named():
    with pytest.raises(ValueError, match=r"Batch.payoff_B has shape \(3,\); response_BT asks for \(2,\)"):
        batch(payoff_B=torch.zeros(3))


def test_an_empty_response_is_refused():
    with pytest.raises(ValueError, match="response_length_B holds a 0"):
        batch(response_length_B=torch.tensor([2, 0]))


def test_take_reorders_and_cuts_to_the_longest_row_left():
    one = batch().take(torch.tensor([1]))
    assert one.response_BT.tolist() == [[8]]
    assert one.score_B.tolist() == [2.0]
    assert batch().take(torch.tensor([0])).prompt_BP.tolist() == [[1, 2]]


def test_passes_hold_rows_of_like_lengths_and_their_states_come_back_in_order():
    """Prompts and responses of 3 + 1, 1 + 2, 2 + 3 and 1 + 1 tokens, two rows at a time."""
    four = Rows(
        prompt_BP=torch.tensor([[1, 1, 1], [2, 0, 0], [3, 3, 0], [4, 0, 0]]),
        prompt_length_B=torch.tensor([3, 1, 2, 1]),
        response_BT=torch.tensor([[10, 0, 0], [20, 21, 0], [30, 31, 32], [40, 0, 0]]),
        response_length_B=torch.tensor([1, 2, 3, 1]),
    )
    seen = []

    def states_of(rows: Rows) -> torch.Tensor:
        seen.append(rows.joined().tolist())
        return rows.chosen(rows.response_BT)[:, None] * torch.tensor([[1, 2]])

    found = four.in_passes(2, states_of)
    assert seen == [
        [[4, 40, 0], [2, 20, 21]],
        [[1, 1, 1, 10, 0], [3, 3, 30, 31, 32]],
    ]
    assert found.tolist() == [[n, 2 * n] for n in (10, 20, 21, 30, 31, 32, 40)]
    assert torch.equal(four.in_passes(4, states_of), found)
    assert len(seen) == 3


def test_concat_pads_the_narrow_one_and_stack_keeps_every_row():
    assert concat([torch.ones(1, 1), torch.ones(1, 2)]).tolist() == [[1.0, 0.0], [1.0, 1.0]]
    both = stack(Batch, [batch().take(torch.tensor([1])), batch()])
    assert both.response_BT.tolist() == [[8, 0], [6, 7], [8, 9]]
    assert both.response_length_B.tolist() == [1, 2, 1]
