"""Layouts: a trained sparse network, stored as a GPU's kernels want it. For inference.

    result           what was converted, and what was not and why
    block_sparse     BlockSparseLinear, which holds the blocks that are not zero
    convert          ``to_semi_structured(model)``, ``to_block_sparse(model, 64)``

Imports torch and ``errors``.
"""

from softprune.layouts.block_sparse import BlockSparseLinear
from softprune.layouts.convert import to_block_sparse, to_semi_structured
from softprune.layouts.result import Converted, Layer

__all__ = ["BlockSparseLinear", "Converted", "Layer", "to_block_sparse", "to_semi_structured"]
