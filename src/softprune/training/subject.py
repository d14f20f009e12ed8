"""What `softprune bench` measures: the network of a run, or of a recipe that nobody trained yet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

import softprune as sp
from softprune.bench.masks import RandomBlocks, settle, sparsify
from softprune.errors import ConfigError
from softprune.recipes.config import Config
from softprune.training import model_file, names
from softprune.training.folder import Folder

SAMPLES = 64
"""How many images, or windows of text; all but the timed batch are for ranges of values."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A network in evaluation mode, on the CPU in single precision, and what it sees."""

    title: str
    network: nn.Module
    samples: Tensor

    @staticmethod
    def of_run(path: Path) -> Subject:
        """With the weights of a run, and images or text of its data."""
        folder = Folder.open(path)
        config, source = replace(folder.config, decode="cpu"), folder.newest_weights()
        data = names.dataset(config)
        network = names.NETWORKS.find(config.network).build(len(data.classes), data.shape)
        try:
            network.load_state_dict(model_file.read(source))
        except RuntimeError as error:
            raise ConfigError(
                f"{source} does not fit the network {config.network!r} for {len(data.classes)} classes and "
                f"{data.shape[0]} channels. Put the data back that the run was trained on."
            ) from error
        samples, _ = next(iter(data.train.loader(batch=min(SAMPLES, len(data.train)), train=False)))
        return Subject(_title(f"{config.network} of {path}", network), network.float().eval(), samples)

    @staticmethod
    def of_recipe(config: Config) -> Subject:
        """With random weights, of which those that the target leaves are at random places, and random inputs."""
        if config.target is None:
            raise ConfigError(
                "A recipe has no weights yet: say how sparse random ones shall be, as `target=0.9`, and in which "
                "pattern, as `pattern=block4`; or give the folder of a run."
            )
        entry = names.NETWORKS.find(config.network)
        torch.manual_seed(config.seed)
        if entry.takes == "text":
            samples = torch.randint(256, (SAMPLES, *entry.shape))
        else:
            samples = torch.randn(SAMPLES, *entry.shape)
        network = entry.build(256 if entry.takes == "text" else 1000 if entry.pixels == 224 else 10, entry.shape)
        budgets = dict.fromkeys(sp.select(network, exclude=config.exclude), config.target)
        sparsify(network, budgets, _blocks(config, network, samples[:1]), config.seed)
        return Subject(_title(f"{config.network} with random weights", network), settle(network, samples), samples)


def _blocks(config: Config, network: nn.Module, example: Tensor) -> RandomBlocks:
    pattern = names.PATTERNS.find(config.pattern)
    if pattern.units:
        raise ConfigError(
            f"Cannot make random zeros with `pattern={config.pattern}`. This is because what it prunes is removed, and "
            "the network is dense again. Train it, and see the report; or use `pattern=block4`."
        )
    groups = pattern.build and pattern.build(network, example)
    return RandomBlocks(groups.rows, groups.cols) if isinstance(groups, sp.Blocks) else RandomBlocks()


def _title(what: str, network: nn.Module) -> str:
    report = sp.summarize(network)
    return f"{what}: {report.sparsity:.2%} of its weights are zero."
