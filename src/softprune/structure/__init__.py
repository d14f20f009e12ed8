"""Structure: which channels, neurons and heads a network has, who makes and who reads each.

    labels      which elements belong to the same unit
    state       what is known of each tensor
    record      what rules read and write
    pointwise   rules: element by element, along a dimension, norms
    products    rules: matrix products, convolutions, attention
    moves       rules: views, slices, concatenation
    trace       the forward pass that applies them
    analysis    ``analyse(model, example) -> Structure``

Imports torch and ``errors``.
"""

from softprune.structure.analysis import Axis, Site, Structure, analyse
from softprune.structure.record import Kind

__all__ = ["Axis", "Kind", "Site", "Structure", "analyse"]
