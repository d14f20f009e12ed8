"""Reports: what came out, and what it multiplies.

    report      sparsity layer by layer, of a pruner, a model or a file
    masks       which weights are alive, one bit for each
    flops       how often a model multiplies each weight
    markdown    tables for documents

Imports the pruner and ``selection``; trainers and the command import it.
"""
