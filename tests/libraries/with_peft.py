"""peft: LoRA on a small GPT-2, saved and loaded again."""

import tempfile

import torch
from start import fill, main, script, sentences, train


@script("peft", "LoRA on GPT-2, save, load, merge")
def lora(seed):
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    def base():
        return fill(GPT2LMHeadModel(GPT2Config(vocab_size=48, n_positions=32, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)), seed)

    words = None
    model = get_peft_model(base(), LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn"], lora_dropout=0.0, task_type="CAUSAL_LM", fan_in_fan_out=True))

    def loss_of(rng):
        nonlocal words
        words = sentences(rng, 8, 16, 40)
        return model(input_ids=words, labels=words).loss

    losses = train(model, seed, loss_of, 24, lambda p, lr: torch.optim.AdamW([q for q in p if q.requires_grad], lr=lr), 1e-2)
    model.eval()
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        kept = base().state_dict()
        original = base()
        original.load_state_dict({**kept, **{n.replace("base_model.model.", "").replace(".base_layer", ""): p for n, p in model.state_dict().items() if "lora_" not in n}})
        loaded = PeftModel.from_pretrained(original, folder).eval()
        again = loaded(input_ids=words, labels=words).loss.item()
        losses += [model(input_ids=words, labels=words).loss.item(), again, model.merge_and_unload()(input_ids=words, labels=words).loss.item()]
    return losses


if __name__ == "__main__":
    main()
