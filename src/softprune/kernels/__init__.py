"""Kernels: many tensors in one launch on a GPU, and the same in plain torch.

    pairs       tensors with their θ: a table of addresses, blocks, the launch
    columns     one level (d or k) for each tensor, on host or device
    shrink      the soft threshold and its derivative
    power       the power threshold
    count       histograms of magnitudes, survivors of a threshold
    factor      what the threshold leaves of a group
    blocks      the threshold of blocks of weights; grids, how they lie in memory
    units       groups that span several tensors: their sums, their scaling; tiles, how these lie in memory
    rows        gradients of rows of zeros, cut to the length of others
    sharding    this process's part of a sharded tensor, sums over processes

Knows tensors, nothing of pruners or optimizers. A new GPU kernel belongs here, beside its plain twin.
"""
