"""Data: images and labels, or text, from files or made up, in batches that resume.

    builtin     digits and synthetic images, which need no files
    text_files  text in files, Python's standard library, synthetic text; windows: batches of it
    idx_files   MNIST and its kin
    folders     class folders; listing finds their files, decode and jpeg read them, augment crops them
    split       Dataset, Split and Loader; order says which images are in which batch
    tensors     small images, kept on the device        files    large images (pictures), read by workers
    gpu         JPEG files (encoded by workers) decoded on a GPU; resample cuts and resizes them there

Imports torch and ``errors``; the command imports it, the core never does.

A loader's batches are a function of (seed, epoch, batch) and nothing else: neither the process's random state nor the
number of processes or workers matters. So two numbers resume a run in the middle of an epoch, and w processes together
see what one process sees.

>>> data = synthetic(classes=2, shape=(1, 8, 8), images=8)
>>> loader = data.train.loader(batch=4, train=True)
>>> next(iter(loader))[0].shape, loader.state_dict()
(torch.Size([4, 1, 8, 8]), {'epoch': 0, 'batch': 1})
"""

from softprune.data.builtin import digits, synthetic
from softprune.data.folders import folder
from softprune.data.idx_files import idx
from softprune.data.split import Dataset, Loader, Split
from softprune.data.text_files import pystdlib, synthetic_text, text

__all__ = [
    "Dataset",
    "Loader",
    "Split",
    "digits",
    "folder",
    "idx",
    "pystdlib",
    "synthetic",
    "synthetic_text",
    "text",
]
