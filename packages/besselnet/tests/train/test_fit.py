"""The training loop: it learns, follows its schedule, and refuses what it cannot do."""

import csv
import math
import os
import signal
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassF1Score

from besselnet.train import _fit
from besselnet.train._config import TrainConfig
from besselnet.train._fit import CHECKPOINT_NAME, NonFiniteLoss, fit
from besselnet.train._history import describe_epoch
from besselnet.train._losses import CrossEntropy
from besselnet.train._optimise import learning_rate
from besselnet.train._pace import training_pace
from besselnet.train._process import Interrupted
from train.toys import ToyBatches, same, toy_model, weights_of


def quick(**settings) -> TrainConfig:
    return TrainConfig(**{"epochs": 3, "learning_rate": 0.02, "device": "cpu", **settings})


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_it_learns_from_the_first_epoch(optimizer, tmp_path):
    history = fit(
        toy_model(0.0),
        ToyBatches(256),
        ToyBatches(),
        quick(epochs=8, optimizer=optimizer),
        tmp_path,
    )
    losses = [row["train_loss"] for row in history.rows]
    assert losses[0] < math.log(2) * 1.2
    assert losses[1] < losses[0]
    assert history.rows[-1]["val_accuracy"] > 0.9
    with (tmp_path / "metrics.csv").open() as file:
        assert [float(row["train_loss"]) for row in csv.DictReader(file)] == losses


def test_the_first_step_already_moves_the_weights():
    model = toy_model()
    before = weights_of(model)
    # One step an epoch: after it, the warm-up has hardly begun.
    fit(model, ToyBatches(16), None, quick(epochs=1, warmup=0.9))
    assert not torch.equal(before["0.weight"], model.state_dict()["0.weight"])


def test_the_schedule_rises_then_falls_and_never_rests():
    config = TrainConfig(learning_rate=1.0, warmup=0.2)
    factors = [learning_rate(config, step, 50) for step in range(50)]
    assert factors.index(1.0) == 10
    assert factors[:11] == sorted(factors[:11])
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert 0 < factors[-1] < 0.01
    assert 0 < factors[0] < 0.1
    # Half-way down the cosine.
    assert factors[30] == pytest.approx(0.5)
    assert learning_rate(replace(config, schedule="constant"), 49, 50) == 1.0


def test_accumulated_batches_make_the_step_of_the_large_batch():
    whole, parts = toy_model(0.0, norm=False), toy_model(0.0, norm=False)
    settings = {"optimizer": "sgd", "clip_norm": 0.1, "weight_decay": 0.01}
    fit(whole, ToyBatches(64, 32), None, quick(**settings))
    fit(parts, ToyBatches(64, 8), None, quick(**settings, accumulate=4))
    for a, b in zip(whole.parameters(), parts.parameters()):
        # Sums of the same float32 numbers in another order, over six steps.
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, (1.0, 3.0, 0.5)])
def test_the_loss_is_that_of_torch(weights, smoothing):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(9, 3, generator=generator)
    labels = torch.arange(9) % 3
    loss, weight = CrossEntropy(weights, smoothing)(logits, labels)
    expected = F.cross_entropy(
        logits,
        labels,
        weight=None if weights is None else torch.tensor(weights),
        label_smoothing=smoothing,
    )
    torch.testing.assert_close(loss / weight, expected)


def test_balanced_weights_give_every_class_the_same_say():
    labels = torch.tensor([0] * 6 + [1] * 2)
    criterion = CrossEntropy("balanced", labels=labels)
    total = [criterion(torch.zeros(n, 2), torch.full((n,), c))[1] for c, n in ((0, 6), (1, 2))]
    assert total[0] == total[1] == 4


def test_early_stopping_ends_and_best_weights_come_back():
    class Worse(ToyBatches):
        """Validation on which learning the training labels only hurts."""

        def __iter__(self):
            for images, labels in super().__iter__():
                yield images, 1 - labels

    model = toy_model(0.0)
    seen = []

    class Spy(Worse):
        def __iter__(self):
            seen.append(weights_of(model))
            yield from super().__iter__()

    config = quick(epochs=30, patience=2, keep="best", monitor="val_loss")
    history = fit(model, ToyBatches(), Spy(), config)
    losses = [row["val_loss"] for row in history.rows]
    best = losses.index(min(losses))
    assert len(losses) == best + 3 < 30
    assert same(weights_of(model), seen[best])


def test_the_moving_average_is_the_result_and_is_what_validation_sees():
    model, plain = toy_model(0.0), toy_model(0.0)
    history = fit(model, ToyBatches(), ToyBatches(), quick(ema_decay=0.99))
    fit(plain, ToyBatches(), ToyBatches(), quick())
    assert not same(weights_of(model), weights_of(plain))
    with torch.no_grad():
        data = ToyBatches()
        loss = F.cross_entropy(model.eval()(data.images), data.labels)
    # The mean over batches of float32 means against one float32 mean.
    assert history.rows[-1]["val_loss"] == pytest.approx(loss.item(), rel=1e-5)


def test_the_moving_average_has_the_buffers_of_the_network_itself():
    model, plain = toy_model(0.0), toy_model(0.0)
    fit(model, ToyBatches(), None, quick(ema_decay=0.99))
    fit(plain, ToyBatches(), None, quick())
    assert same(dict(model.named_buffers()), dict(plain.named_buffers()))


class Indexed(ToyBatches):
    """Batches that can be drawn one by one."""

    def __getitem__(self, index):
        return list(self)[index]


def test_the_time_is_announced_and_the_announcement_changes_nothing(capsys):
    models = [toy_model() for _ in range(3)]
    before = weights_of(models[0])
    batches = Indexed()
    pace = training_pace(models[0], batches, batches, quick(), CrossEntropy())
    assert pace.batch > 0
    assert pace.validation > 0
    assert same(weights_of(models[0]), before)
    fit(models[1], Indexed(), ToyBatches(), quick())
    told = capsys.readouterr().out.splitlines()[0]
    epochs = quick().epochs
    assert told.startswith(f"training {epochs} epochs, {4 * epochs} steps: about ")
    fit(models[2], Indexed(), ToyBatches(), quick(), quiet=True)
    assert same(weights_of(models[1]), weights_of(models[2]))
    # These could not be drawn without a trace.
    assert training_pace(models[0], ToyBatches(), None, quick(), CrossEntropy()) is None


class Numbered(ToyBatches):
    """Batches that can say which images they hold."""

    def indices(self, index):
        generator = torch.Generator().manual_seed(self.epoch)
        return torch.randperm(len(self.labels), generator=generator).split(self.batch_size)[index]


class Curious(nn.Module):
    """A model that is told which images come next."""

    def __init__(self):
        super().__init__()
        self.inner = toy_model()
        self.told, self.seen = [], []

    def begin_batch(self, indices):
        self.told.append(indices)

    def forward(self, x):
        if self.training:
            self.seen.append(x.clone())
        return self.inner(x)


def test_a_model_that_asks_is_told_which_images_come():
    model, batches = Curious(), Numbered(61)
    fit(model, batches, ToyBatches(), quick(epochs=2, accumulate=3), quiet=True)
    assert len(model.told) == len(model.seen) == 2 * len(batches)
    for indices, images in zip(model.told, model.seen):
        assert torch.equal(batches.images[indices], images)
    unnumbered = Curious()
    fit(unnumbered, ToyBatches(), None, quick(epochs=1), quiet=True)
    assert unnumbered.told == []


def test_further_metrics_get_a_column(tmp_path):
    metrics = {"val_f1": MulticlassF1Score(2)}
    history = fit(toy_model(), ToyBatches(), ToyBatches(), quick(), tmp_path, metrics=metrics)
    assert 0 < history.rows[-1]["val_f1"] <= 1
    assert "val_f1" in (tmp_path / "metrics.csv").read_text().splitlines()[0]


def test_mixed_precision_trains():
    history = fit(toy_model(), ToyBatches(256), None, quick(precision="bf16-mixed"))
    assert history.rows[-1]["train_loss"] < history.rows[0]["train_loss"]


class Poisoned(ToyBatches):
    """The images of the third batch of the second epoch are not numbers."""

    def __iter__(self):
        for index, (images, labels) in enumerate(super().__iter__()):
            bad = self.epoch == 1 and index == 2
            yield (images * float("nan") if bad else images), labels


def test_a_loss_that_is_not_finite_stops_with_step_batch_and_advice(tmp_path):
    model = toy_model()
    message = r"loss is nan at step 6 \(epoch 2, batch 3 of 4\).*not finite: check the data"
    with pytest.raises(NonFiniteLoss, match=message):
        fit(model, Poisoned(), None, quick(), tmp_path)
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    with pytest.raises(NonFiniteLoss, match=r"lower train.learning_rate \(now 1e\+38\)"):
        fit(toy_model(), ToyBatches(), None, quick(learning_rate=1e38, optimizer="sgd"))


class Interrupting(ToyBatches):
    """Sends this process a signal before the second batch of the second epoch."""

    number = signal.SIGINT

    def __iter__(self):
        for index, batch in enumerate(super().__iter__()):
            if (self.epoch, index) == (1, 1):
                os.kill(os.getpid(), self.number)
            yield batch


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_and_saves(tmp_path, number):
    handler = signal.getsignal(number)
    batches = Interrupting()
    batches.number = number
    with pytest.raises(Interrupted, match="stopped at epoch 2, step 6; the state is saved") as stop:
        fit(toy_model(), batches, None, quick(), tmp_path)
    assert stop.value.signal_number == number
    assert signal.getsignal(number) == handler

    resumed, whole = toy_model(), toy_model()
    fit(resumed, ToyBatches(), None, quick(), tmp_path, resume=True)
    fit(whole, ToyBatches(), None, quick())
    assert same(weights_of(resumed), weights_of(whole))


class NoisyDataset(TensorDataset):
    """Augments with torch's global generator, as many data sets do."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return image + 0.1 * torch.randn(image.shape), label


@pytest.mark.parametrize("settings", [{}, {"optimizer": "sgd"}, {"ema_decay": 0.9, "keep": "best"}])
def test_resuming_a_plain_torch_loader_is_exact(tmp_path, settings):
    data = ToyBatches()

    def loader():
        return DataLoader(NoisyDataset(data.images, data.labels), batch_size=16, shuffle=True)

    class Stopping:
        """The same loader, sending this process a signal in its second epoch."""

        def __init__(self):
            self.drawn = 0

        def __len__(self):
            return 4

        def __iter__(self):
            return map(self.note, iter(loader()))

        def note(self, batch):
            self.drawn += 1
            if self.drawn == 7:
                os.kill(os.getpid(), signal.SIGINT)
            return batch

    with pytest.raises(Interrupted):
        fit(toy_model(), Stopping(), data, quick(**settings), tmp_path)
    resumed, whole = toy_model(), toy_model()
    first = fit(resumed, loader(), data, quick(**settings), tmp_path, resume=True)
    second = fit(whole, loader(), data, quick(**settings))
    assert same(weights_of(resumed), weights_of(whole))
    timing = {"seconds", "images_per_second"}
    for a, b in zip(first.rows, second.rows, strict=True):
        assert {k: a[k] for k in a.keys() - timing} == {k: b[k] for k in b.keys() - timing}


def test_a_finished_training_resumes_to_its_result(tmp_path):
    first, again = toy_model(), toy_model()
    fit(first, ToyBatches(), None, quick(), tmp_path)
    (tmp_path / "metrics.csv").unlink()
    fit(again, ToyBatches(), None, quick(), tmp_path, resume=True)
    assert same(weights_of(first), weights_of(again))
    assert (tmp_path / "metrics.csv").exists()


def test_a_folder_with_a_training_is_not_overwritten(tmp_path):
    fit(toy_model(), ToyBatches(), None, quick(), tmp_path)
    with pytest.raises(ValueError, match="already holds a training: resume it"):
        fit(toy_model(), ToyBatches(), None, quick(), tmp_path)


def test_resuming_with_other_settings_names_them(tmp_path):
    fit(toy_model(), ToyBatches(), None, quick(), tmp_path)
    with pytest.raises(ValueError, match=r"epochs: 3 -> 4; batches in an epoch: 4 -> 8"):
        fit(toy_model(), ToyBatches(128), None, quick(epochs=4), tmp_path, resume=True)


def test_tensorboard_files_are_written_when_asked_for(tmp_path):
    fit(toy_model(), ToyBatches(), None, quick(tensorboard=True), tmp_path)
    assert list((tmp_path / "tensorboard").glob("events*"))


def test_missing_tensorboard_is_a_clear_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match=r"pip install 'besselnet\[tensorboard\]'"):
        fit(toy_model(), ToyBatches(), None, quick(tensorboard=True), tmp_path)


def test_output_that_is_not_a_terminal_has_plain_lines(capsys):
    fit(toy_model(), ToyBatches(), ToyBatches(), quick())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert all("val loss" in line and line.isprintable() for line in lines)
    fit(toy_model(), ToyBatches(), None, quick(), quiet=True)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("loss", [0.0001, 9.9999, 12.345, 12345.6])
def test_the_line_of_an_epoch_fits_in_80_columns(loss):
    row = {"epoch": 100.0, "train_loss": loss, "train_accuracy": 1.0, "seconds": 4000.0}
    row |= {"val_loss": loss, "val_accuracy": 0.98765}
    line = describe_epoch(row, 100, "12h40m left")
    assert len(line) <= 80
    assert line.startswith("epoch 100/100  train loss ")
    assert line.endswith(" acc 98.8%  12h40m left")
    assert describe_epoch(row, 100, "").endswith("  1h06m")


class Short(ToyBatches):
    def __len__(self):
        return super().__len__() + 1


@pytest.mark.parametrize(
    ("model", "batches", "settings", "message"),
    [
        (toy_model(), [], {}, "train_batches is empty"),
        (toy_model(), Short(), {}, "length 5 but yielded 4"),
        (toy_model(), ToyBatches(), {"keep": "best"}, "require validation"),
        (toy_model(), ToyBatches(), {"patience": 1}, "require validation"),
        (toy_model(), ToyBatches(), {"devices": 2}, "call launch"),
        (toy_model(), ToyBatches(), {"class_weights": "balanced"}, "requires the training labels"),
        (toy_model(), ToyBatches(), {"class_weights": (1.0,) * 3}, "3 weights, but .* 2 classes"),
        (nn.Flatten(), ToyBatches(), {}, "no parameters to train"),
    ],
)
def test_what_cannot_work_is_refused(model, batches, settings, message):
    with pytest.raises(ValueError, match=message):
        fit(model, batches, None, quick(**settings))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_missing_device_is_a_clear_error():
    with pytest.raises(ValueError, match="device='cuda' is not available"):
        fit(toy_model(), ToyBatches(), None, quick(device="cuda"))


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit(toy_model(), ToyBatches(), None, quick())
    assert not list(tmp_path.iterdir())
    fit(toy_model(), ToyBatches(), None, quick(), tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder" / CHECKPOINT_NAME).exists()


def test_slow_saves_skip_epochs_and_a_crash_costs_no_bit(tmp_path, monkeypatch):
    saved, clock = [], [0.0]
    write = _fit.save_checkpoint

    def slow(path, checkpoint):
        saved.append(checkpoint.values["history"]["epoch"])
        clock[0] += 1  # so an epoch, of no time at all, is always too early for the next
        write(path, checkpoint)

    monkeypatch.setattr(_fit, "save_checkpoint", slow)
    monkeypatch.setattr(_fit.time, "monotonic", lambda: clock[0])
    whole, cut = toy_model(), toy_model()
    fit(whole, ToyBatches(), None, quick(epochs=6), tmp_path / "whole")
    assert saved == [1, 6]

    class Crashes(ToyBatches):
        def __iter__(self):
            if self.epoch == 3:
                raise RuntimeError("power cut")
            return super().__iter__()

    with pytest.raises(RuntimeError, match="power cut"):
        fit(cut, Crashes(), None, quick(epochs=6), tmp_path / "cut")
    assert saved[2:] == [1]
    fit(cut, ToyBatches(), None, quick(epochs=6), tmp_path / "cut", resume=True)
    assert same(weights_of(cut), weights_of(whole))
    rows = [(tmp_path / name / "metrics.csv").read_text() for name in ("whole", "cut")]
    assert [row.split(",")[:4] for row in rows[0].split()] == [
        row.split(",")[:4] for row in rows[1].split()
    ]
