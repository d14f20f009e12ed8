"""What torch's optimizers and schedulers do; nothing about pruning.

    lookup      the param group, the index and the learning rate of a parameter
    wrappers    the torch optimizer or scheduler inside a library's wrapper
    hooks       before, after and inside a step; steps that do not count
    frames      two questions that only the interpreter's frames answer
    state       our entries in ``optimizer.state_dict()``
    future      a scheduler, played forward

Imports ``errors`` alone; thresholds, the pruner and rival methods import it.
"""
