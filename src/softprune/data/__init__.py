"""Images and labels: digits, MNIST files, image folders, synthetic. The core never imports this package.

A loader's batches are a function of (seed, epoch, batch) and nothing else: not of the process's random state, the
number of processes or of workers. So two numbers resume a run in the middle of an epoch, and w processes see together
what one process sees.

>>> data = synthetic(classes=2, shape=(1, 8, 8), images=8)
>>> loader = data.train.loader(batch=4, train=True)
>>> next(iter(loader))[0].shape, loader.state_dict()
(torch.Size([4, 1, 8, 8]), {'epoch': 0, 'batch': 1})
"""

from softprune.data.builtin import digits, synthetic
from softprune.data.folders import folder
from softprune.data.idx_files import idx
from softprune.data.split import Dataset, Loader, Split

__all__ = ["Dataset", "Loader", "Split", "digits", "folder", "idx", "synthetic"]
