"""Which weights of real architectures are pruned: every matrix that multiplies, and nothing else."""

import pytest
import torch
import transformers as hf

import softprune as sp

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
TEXT = {**SIZES, "vocab_size": 50, "max_position_embeddings": 8}
GROUPED = {**TEXT, "num_key_value_heads": 1}
IMAGE = {**SIZES, "image_size": 8, "patch_size": 4, "num_labels": 3}
T5 = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
SPEECH = {"vocab_size": 50, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "num_mel_bins": 8} | {
    f"{part}_{size}": n for part in ("encoder", "decoder") for size, n in (("attention_heads", 2), ("ffn_dim", 32))
}
SPEECH |= {"max_source_positions": 8, "max_target_positions": 8, "pad_token_id": 0, "bos_token_id": 0}
SPEECH |= {"eos_token_id": 0, "decoder_start_token_id": 0}

MODELS = {
    "gpt2": (
        lambda: hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=8)),
        {"transformer.wte.weight", "transformer.wpe.weight"},
    ),
    "llama": (
        lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**GROUPED)),
        {"model.embed_tokens.weight", "lm_head.weight"},
    ),
    "llama, tied": (
        lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**GROUPED, tie_word_embeddings=True)),
        {"model.embed_tokens.weight"},
    ),
    "qwen2": (
        lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**GROUPED)),
        {"model.embed_tokens.weight", "lm_head.weight"},
    ),
    "qwen3": (
        lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**GROUPED, head_dim=8)),
        {"model.embed_tokens.weight", "lm_head.weight"},
    ),
    "mistral": (
        lambda: hf.MistralForCausalLM(hf.MistralConfig(**GROUPED)),
        {"model.embed_tokens.weight", "lm_head.weight"},
    ),
    "mixtral": (
        lambda: hf.MixtralForCausalLM(hf.MixtralConfig(**GROUPED, num_local_experts=2)),
        {"model.embed_tokens.weight", "lm_head.weight"},
    ),
    "bert": (
        lambda: hf.BertForMaskedLM(hf.BertConfig(**TEXT)),
        {f"bert.embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")},
    ),
    "bert, a classifier": (  # with as many labels as there are types of tokens
        lambda: hf.BertForSequenceClassification(hf.BertConfig(**TEXT, num_labels=2)),
        {f"bert.embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")},
    ),
    "vit": (
        lambda: hf.ViTForImageClassification(hf.ViTConfig(**IMAGE)),
        {"vit.embeddings.cls_token", "vit.embeddings.position_embeddings"},
    ),
    "t5": (
        lambda: hf.T5ForConditionalGeneration(hf.T5Config(**T5, decoder_start_token_id=0)),
        {"shared.weight"}
        | {f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight" for part in ("encoder", "decoder")},
    ),
    "whisper": (
        lambda: hf.WhisperForConditionalGeneration(hf.WhisperConfig(**SPEECH)),
        {"model.encoder.embed_positions.weight"}
        | {f"model.decoder.embed_{kind}.weight" for kind in ("tokens", "positions")},
    ),
}


def inputs(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    labels = torch.arange(12).view(2, 6)
    if model.main_input_name == "pixel_values":
        return {"pixel_values": torch.randn(2, 3, 8, 8), "labels": torch.tensor([0, 1])}
    if model.main_input_name == "input_features":
        return {"input_features": torch.randn(2, 8, 16), "labels": labels}
    classes = hasattr(model, "classifier")
    return {"input_ids": labels, "labels": torch.tensor([0, 1]) if classes else labels}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_matrices_are_pruned_and_look_up_tables_are_not(name):
    build, left_alone = MODELS[name]
    model = build()
    matrices = {name for name, p in model.named_parameters() if p.ndim >= 2}
    params, zeros = sp.select(model), {name: int((model.get_parameter(name) == 0).sum()) for name in left_alone}
    assert matrices - params.keys() == left_alone
    assert params.keys() <= matrices

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sp.Pruner(params, optimizer, threshold=sp.Constant(0.01, start=1))
    for _ in range(3):
        model(**inputs(model)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert all((p == 0).any() for p in params.values())
    assert all((model.get_parameter(name) == 0).sum() <= zeros[name] for name in left_alone)
