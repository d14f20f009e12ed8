"""Models with a config: shrunk, saved and loaded again they are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from softprune.removal import Shrunk, shrink
from softprune.structure import Kind, analyse

transformers = pytest.importorskip("transformers")

EXAMPLE = {"input_ids": torch.arange(14).view(2, 7), "attention_mask": torch.tensor([[1] * 7, [1] * 5 + [0] * 2])}


def llama(**changes: Any) -> nn.Module:
    config = {
        "hidden_size": 32, "intermediate_size": 24, "num_attention_heads": 8, "num_key_value_heads": 4,
        "num_hidden_layers": 2, "vocab_size": 50, "pad_token_id": 0,
    } | changes  # fmt: skip
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**config)).eval()


def bert() -> nn.Module:
    config = transformers.BertConfig(
        hidden_size=32, intermediate_size=24, num_attention_heads=4, num_hidden_layers=2, vocab_size=50
    )
    return transformers.BertForSequenceClassification(config).eval()


def kill(model: nn.Module, counts: dict[Kind, tuple[int, int]]) -> None:
    """In each layer so many units of each kind, not the same in all layers."""
    structure = analyse(model, EXAMPLE)
    own = dict(model.named_parameters())
    for kind, numbers in counts.items():
        sites = [site for site in structure.sites if site.kind is kind]
        for site, number in zip(sites, numbers, strict=False):
            units = torch.tensor(list(site.units)[:number])
            for axis in structure.axes:
                if axis.reads:
                    own[axis.name].data[:, torch.isin(axis.units, units)] = 0


def check(model: nn.Module, shrunk: Shrunk, folder: Path) -> nn.Module:
    """Equal now, and after it was saved and loaded."""
    shrunk.model.save_pretrained(folder)
    again = type(model).from_pretrained(folder).eval()
    expected = model(**EXAMPLE).logits
    for other in (shrunk.model.eval(), again):
        torch.testing.assert_close(other(**EXAMPLE).logits, expected, rtol=1e-5, atol=1e-6)
    assert sum(p.numel() for p in again.parameters()) == shrunk.parameters[1] < shrunk.parameters[0]
    return again


@pytest.mark.parametrize(
    "changes", [{}, {"tie_word_embeddings": True}, {"attn_implementation": "eager"}, {"mlp_bias": True}]
)
def test_llama(changes: dict[str, Any], tmp_path: Path) -> None:
    model = llama(**changes)
    kill(model, {Kind.HEAD: (2, 3), Kind.NEURON: (10, 6)})
    shrunk = shrink(model, EXAMPLE)
    config = check(model, shrunk, tmp_path).config
    assert (config.num_key_value_heads, config.num_attention_heads, config.head_dim) == (2, 4, 4)
    assert config.intermediate_size == 24 - 6
    assert model.config.intermediate_size == 24
    assert shrunk.model.model.layers[0].mlp.intermediate_size == 18
    assert "left alone: a config has one size for all layers" in str(shrunk)


def test_qwen3_keeps_its_norms_of_heads(tmp_path: Path) -> None:
    config = transformers.Qwen3Config(
        hidden_size=32, intermediate_size=24, num_attention_heads=8, num_key_value_heads=4, head_dim=6,
        num_hidden_layers=2, vocab_size=50, pad_token_id=0,
    )  # fmt: skip
    model = transformers.Qwen3ForCausalLM(config).eval()
    kill(model, {Kind.HEAD: (2, 2), Kind.NEURON: (5, 5)})
    config = check(model, shrink(model, EXAMPLE), tmp_path).config
    assert (config.num_key_value_heads, config.intermediate_size, config.head_dim) == (2, 19, 6)


def test_bert_has_one_width_for_all_layers_and_no_config_for_fewer_heads(tmp_path: Path) -> None:
    model = bert()
    kill(model, {Kind.HEAD: (2, 2), Kind.NEURON: (10, 6, 8)})
    shrunk = shrink(model, EXAMPLE)
    assert check(model, shrunk, tmp_path).config.intermediate_size == 24 - 6
    reasons = {change.name: change.reason for change in shrunk.sites}
    assert reasons["bert.encoder.layer.0.attention.self.query"] == "left alone: no config can say so"
    assert reasons["bert.pooler.dense"] == "left alone: no config can say so"


def test_gpt2_gets_a_width_that_its_config_did_not_name(tmp_path: Path) -> None:
    config = transformers.GPT2Config(
        n_embd=32, n_head=4, n_layer=2, vocab_size=50, n_positions=32, bos_token_id=1, eos_token_id=2
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    structure = analyse(model, EXAMPLE)
    for block in model.transformer.h:
        block.mlp.c_proj.weight.data[:100] = 0
    assert len(structure.sites) == 4
    assert check(model, shrink(model, EXAMPLE), tmp_path).config.n_inner == 28


def test_one_layer_that_lost_nothing_keeps_all() -> None:
    model = llama()
    kill(model, {Kind.NEURON: (10,)})
    shrunk = shrink(model, EXAMPLE)
    assert shrunk.parameters[0] == shrunk.parameters[1]
    assert "Nothing could be removed." in str(shrunk)
