"""sentence-transformers: sentences to vectors, trained by pairs."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from start import main, script, train

WORDS = [f"w{i}" for i in range(40)]


def model_in(folder):
    from sentence_transformers import SentenceTransformer, models
    from transformers import BertConfig, BertModel, BertTokenizerFast

    Path(folder, "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    BertTokenizerFast(vocab=str(Path(folder, "vocab.txt"))).save_pretrained(folder)
    BertModel(BertConfig(vocab_size=45, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=32,
                         hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)).save_pretrained(folder)
    words = models.Transformer(folder, max_seq_length=16)
    return SentenceTransformer(modules=[words, models.Pooling(32), models.Normalize()], device="cpu")


def pairs(rng, count=8):
    first = rng.integers(0, 40, (count, 6))
    second = np.concatenate([first[:, 2:], rng.integers(0, 40, (count, 2))], 1)
    return [[" ".join(WORDS[i] for i in row) for row in side] for side in (first, second)]


@script("sentence-transformers", "pairs against each other, then encode")
def rankings(seed):
    from sentence_transformers import losses as kinds
    from sentence_transformers import util

    with tempfile.TemporaryDirectory() as folder:
        model = model_in(folder).train()
        loss_fn = kinds.MultipleNegativesRankingLoss(model)

        def loss_of(rng):
            sides = pairs(rng)
            return loss_fn([model.preprocess(side) if hasattr(model, "preprocess") else model.tokenize(side) for side in sides], torch.arange(8))

        losses = train(model, seed, loss_of, 20, lr=2e-3)
        left, right = (model.encode(side, convert_to_tensor=True, show_progress_bar=False) for side in pairs(np.random.default_rng(seed)))
    return losses + util.cos_sim(left, right).flatten().tolist()


if __name__ == "__main__":
    main()
