"""What the labels of images can be, and what is refused."""

import pytest
import torch

from besselnet.data import IGNORED, ImageSet, Splits

IMAGES = torch.zeros(4, 1, 5, 6, dtype=torch.uint8)
MASKS = torch.arange(120).remainder(3).to(torch.uint8).view(4, 5, 6)
LABELS = {
    "classify": torch.tensor([0, 1, 2, 1]),
    "segment": MASKS,
    "regress": torch.rand(4, 3),
    "multilabel": torch.tensor([[True, False, True]] * 4),
}


@pytest.mark.parametrize("task", LABELS)
def test_the_labels_say_what_the_task_is(task):
    found = ImageSet(IMAGES, LABELS[task], ("a", "b", "c"))
    assert found.task == task
    chosen = found.select(torch.tensor([2, 0]))
    assert torch.equal(chosen.labels, LABELS[task][[2, 0]])
    assert Splits(found, chosen).merged().task == task
    label = found[1][1]
    assert isinstance(label, int) if task == "classify" else torch.equal(label, LABELS[task][1])


def test_classes_are_counted_by_image_or_by_pixel():
    names = ("a", "b", "c")
    masks = MASKS.clone()
    masks[0] = IGNORED
    assert ImageSet(IMAGES, LABELS["classify"], names).class_counts().tolist() == [1, 2, 1]
    assert ImageSet(IMAGES, LABELS["multilabel"], names).class_counts().tolist() == [4, 0, 4]
    assert ImageSet(IMAGES, masks, names).class_counts().tolist() == [30, 30, 30]
    with pytest.raises(ValueError, match="class_counts"):
        ImageSet(IMAGES, LABELS["regress"], names).class_counts()


def test_instances_follow_their_images():
    instances = torch.arange(120, dtype=torch.int32).view(4, 5, 6)
    found = ImageSet(IMAGES, MASKS, ("a", "b", "c"), instances=instances)
    assert torch.equal(found.select(torch.tensor([3, 1])).instances, instances[[3, 1]])
    merged = Splits(found, found.select(torch.tensor([1]))).merged()
    assert torch.equal(merged.instances, instances[[0, 1, 2, 3, 1]])
    assert Splits(found, ImageSet(IMAGES, MASKS, ("a", "b", "c"))).merged().instances is None


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.zeros(4), "with 1 dimensions: must be one of"),
        (torch.zeros(4, 5, 5, dtype=torch.uint8), "masks must be"),
        (MASKS + 1, "mask 0 has 3 in row 0, column 2, but there are 3 classes"),
        (torch.full((4, 3), float("nan")), "values must be finite: image 0"),
        (torch.zeros(4, 2), "one column per name"),
        (torch.zeros(3, 3, dtype=torch.bool), "one row per image"),
    ],
)
def test_other_labels_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        ImageSet(IMAGES, labels, ("a", "b", "c"))


def test_parts_with_other_labels_are_refused():
    sets = [ImageSet(IMAGES, LABELS[task], ("a", "b", "c")) for task in ("classify", "regress")]
    with pytest.raises(ValueError, match="the same task"):
        Splits(*sets)
    with pytest.raises(ValueError, match="instances must be int32"):
        ImageSet(IMAGES, MASKS, ("a", "b", "c"), instances=MASKS)
