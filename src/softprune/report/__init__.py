"""Reports: what came out, and what it multiplies.

    report      sparsity layer by layer, of a pruner, a model or a file
    groups      how many groups a layer or a place has, and how many are dead
    masks       which weights are alive, one bit for each
    flops       how often a model multiplies each weight
    markdown    tables for documents and terminals

Imports the pruner and ``selection``; trainers and the command import it.
"""
