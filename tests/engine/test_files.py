"""Engines in files: the same outputs after loading; what is damaged or no engine is refused."""

from __future__ import annotations

import pickle
import pickletools
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

import softprune as sp
from engine_models import C2f, settled
from softprune import models
from softprune.errors import CheckpointError


def images(count: int) -> torch.Tensor:
    return torch.randn(count, 3, 12, 12, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return settled(C2f()).eval()  # with parts that torch runs


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("engine") / "engine.pt"
    sp.engine.compile(model, images(1), images(64), "int8", threads=1).save(path)
    return path


@pytest.mark.parametrize("precision", ["int8", "int16", "fp32"])
def test_a_loaded_engine_computes_the_same(model, tmp_path, precision):
    engine = sp.engine.compile(model, images(1), images(64), precision, threads=1)
    engine.save(tmp_path / "engine.pt")
    other = sp.engine.load(tmp_path / "engine.pt", threads=1)
    assert other.precision == precision
    assert torch.equal(other(images(3)), engine(images(3)))
    other.save(tmp_path / "again.pt")
    assert torch.equal(sp.engine.load(tmp_path / "again.pt", threads=1)(images(3)), engine(images(3)))


def test_attention_is_saved_too(tmp_path):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0).eval()
    x = torch.randn(20, 5, 16)
    engine = sp.engine.compile(layer, x[:1], x, "int8", threads=1)
    engine.save(tmp_path / "engine.pt")
    assert torch.equal(sp.engine.load(tmp_path / "engine.pt", threads=1)(x[:2]), engine(x[:2]))


def test_zeros_take_no_room(tmp_path):
    dense = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
    sizes = []
    for share in (0.0, 0.95):
        with torch.no_grad():
            for layer in (dense[0], dense[2]):
                layer.weight *= torch.rand_like(layer.weight) >= share
        x = torch.randn(64, 256)
        sp.engine.compile(dense, x[:1], x, "int8", threads=1).save(tmp_path / "engine.pt")
        sizes.append((tmp_path / "engine.pt").stat().st_size)
    assert sizes[1] < sizes[0] / 4


def test_the_file_holds_no_code(saved):
    with zipfile.ZipFile(saved) as file:
        (name,) = [name for name in file.namelist() if name.endswith("data.pkl")]
        names = {arg for op, arg, _ in pickletools.genops(file.read(name)) if op.name == "GLOBAL"}
    assert all(name.startswith(("torch", "collections")) for name in names), names


def test_a_file_that_is_cut_is_refused(saved, tmp_path):
    data = saved.read_bytes()
    for share in (0.0, 0.1, 0.5, 0.99):
        (tmp_path / "cut.pt").write_bytes(data[: int(share * len(data))])
        with pytest.raises(CheckpointError, match="no engine that can be read"):
            sp.engine.load(tmp_path / "cut.pt")


@pytest.mark.parametrize("seed", range(20))
def test_a_file_with_a_wrong_byte_is_refused_or_read_right(model, saved, tmp_path, seed):
    data = bytearray(saved.read_bytes())
    place = int(torch.randint(len(data), (), generator=torch.Generator().manual_seed(seed)))
    data[place] ^= 0x41
    (tmp_path / "wrong.pt").write_bytes(data)
    try:
        engine = sp.engine.load(tmp_path / "wrong.pt", threads=1)
    except CheckpointError:
        return
    assert engine(images(2)).shape == (2, 8, 12, 12)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no engine that can be read"):
        sp.engine.load(tmp_path / "nowhere.pt")
    torch.save({"a": torch.zeros(3)}, tmp_path / "weights.pt")
    with pytest.raises(CheckpointError, match=r"no engine\. `Engine\.save` writes one"):
        sp.engine.load(tmp_path / "weights.pt")
    (tmp_path / "code.pt").write_bytes(pickle.dumps(print, protocol=2))
    with pytest.raises(CheckpointError, match="no engine that can be read"):
        sp.engine.load(tmp_path / "code.pt")


def _of(value, field):
    return value[2][field]


def _with(values, **changes):
    """All of some layers or scales, changed alike."""
    return {name: [*value[:2], value[2] | changes] for name, value in values.items()}


DAMAGES = {
    "weights": lambda c: c | {"layers": _with(c["layers"], weight=torch.zeros(3))},
    "shift": lambda c: c | {"layers": _with(c["layers"], shift=torch.full((8,), 77, dtype=torch.int32))},
    "table": lambda c: c | {"layers": _with(c["layers"], table=torch.zeros(9, dtype=torch.uint8))},
    "bounds": lambda c: c | {"layers": _with(c["layers"], residual=-1)},
    "layers": lambda c: c | {"layers": {"nobody": next(iter(c["layers"].values()))}},
    "scale": lambda c: c | {"scales": _with(c["scales"], scale=float("nan"))},
    "shape": lambda c: _of(c["graph"], "shapes")[1].__setitem__(1, ["tuple", 1, 3, 99, 99]) or c,
    "operation": lambda c: c | {"graph": ["value", "Path", {}]},
    "function": lambda c: c | {"graph": ["aten", "mkldnn.something.default"]},
    "precision": lambda c: c | {"precision": "int4"},
    "missing": lambda c: {key: value for key, value in c.items() if key != "layers"},
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_numbers_that_do_not_fit_are_refused(saved, tmp_path, damage):
    content = torch.load(saved, weights_only=True)
    torch.save(DAMAGES[damage](content), tmp_path / "damaged.pt")
    with pytest.raises(CheckpointError, match="damaged engine"):
        sp.engine.load(tmp_path / "damaged.pt")


def _attention(content):
    return next(fields for _, name, fields in _of(content["graph"], "operations")[1:] if name == "Attention")


def _norm(content):
    return next(fields for _, name, fields in _of(content["graph"], "operations")[1:] if name == "Norm")


WRONG_TOKENS = {
    "from the end": lambda c: _attention(c)["channels"].sub_(48),
    "beyond": lambda c: _attention(c)["channels"].add_(1),
    "floats": lambda c: _attention(c).update(channels=_attention(c)["channels"].double()),
    "a mask for all": lambda c: _attention(c).update(seen=torch.ones(1, 8, dtype=torch.bool)),
    "a mask to add": lambda c: _attention(c).update(seen=torch.zeros(8, 8)),
    "more channels": lambda c: _norm(c).update(weight=torch.ones(8, 16), bias=torch.ones(8, 16)),
}


@pytest.mark.parametrize("damage", WRONG_TOKENS)
def test_tokens_that_kernels_would_look_for_elsewhere_are_refused(tmp_path, damage):
    torch.manual_seed(0)
    words = torch.randint(0, 20, (40, 8))
    model = models.GPT(20, 8, layers=1, width=16, heads=2).eval()
    sp.engine.compile(model, words[:1], words, "int8", threads=1).save(tmp_path / "engine.pt")
    content = torch.load(tmp_path / "engine.pt", weights_only=True)
    WRONG_TOKENS[damage](content)
    torch.save(content, tmp_path / "damaged.pt")
    with pytest.raises(CheckpointError, match="damaged engine"):
        sp.engine.load(tmp_path / "damaged.pt")


def test_another_version_is_refused(saved, tmp_path):
    content = torch.load(saved, weights_only=True)
    torch.save(content | {"version": 99}, tmp_path / "new.pt")
    with pytest.raises(CheckpointError, match="version 99"):
        sp.engine.load(tmp_path / "new.pt")


def test_words_go_in(tmp_path):
    torch.manual_seed(0)
    model = models.GPT(20, 16, layers=1, width=16, heads=2).eval()
    words = torch.randint(0, 20, (40, 8))
    engine = sp.engine.compile(model, words[:1], words, "int8", threads=1)
    want = model(words[:3]).detach()
    assert float((engine(words[:3]) - want).norm() / want.norm()) < 0.05
    engine.save(tmp_path / "engine.pt")
    assert torch.equal(sp.engine.load(tmp_path / "engine.pt", threads=1)(words[:3]), engine(words[:3]))
