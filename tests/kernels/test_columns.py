"""Columns: one level for each tensor, or one for each weight, on host or device."""

import torch

from softprune.kernels.columns import floats, is_scalar, placed, take


def test_part_of_a_column_is_a_column_of_the_same_kind():
    assert take([0.1, 0.2, 0.3], [0, 2]) == [0.1, 0.3]
    vector = torch.tensor([0.1, 0.2, 0.3])
    assert torch.equal(take(vector, [0, 2]), vector[[0, 2]])
    assert take(vector, [0, 1, 2]) is vector  # all of it costs nothing


def test_a_column_is_scalar_unless_a_level_is_a_tensor_of_its_own():
    assert is_scalar([0.1, 0.2])
    assert is_scalar(torch.tensor([0.1, 0.2]))
    assert not is_scalar([torch.ones(2), torch.ones(3)])
    assert not is_scalar([0.1, torch.ones(3)])


def test_the_host_reads_means_of_levels_for_each_weight():
    assert floats([0.5, torch.tensor([1.0, 3.0])]) == [0.5, 2.0]
    assert floats(torch.tensor([0.5, 0.25])) == [0.5, 0.25]


def test_levels_are_placed_beside_their_tensors():
    tensors = [torch.empty(2, device="meta"), torch.empty(3)]
    assert [level.device.type for level in placed(torch.tensor([0.1, 0.2]), tensors)] == ["meta", "cpu"]
    assert list(placed([0.1, 0.2], tensors)) == [0.1, 0.2]
