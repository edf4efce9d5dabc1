"""trl: supervised fine-tuning and preferences, on a small Llama."""

import tempfile

import numpy as np
from start import fill, main, script


def llama(seed):
    from transformers import LlamaConfig, LlamaForCausalLM

    return fill(LlamaForCausalLM(LlamaConfig(vocab_size=48, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                             max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)), seed)


def tokenizer(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {w: i for i, w in enumerate(["<pad>", "<s>", "</s>", "<unk>", *(f"w{i}" for i in range(44))])}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def text(rng, length=12):
    first, step = rng.integers(0, 44), rng.integers(1, 4)
    return " ".join(f"w{(first + step * i) % 44}" for i in range(length))


def settings(folder):
    return {"output_dir": folder, "per_device_train_batch_size": 4, "max_steps": 20, "learning_rate": 3e-3, "logging_steps": 1, "report_to": [], "use_cpu": True,
            "disable_tqdm": True, "save_strategy": "no", "train_sampling_strategy": "sequential", "bf16": False, "gradient_checkpointing": False}


def losses_of(trainer):
    trainer.train()
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


@script("trl", "SFTTrainer")
def fine_tuning(seed):
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        data = Dataset.from_list([{"text": text(rng)} for _ in range(80)])
        return losses_of(SFTTrainer(model=llama(seed), args=SFTConfig(max_length=16, shuffle_dataset=False, **settings(folder)), train_dataset=data, processing_class=tokenizer(folder)))


@script("trl", "DPOTrainer")
def preferences(seed):
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        data = Dataset.from_list([{"prompt": text(rng, 4), "chosen": " " + text(rng, 6), "rejected": " " + text(rng, 6)} for _ in range(80)])
        model, reference = llama(seed), llama(seed)
        return losses_of(DPOTrainer(model=model, ref_model=reference, args=DPOConfig(max_length=24, **settings(folder)), train_dataset=data, processing_class=tokenizer(folder)))


if __name__ == "__main__":
    main()
