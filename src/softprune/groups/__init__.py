"""Groups: which weights share a fate. A prox then maps the size of a group as it maps that of a weight.

    base        Grouping, a value; Partition, at work on the weights of one pruner
    blocks      Blocks: small rectangles of a weight
    units       Groups by hand, and Channels, Neurons and Heads, which a network's structure tells

Imports ``kernels`` and ``structure``; a prox and thresholds import it.
"""
