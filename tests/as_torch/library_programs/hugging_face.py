"""Hugging Face's libraries: Trainer, accelerate, peft, diffusers, sentence-transformers, safetensors."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from library_common import Found, classes, draw, gradients, steps, with_weights

GPT2: dict[str, Any] = {
    "vocab_size": 96, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4, "resid_pdrop": 0, "embd_pdrop": 0,
    "attn_pdrop": 0, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "num_key_value_heads": 2, "max_position_embeddings": 32,
}  # fmt: skip


def trainer(mode: str) -> Found:
    """transformers' Trainer on a small GPT-2, with accelerate: its log of losses, the weights at the end."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    model = with_weights(GPT2LMHeadModel(GPT2Config(**GPT2)).double())
    ids = classes(96, 16, 12)
    rows = [{"input_ids": row, "labels": row} for row in ids]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=4, num_train_epochs=2, learning_rate=1e-3, logging_steps=1,
            report_to=[], save_strategy="steps", save_steps=4, use_cpu=True, disable_tqdm=True, weight_decay=0.1,
            lr_scheduler_type="cosine", warmup_steps=2, torch_compile=mode == "compiled",
            train_sampling_strategy="sequential",
        )  # fmt: skip
        training = Trainer(model=model, args=arguments, train_dataset=rows)
        training.train()
        saved = GPT2LMHeadModel.from_pretrained(Path(folder) / "checkpoint-8", dtype=torch.float64)
    logs = [entry for entry in training.state.log_history if "grad_norm" in entry]
    found = {name: np.array([entry[name] for entry in logs]) for name in ("loss", "grad_norm", "learning_rate")}
    return found | {f"w.{name}": p.detach().numpy() for name, p in saved.named_parameters()}


def accelerated(mode: str) -> Found:
    """accelerate's own loop: prepare, backward, clipped gradients, gradient accumulation."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = with_weights(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)).double())
    data = torch.utils.data.TensorDataset(draw(16, 8), classes(3, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    loader = torch.utils.data.DataLoader(data, 4)
    if mode == "compiled":
        model = torch.compile(model)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses, found = [], {}
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            found = gradients(accelerator.unwrap_model(model))
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return found | {"loss": np.array(losses)}


def lora(mode: str) -> Found:
    """peft's LoRA on a small Llama: what is trained, its gradients, merged weights."""
    from peft import LoraConfig, TaskType, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    base = LlamaForCausalLM(LlamaConfig(**LLAMA)).double()
    settings = LoraConfig(
        task_type=TaskType.CAUSAL_LM, r=4, lora_alpha=8, lora_dropout=0.0, target_modules=["q_proj", "v_proj"]
    )
    model = with_weights(get_peft_model(base, settings))
    ids = classes(96, 2, 12)
    found = steps(model, lambda m: m(input_ids=ids, labels=ids).loss, mode, lr=0.1)
    assert len(found) == 8 + 2
    merged = model.merge_and_unload()
    return found | {"merged": merged(input_ids=ids).logits.detach().numpy()}


def unet(mode: str) -> Found:
    """diffusers' UNet2D learns to tell the noise that a scheduler added."""
    from diffusers import DDPMScheduler, UNet2DModel

    model = UNet2DModel(
        sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=8,
    )  # fmt: skip
    model = with_weights(model.double())
    noise, times = draw(2, 3, 8, 8, seed=1), torch.tensor([3, 700])
    noisy = DDPMScheduler().add_noise(draw(2, 3, 8, 8), noise, times)
    return steps(model, lambda m: torch.nn.functional.mse_loss(m(noisy, times).sample, noise), mode)


def vae(mode: str) -> Found:
    """diffusers' autoencoder: reconstruction and divergence."""
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        block_out_channels=(8, 8), norm_num_groups=4, latent_channels=2, layers_per_block=1, sample_size=8,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip
    model = with_weights(model.double())
    x = draw(2, 3, 8, 8)

    def loss(m: Any) -> Any:
        latent = m.encode(x).latent_dist
        return torch.nn.functional.mse_loss(m.decode(latent.mode()).sample, x) + latent.kl().mean() * 1e-3

    return steps(model, loss, "eager")


def sentences(mode: str) -> Found:
    """sentence-transformers: a small BERT made here, pooling, a contrastive loss."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.losses import CosineSimilarityLoss
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "sat", "on", "the", "mat", "dog", "ran"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "vocab.txt").write_text("\n".join(words))
        BertTokenizerFast(vocab_file=str(Path(folder) / "vocab.txt")).save_pretrained(folder)
        settings = BertConfig(
            vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        BertModel(settings).save_pretrained(folder)
        inner = Transformer(folder, max_seq_length=16)
    model = SentenceTransformer(modules=[inner, Pooling(inner.get_embedding_dimension())], device="cpu")
    model = with_weights(model.double())
    first, second = ["a cat sat", "the dog ran"], ["the cat sat on the mat", "a dog sat"]
    features = [model.preprocess(texts) for texts in (first, second)]
    loss = CosineSimilarityLoss(model)
    scores = torch.tensor([0.9, 0.2], dtype=torch.float64)
    found = steps(model, lambda m: loss([dict(f) for f in features], scores), "eager", lr=0.1)
    model.eval()
    return found | {"encoded": model.encode(first)}


def saved(mode: str) -> Found:
    """safetensors, and huggingface_hub's mixin: what is saved is what is loaded."""
    from huggingface_hub import PyTorchModelHubMixin, split_torch_state_dict_into_shards
    from safetensors.torch import load_file, load_model, save_file, save_model

    class Net(torch.nn.Module, PyTorchModelHubMixin):
        def __init__(self, width: int = 4) -> None:
            super().__init__()
            self.up = torch.nn.Linear(3, width)
            self.down = torch.nn.Linear(width, 2)

    net = with_weights(Net(5))
    shards = split_torch_state_dict_into_shards(net.state_dict(), max_shard_size=100)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_file({"x": draw(2, 3), "y": classes(4, 3)}, folder / "x.safetensors", {"format": "pt"})
        loaded = load_file(folder / "x.safetensors")
        save_model(net, str(folder / "net.safetensors"))
        other = Net(5)
        missing, unexpected = load_model(other, str(folder / "net.safetensors"))
        net.save_pretrained(folder / "hub")
        third = Net.from_pretrained(folder / "hub")
    assert not missing
    assert not unexpected
    found = {name: t.numpy() for name, t in loaded.items()} | {"shards": np.array(len(shards.filename_to_tensors))}
    found |= {f"w.{name}": t.detach().numpy() for name, t in other.state_dict().items()}
    return found | {f"h.{name}": t.detach().numpy() for name, t in third.state_dict().items()}


PROGRAMS = {
    "trainer": trainer, "accelerate": accelerated, "peft": lora, "diffusers_unet": unet, "diffusers_vae": vae,
    "sentence_transformers": sentences, "safetensors": saved,
}  # fmt: skip
