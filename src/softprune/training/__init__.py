"""Runs of the command, on Lightning: a run has a folder, and whatever kills it, it resumes.

    names       every name of a setting, and the object it becomes (entries: what an entry is)
    settings    what settings mean, and which are refused
    rate        the learning rate of a step
    task        network, loss, optimizer and pruner in a LightningModule
    stream      the images or the text of a run, batch by batch
    data_card   what the data are
    run         trained, resumed, measured
    folder      a run's folder: owned, read, withdrawn (files: atomic writing, careful reading)
    checkpoint  written whole, read without running code, passed over if they are not this run's
    history     rows of numbers in history.jsonl
    recorder    PruningCallback for the command: logs, history, lines for each epoch
    trainer     Lightning's Trainer, to train and to measure
    observer    accuracy, loss, and what else a network has to tell (headline: in a sentence)
    results     the files of a complete run (model_file: weights as safetensors; plots)
    small       the network without what died
    tables      `softprune report`: of a run, of a checkpoint, of a model file
    frontier    several runs: accuracy against sparsity
    drawings    `softprune schedules`
    launch      the processes of a launch

May import every other room; only the command line imports it. names, settings, rate, folder, files, headline, history
and launch import neither torch nor Lightning, so that questions are answered at once.
"""
