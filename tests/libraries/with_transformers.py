"""transformers: models from small configurations, and its Trainer."""

import tempfile

import numpy as np
import torch
from start import fill, main, normal, pictures, script, sentences, train, whole


@script("transformers", "BERT, masked words")
def bert(seed):
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=32,
                                       hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))

    def loss_of(rng):
        words = sentences(rng, 8, 16, 60)
        hidden = torch.from_numpy(rng.random((8, 16)) < 0.2)
        mask = torch.ones(8, 16, dtype=torch.long)
        mask[0, 12:] = 0
        return model(input_ids=words.masked_fill(hidden, 63), attention_mask=mask, labels=words.masked_fill(~hidden, -100)).loss

    return train(model, seed, loss_of, 30, lr=3e-3)


@script("transformers", "GPT-2, then generate")
def gpt2(seed):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=48, n_positions=48, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0,
                                       eos_token_id=None, pad_token_id=47))

    def loss_of(rng):
        words = sentences(rng, 8, 24, 40)
        return model(input_ids=words, labels=words).loss

    losses = train(model, seed, loss_of, 40, lr=1e-2)
    model.eval()
    start = torch.tensor([[3, 4, 5, 6], [2, 5, 8, 11]])
    greedy = model.generate(start, max_new_tokens=12, do_sample=False)
    beams = model.generate(start, max_new_tokens=12, num_beams=3, do_sample=False)
    return losses + greedy.flatten().tolist() + beams.flatten().tolist()


@script("transformers", "Llama")
def llama(seed):
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(vocab_size=48, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                         max_position_embeddings=64, bos_token_id=0, eos_token_id=None, pad_token_id=47))

    def loss_of(rng):
        words = sentences(rng, 8, 24, 40)
        return model(input_ids=words, labels=words).loss

    losses = train(model, seed, loss_of, 30, lr=1e-2)
    made = model.eval().generate(torch.tensor([[3, 4, 5, 6]]), max_new_tokens=8, do_sample=False)
    return losses + made.flatten().tolist()


@script("transformers", "Llama under autocast", rounding="bfloat16")
def llama_bf16(seed):
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(vocab_size=48, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                         max_position_embeddings=64, bos_token_id=0, eos_token_id=None, pad_token_id=47))

    def loss_of(rng):
        words = sentences(rng, 8, 24, 40)
        with torch.autocast("cpu", torch.bfloat16):
            return model(input_ids=words, labels=words).loss

    return train(model, seed, loss_of, 30, lr=3e-3)


@script("transformers", "ViT")
def vit(seed):
    from transformers import ViTConfig, ViTForImageClassification

    model = ViTForImageClassification(ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=16, patch_size=4, num_channels=3,
                                                hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=4))

    def loss_of(rng):
        x, y = pictures(rng, 8, 3, 16, 16)
        return model(pixel_values=x, labels=y).loss

    return train(model, seed, loss_of, 20)


@script("transformers", "T5")
def t5(seed):
    from transformers import T5Config, T5ForConditionalGeneration

    model = T5ForConditionalGeneration(T5Config(vocab_size=48, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0, decoder_start_token_id=0,
                                                pad_token_id=0, eos_token_id=1))

    def loss_of(rng):
        words = sentences(rng, 8, 12, 40) + 2
        return model(input_ids=words, labels=words.flip(1)).loss

    losses = train(model, seed, loss_of, 30, lr=3e-3)
    made = model.eval().generate(torch.tensor([[5, 6, 7, 8]]), max_new_tokens=6, do_sample=False)
    return losses + made.flatten().tolist()


@script("transformers", "Whisper")
def whisper(seed):
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration(WhisperConfig(
        vocab_size=48, num_mel_bins=16, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
        decoder_ffn_dim=64, max_source_positions=32, max_target_positions=24, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None))

    def loss_of(rng):
        return model(input_features=normal(rng, 4, 16, 64), labels=sentences(rng, 4, 10, 40) + 3).loss

    return train(model, seed, loss_of, 20)


class Sentences(torch.utils.data.Dataset):
    """Rows for the Trainer."""

    def __init__(self, seed, count):
        self.rows = sentences(np.random.default_rng(seed), count, 16, 40)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


def with_trainer(seed, **settings):
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    model = GPT2LMHeadModel(GPT2Config(vocab_size=48, n_positions=32, n_embd=32, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0,
                                       eos_token_id=None, pad_token_id=47))
    fill(model, seed)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(folder, per_device_train_batch_size=4, max_steps=24, learning_rate=3e-3, warmup_steps=4, lr_scheduler_type="cosine", logging_steps=1,
                                     train_sampling_strategy="sequential", report_to=[], use_cpu=True, disable_tqdm=True, save_steps=12, weight_decay=0.01, **settings)
        trainer = Trainer(model=model, args=settings, train_dataset=Sentences(seed, 128), eval_dataset=Sentences(seed + 1, 16))
        trainer.train()
        losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
        losses += [row["grad_norm"] for row in trainer.state.log_history if "grad_norm" in row]
        losses.append(trainer.evaluate()["eval_loss"])
        trainer.train(resume_from_checkpoint=f"{folder}/checkpoint-12")
        losses.append(trainer.evaluate()["eval_loss"])
    return losses


@script("transformers", "Trainer: schedule, clipping, evaluation, checkpoint, resume")
def trainer(seed):
    return with_trainer(seed)


@script("transformers", "Trainer with bf16 and accumulation", rounding="bfloat16")
def trainer_bf16(seed):
    return with_trainer(seed, bf16=True, gradient_accumulation_steps=2)


@script("transformers", "BERT, classes of sentences, gradient checkpointing")
def bert_checkpointing(seed):
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                                                     hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=3))
    model.gradient_checkpointing_enable()
    model.train()

    def loss_of(rng):
        words = whole(rng, 0, 60, 8, 12)
        return model(input_ids=words, labels=words.sum(1) % 3).loss

    return train(model, seed, loss_of, 20)


if __name__ == "__main__":
    main()
