"""torchmetrics: metrics of many kinds, beside a network that learns."""

import numpy as np
import torch
from start import SETTINGS, main, nudged, pictures, script, train


@script("torchmetrics", "classification metrics while training")
def classification(seed):
    from torchmetrics import MetricCollection
    from torchmetrics.classification import (
        MulticlassAccuracy,
        MulticlassAUROC,
        MulticlassAveragePrecision,
        MulticlassCalibrationError,
        MulticlassCohenKappa,
        MulticlassConfusionMatrix,
        MulticlassF1Score,
        MulticlassMatthewsCorrCoef,
    )

    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    metrics = MetricCollection([m(num_classes=4) for m in (MulticlassAccuracy, MulticlassAUROC, MulticlassAveragePrecision, MulticlassCohenKappa, MulticlassF1Score,
                                                           MulticlassMatthewsCorrCoef, MulticlassCalibrationError)])
    table = MulticlassConfusionMatrix(num_classes=4)

    def loss_of(rng):
        x, y = pictures(rng, 16, 1, 8, 8)
        guess = net(x)
        metrics.update(guess.detach().softmax(-1), y)
        table.update(guess.detach(), y)
        return torch.nn.functional.cross_entropy(guess, y)

    losses = train(net, seed, loss_of, 24, lr=5e-3)
    return losses + [float(v) for _, v in sorted(metrics.compute().items())] + table.compute().flatten().tolist()


@script("torchmetrics", "metrics of regression, pictures and text")
def others(seed):
    from torchmetrics import CosineSimilarity, ExplainedVariance, MeanAbsoluteError, MeanMetric, PearsonCorrCoef, R2Score, SpearmanCorrCoef
    from torchmetrics.image import PeakSignalNoiseRatio, TotalVariation
    from torchmetrics.retrieval import RetrievalMAP
    from torchmetrics.text import CharErrorRate, Perplexity, WordErrorRate

    rng, nudges, found = np.random.default_rng(seed), np.random.default_rng([seed, SETTINGS["draw"]]), []

    def normal(rng, *shape):  # there are no parameters: what is nudged are the numbers that are measured
        return nudged(rng.standard_normal(shape), nudges).float()

    for kind in (MeanAbsoluteError, PearsonCorrCoef, R2Score, SpearmanCorrCoef, ExplainedVariance):
        metric = kind()
        for _ in range(3):
            y = normal(rng, 20)
            found.append(float(metric(y + normal(rng, 20) * 0.3, y)))
        found.append(float(metric.compute()))
    a, b = torch.sigmoid(normal(rng, 2, 3, 24, 24)), torch.sigmoid(normal(rng, 2, 3, 24, 24))
    found += [float(PeakSignalNoiseRatio(data_range=1.0)(a, b)), float(TotalVariation()(a)),
              float(CosineSimilarity(reduction="mean")(a.flatten(1), b.flatten(1))), float(MeanMetric()(normal(rng, 9), torch.rand(9).gt(2) + 1.0))]
    found += [float(Perplexity()(normal(rng, 2, 8, 5), torch.from_numpy(rng.integers(0, 5, (2, 8))))), float(WordErrorRate()(["a b c"], ["a c c"])),
              float(CharErrorRate()(["abcd"], ["abed"]))]
    score = torch.rand(12) * 0 + torch.sigmoid(normal(rng, 12))
    found.append(float(RetrievalMAP()(score, torch.from_numpy(rng.random(12) < 0.5), indexes=torch.arange(12) // 4)))
    return found


if __name__ == "__main__":
    main()
