"""ultralytics: a small YOLO, trained on its detection loss."""

import torch
from start import fill, main, pictures, script


@script("ultralytics", "YOLO11 for detection, its loss")
def detection(seed):
    import numpy as np
    from ultralytics.nn.tasks import DetectionModel
    from ultralytics.utils import DEFAULT_CFG

    model = DetectionModel("yolo11n.yaml", ch=3, nc=4, verbose=False)
    model.args = DEFAULT_CFG
    fill(model, seed).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, nesterov=True)
    rng, losses = np.random.default_rng(seed), []
    corners = torch.tensor([[0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75]])
    for _ in range(20):
        x, y = pictures(rng, 2, 3, 64, 64)
        batch = {"img": torch.sigmoid(x), "cls": y.float()[:, None], "bboxes": torch.cat([corners[y], torch.full((2, 2), 0.5)], 1), "batch_idx": torch.arange(2.0)}
        loss, parts = model.loss(batch)
        optimizer.zero_grad()
        loss.sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        losses += parts.flatten().tolist() if hasattr(parts, "flatten") else [float(v) for v in parts.values()]
    return losses


if __name__ == "__main__":
    main()
