"""Libraries that drive training, and that look at models: Lightning, Ignite, skorch, metrics, captum, summaries."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import torch
from library_common import Found, classes, draw, gradients, steps, with_weights
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def network() -> nn.Module:
    """A small classifier of rows f64[8] in 3 classes."""
    return with_weights(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.0), nn.Linear(16, 3)).double())


def loader() -> Any:
    """Four batches."""
    return DataLoader(TensorDataset(draw(16, 8), classes(3, 16)), batch_size=4)


def lightning(mode: str) -> Found:
    """Lightning's Trainer.fit: logged losses, a scheduler, clipping, validation, a checkpoint that is loaded."""
    import pytorch_lightning as pl

    class Task(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()
            self.losses: list[float] = []

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            x, y = batch
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.log("loss", loss)
            self.losses.append(float(loss))
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("seen", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)]

    task = Task()
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=folder,
            gradient_clip_val=0.5, enable_model_summary=True, num_sanity_val_steps=1, log_every_n_steps=1,
        )  # fmt: skip
        trainer.fit(torch.compile(task) if mode == "compiled" else task, loader(), loader())
        again = Task.load_from_checkpoint(trainer.checkpoint_callback.best_model_path, weights_only=False)
    found = {"losses": np.array(task.losses), "seen": trainer.callback_metrics["seen"].numpy()}
    return found | {f"w.{name}": p.detach().numpy() for name, p in again.named_parameters()}


def ignite(mode: str) -> Found:
    """Ignite's engines: a trainer, an evaluator with metrics, handlers."""
    from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.metrics import Accuracy, Loss

    net = network()
    losses: list[float] = []
    criterion = nn.CrossEntropyLoss()
    called = torch.compile(net) if mode == "compiled" else net
    trainer = create_supervised_trainer(called, torch.optim.SGD(net.parameters(), lr=0.1), criterion)
    metrics = {"accuracy": Accuracy(), "loss": Loss(criterion)}
    evaluator = create_supervised_evaluator(net, metrics)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: losses.append(engine.state.output))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda engine: evaluator.run(loader()))
    trainer.run(loader(), max_epochs=2)
    measured = {name: np.array(value) for name, value in evaluator.state.metrics.items()}
    return measured | gradients(net) | {"losses": np.array(losses)}


def skorch(mode: str) -> Found:
    """skorch: fit and predict as scikit-learn's estimators do."""
    from skorch import NeuralNetClassifier
    from skorch.dataset import ValidSplit

    net = NeuralNetClassifier(
        network(), max_epochs=3, lr=0.1, batch_size=4, train_split=ValidSplit(4), verbose=0,
        criterion=nn.CrossEntropyLoss, compile=mode == "compiled", iterator_train__shuffle=False,
    )  # fmt: skip
    net.fit(draw(16, 8).numpy(), classes(3, 16).numpy())
    history = {name: np.array(net.history[:, name]) for name in ("train_loss", "valid_loss", "valid_acc")}
    return history | {"chances": net.predict_proba(draw(5, 8, seed=1).numpy())}


def metrics(mode: str) -> Found:
    """torchmetrics: accumulated over batches, of several kinds."""
    from torchmetrics import MeanMetric, MetricCollection
    from torchmetrics.classification import (
        MulticlassAccuracy,
        MulticlassAUROC,
        MulticlassConfusionMatrix,
        MulticlassF1Score,
    )
    from torchmetrics.functional import pairwise_cosine_similarity
    from torchmetrics.image import StructuralSimilarityIndexMeasure
    from torchmetrics.regression import PearsonCorrCoef, R2Score

    several = MetricCollection(
        [MulticlassAccuracy(3), MulticlassF1Score(3), MulticlassConfusionMatrix(3), MulticlassAUROC(3)]
    )
    regression, mean = MetricCollection([PearsonCorrCoef(), R2Score()]), MeanMetric()
    for seed in range(3):
        scores, labels = draw(20, 3, seed=seed).softmax(1), classes(3, 20, seed=seed)
        several.update(scores, labels)
        regression.update(scores[:, 0].float(), (scores[:, 0] + 0.1 * draw(20, seed=9)).float())
        mean.update(scores.float())
    found = {name: value.numpy() for name, value in {**several.compute(), **regression.compute()}.items()}
    images = draw(2, 1, 16, 16).sigmoid().requires_grad_()
    similar = StructuralSimilarityIndexMeasure(data_range=1.0)(images, draw(2, 1, 16, 16, seed=1).sigmoid())
    similar.backward()
    found |= {"similar": similar.detach().numpy(), "g.similar": images.grad.numpy(), "mean": mean.compute().numpy()}
    return found | {"cosine": pairwise_cosine_similarity(draw(3, 4), draw(2, 4, seed=1)).numpy()}


def attributions(mode: str) -> Found:
    """captum: integrated gradients, layers', saliency, occlusion, DeepLift."""
    from captum.attr import (
        DeepLift,
        IntegratedGradients,
        LayerActivation,
        LayerGradCam,
        NeuronConductance,
        Occlusion,
        Saliency,
    )

    net = with_weights(
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)).double()
    ).eval()
    x = draw(2, 1, 8, 8)
    whole, delta = IntegratedGradients(net).attribute(x, target=1, n_steps=16, return_convergence_delta=True)
    found = {
        "integrated": whole, "delta": delta, "saliency": Saliency(net).attribute(x, target=torch.tensor([0, 2])),
        "lift": DeepLift(net).attribute(x, torch.zeros_like(x), target=0),
        "occluded": Occlusion(net).attribute(x, (1, 3, 3), target=2, strides=(1, 2, 2)),
        "cam": LayerGradCam(net, net[0]).attribute(x, target=1), "active": LayerActivation(net, net[2]).attribute(x),
        "conducted": NeuronConductance(net, net[0]).attribute(x, (0, 1, 1), target=1, n_steps=8),
    }  # fmt: skip
    return {name: value.detach().numpy() for name, value in found.items()}


def summary(mode: str) -> Found:
    """torchinfo's table of a convolutional and a recurrent model."""
    from torchinfo import summary as summarize

    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    first = summarize(
        net,
        (2, 3, 8, 8),
        verbose=0,
        col_names=("input_size", "output_size", "num_params", "kernel_size", "mult_adds", "trainable"),
    )
    second = summarize(nn.LSTM(4, 6, 2, batch_first=True), (2, 7, 4), verbose=0)
    return {
        "text": np.array([str(first), str(second)]),
        "adds": np.array([first.total_mult_adds, second.total_mult_adds]),
    }


def schedule_free(mode: str) -> Found:
    """schedulefree's AdamW and SGD, with their train and eval modes."""
    import schedulefree

    found = {}
    for name, kind in (("adamw", schedulefree.AdamWScheduleFree), ("sgd", schedulefree.SGDScheduleFree)):
        for foreach in (False, True):
            net = network()
            options = {"lr": 0.05, "warmup_steps": 2, "foreach": foreach}
            optimizer = kind(net.parameters(), **options)
            optimizer.train()
            x, y = draw(16, 8), classes(3, 16)
            taken = steps(net, lambda m: nn.functional.cross_entropy(m(x), y), mode, optimizer)  # noqa: B023
            optimizer.eval()
            taken |= {f"w.{key}": p.detach().numpy().copy() for key, p in net.named_parameters()}
            found |= {f"{key}.{name}{foreach}": value for key, value in taken.items()}
    return found


PROGRAMS = {
    "lightning": lightning, "ignite": ignite, "skorch": skorch, "torchmetrics": metrics, "captum": attributions,
    "torchinfo": summary, "schedulefree": schedule_free,
}  # fmt: skip
