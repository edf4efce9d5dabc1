"""skorch: a classifier in scikit-learn's manner."""

import numpy as np
import torch
from start import fill, main, pictures, script


@script("skorch", "classifier with validation and early stopping")
def classifier(seed):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from skorch import NeuralNetClassifier
    from skorch.callbacks import EarlyStopping, EpochScoring, LRScheduler
    from skorch.helper import predefined_split

    x, y = (t.numpy() for t in pictures(np.random.default_rng(seed), 96, 1, 8, 8))
    x = x.reshape(96, 64)
    net = fill(torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4), torch.nn.Softmax(-1)), seed)
    held = torch.utils.data.TensorDataset(torch.from_numpy(x[64:]), torch.from_numpy(y[64:]))
    model = NeuralNetClassifier(net, max_epochs=6, lr=0.1, batch_size=16, optimizer__momentum=0.9, iterator_train__shuffle=False, train_split=predefined_split(held), verbose=0,
                                callbacks=[EarlyStopping(patience=5), LRScheduler("StepLR", step_size=2), EpochScoring("accuracy")])
    model.fit(x[:64], y[:64])
    losses = [batch["train_loss"] for epoch in model.history for batch in epoch["batches"] if "train_loss" in batch]
    losses += [float(a) for epoch in model.history for a in (epoch["valid_loss"], epoch["valid_acc"], epoch["accuracy"])]
    found = make_pipeline(StandardScaler(), model).fit(x[:64], y[:64]).predict_proba(x[64:])
    return losses + [float(found.max()), float(np.log(found.max(1)).mean())]


if __name__ == "__main__":
    main()
