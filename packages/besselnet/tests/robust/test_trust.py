"""Images unlike the training images, and all that says whether an answer is sure."""

import dataclasses

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from besselnet.nn import BesselConv2d, fold_batch_norm
from besselnet.robust import (
    TRUST_FILE,
    Trust,
    describe_images,
    fit_likeness,
    fit_trust,
    load_trust,
    save_trust,
)
from tolerances import TOLERANCES, assert_same

FLOAT32 = TOLERANCES[torch.float32]

CHANNELS = 2


def textures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Two classes of noisy images of 12 pixels: rough and smooth."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    noise = torch.randn(count, CHANNELS, 12, 12, generator=generator)
    smooth = 2 * nn.functional.avg_pool2d(noise, 3, stride=1, padding=1)
    rough = labels[:, None, None, None] == 0
    # Some of either class look like the other.
    doubtful = torch.rand(count, generator=generator)[:, None, None, None]
    mixed = torch.where(rough, noise, smooth) * (1 - 0.5 * doubtful) + 0.5 * doubtful * smooth
    return (0.5 + 0.15 * mixed).clamp(0, 1), labels


def batches(images: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(images.split(100), labels.split(100)))


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        BesselConv2d(CHANNELS, 6, 5, padding=2),
        nn.BatchNorm2d(6, momentum=0.5),
        nn.ReLU(),
        nn.Conv2d(6, 6, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 2),
    )
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    images, labels = textures(400, 1)
    for _ in range(30):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model.eval()


@pytest.fixture(scope="module")
def trust(network) -> Trust:
    return fit_trust(network, batches(*textures(400, 1)), batches(*textures(400, 2)))


def test_distances_are_those_of_mahalanobis_where_there_is_plenty_of_data():
    torch.manual_seed(0)
    mixing = torch.randn(4, 4, dtype=torch.float64)
    labels = torch.arange(200_000) % 3
    centres = 5 * torch.randn(3, 4, dtype=torch.float64)
    rows = torch.randn(len(labels), 4, dtype=torch.float64) @ mixing + centres[labels]
    found = fit_likeness([rows], labels).distances([rows[:50]])[:, 0]
    apart = rows[:50, None] - centres
    precision = torch.linalg.inv(mixing.T @ mixing)
    squares = torch.einsum("nkd,de,nke->nk", apart, precision, apart).amin(1)
    assert_same(4 * found.exp(), squares, 0.02)


def test_features_do_not_change_with_folding_nor_with_quarter_turns(network):
    images, _ = textures(8, 3)
    logits, features = describe_images(network, images)
    assert_same(logits, network(images).detach(), 0)
    assert [group.shape for group in features] == [(8, 2 * CHANNELS), (8, 2 * (CHANNELS + 6))]
    for one, other in zip(features, describe_images(fold_batch_norm(network), images)[1]):
        assert_same(other, one, FLOAT32.rounding)
    turned = describe_images(network, images.rot90(1, (2, 3)))[1]
    for one, other in zip(features, turned):
        assert_same(other, one, FLOAT32.rounding)


def test_any_callable_is_judged_by_the_colours_alone(network):
    images, labels = textures(60, 3)
    plain = fit_trust(lambda x: network(x).detach(), batches(images, labels), [(images, labels)])
    assert plain.distances.shape == (60, 1)


def test_squares_noise_and_inverted_images_are_unlike_and_own_images_are_not(network, trust):
    limits = trust.limits(0.95)
    own = trust.judge(network, textures(1000, 4)[0], limits)
    assert own.unlike.double().mean() < 0.08
    strange = {
        "grey": torch.full((1, CHANNELS, 12, 12), 0.5),
        "black": torch.zeros(1, CHANNELS, 12, 12),
        "noise": torch.rand(100, CHANNELS, 12, 12, generator=torch.Generator().manual_seed(0)),
        "bright": textures(100, 5)[0] * 0.5 + 0.5,
        "checks": 0.5
        + 0.15
        * ((torch.arange(12) + torch.arange(12)[:, None]) % 2 * 2 - 1.0).expand(1, 2, 12, 12),
    }
    for name, images in strange.items():
        found = trust.judge(network, images, limits)
        assert found.unlike.double().mean() > 0.95, name
        assert set(found.words()) <= {"unlike", "yes", "unsure"}
        assert not found.sure[found.unlike].any()


def test_coverage_and_error_rate_are_kept_on_new_images(network, trust):
    limits = trust.limits(0.9, error_rate=0.1)
    images, labels = textures(4000, 6)
    found = trust.judge(network, images, limits)
    answers = found.probabilities.argmax(1)
    sure = ~found.unsure
    assert 0.3 < sure.double().mean() <= 1
    assert (answers != labels)[sure].double().mean() < 0.1
    assert found.sets.gather(1, labels[:, None]).double().mean() > 0.87
    assert (answers == labels).double().mean() < 1
    # An answer is in its own set.
    assert found.sets.gather(1, answers[:, None]).all()


def test_a_promise_that_cannot_be_made_makes_all_answers_unsure(network, trust):
    few = fit_trust(network, batches(*textures(60, 1)), batches(*textures(12, 2)))
    limits = few.limits()
    assert (limits.error_rate, limits.in_set) == (None, 0)
    found = few.judge(network, textures(20, 3)[0])
    assert found.unsure.all()
    assert found.sets.all()
    assert few.judge(network, torch.zeros(1, CHANNELS, 12, 12)).unlike.all()
    assert trust.limits().error_rate in (0.05, 0.1, 0.2)
    assert trust.limits(error_rate=1e-4).error_rate is None


def test_right_answers_for_unlike_images_do_not_pay_for_wrong_sure_answers(trust):
    """100 of 200 held-out images are unlike at this coverage and right; of the others 10% are wrong."""
    place = torch.arange(200)
    mixed = dataclasses.replace(
        trust,
        answer_probability=torch.full((200,), 0.9, dtype=torch.float64),
        answer_right=(place >= 100) | (place % 10 > 0),
        true_probability=torch.full((200,), 0.5, dtype=torch.float64),
        distances=place[:, None].double().expand(200, 2),
    )
    assert mixed.limits(0.5, error_rate=0.1).error_rate is None
    assert mixed.limits(0.99, error_rate=0.1).error_rate == 0.1


def test_a_trust_is_read_as_it_was_written(network, trust, tmp_path):
    assert load_trust(tmp_path) is None
    save_trust(trust, tmp_path, "sha256:1")
    read = load_trust(tmp_path, "sha256:1")
    images, _ = textures(30, 7)
    assert torch.equal(read.judge(network, images).scores, trust.judge(network, images).scores)
    assert read.limits() == trust.limits()
    with pytest.raises(ValueError, match="other weights"):
        load_trust(tmp_path, "sha256:2")
    with pytest.raises(ValueError, match="features of"):
        read.judge(lambda x: network(x), images)


def damaged(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    return {
        "missing": {k: t for k, t in tensors.items() if k != "centres/1"},
        "more": {**tensors, "more": torch.zeros(1)},
        "short": {**tensors, "true_probability": tensors["true_probability"][:5]},
        "flat": {**tensors, "matrices/0": tensors["matrices/0"].flatten()},
        "empty": {**tensors, "distances": tensors["distances"][:0]},
        "integers": {**tensors, "distances": tensors["distances"].long()},
        "answer_right": {**tensors, "answer_right": tensors["answer_right"].double()},
        "NaN": {**tensors, "means/0": tensors["means/0"] * torch.nan},
        "temperature": {**tensors, "temperature": -tensors["temperature"]},
    }


def test_damaged_files_end_in_one_line_that_names_them(trust, tmp_path):
    save_trust(trust, tmp_path)
    path = tmp_path / TRUST_FILE
    for name, tensors in damaged(load_file(path)).items():
        save_file(tensors, path, metadata={"besselnet": '{"format": 1, "weights": ""}'})
        with pytest.raises(ValueError, match=TRUST_FILE) as refused:
            load_trust(tmp_path)
        assert len(str(refused.value).splitlines()) == 1, name
    save_file({}, path, metadata={"besselnet": '{"format": 2}'})
    with pytest.raises(ValueError, match="format 2"):
        load_trust(tmp_path)
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a readable safetensors file"):
        load_trust(tmp_path)


def test_images_that_are_all_equal_leave_a_trust_that_works():
    def network(images: Tensor) -> Tensor:
        return images.mean((2, 3))

    same = [(torch.full((6, 2, 8, 8), 0.5), torch.zeros(6, dtype=torch.int64))]
    trust = fit_trust(network, same, same)
    found = trust.judge(network, torch.stack([same[0][0][0], torch.zeros(2, 8, 8)]))
    assert found.unlike.tolist() == [False, True]
    assert dataclasses.asdict(trust)["temperature"] == 1
