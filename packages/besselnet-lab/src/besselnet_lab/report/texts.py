"""What every kind of report says to its reader."""

__all__ = [
    "ALONE",
    "BESIDE_PAPER",
    "LEGEND",
    "LEGEND_ALONE",
    "LEGEND_MASKS",
    "LEGEND_ROBUST",
    "WORDS",
]

BESIDE_PAPER = (
    "Trainings of a study, beside the accuracies that Delchevalerie, Mayer, Bibal and Frénay published for "
    "Bessel-convolutional neural networks and others (arXiv:2304.09214)."
)
ALONE = (
    "Trainings of a study. None of them has a counterpart in the paper on Bessel-convolutional neural "
    "networks (arXiv:2304.09214): they are compared with one another."
)

# A word of the tables, and what it means.
WORDS = (
    ("column", "a data set, what is done to its training images, and how many of them there are"),
    ("row", "a method and the group of symmetries that it respects"),
    ("aug", "training images are rotated (galaxies and blood cells also mirrored) at random"),
    ("noaug", "training images stay as they are"),
    ("upright", "training images stay upright, judged images are rotated by any angle"),
    (
        "high, inter, low",
        "many, fewer and few training images; the number is in the head of a column",
    ),
)

LEGEND = (
    "Accuracy in per cent, mean ± standard deviation over runs (the sample standard deviation for "
    "those run here). First line of a cell: the paper; below it: here, with the number of runs and the "
    "difference. ▲ above and ▼ below the paper by more than two standard deviations of both, = within "
    "two of both, ~ within two of one of them only. Bold: the best three of the column among the "
    "paper's methods, and among those run here where there are several. –: missing."
)

LEGEND_ALONE = (
    "Accuracy in per cent, mean ± sample standard deviation over runs. ▲ above and ▼ below the first row "
    "by more than two standard deviations of both, = within two of both, ~ within two of one of them "
    "only, ? no deviation is known, because both were run once."
)

LEGEND_MASKS = (
    "Scores in per cent, mean ± sample standard deviation over runs; the best method comes first. F1 is "
    "the Dice coefficient of the class that is not background. With more than two classes, the mean Dice "
    "is shown. Boundary F1 accepts boundaries within 2 pixels of each other. Instance F1 accepts objects "
    "with an IoU above 0.5. Agreement is the IoU of two masks: that of the rotated image, rotated back, "
    "and that of the image as it is. It counts the disc that every angle shows. It is the mean over the "
    "classes and over 30, 60, ..., 330 degrees, with black corners unless reflected borders are named. "
    "Quarter turns: whether all masks are identical, or which share of the pixels changes in the worst run."
)

LEGEND_ROBUST = (
    "Accuracy in per cent, mean ± sample standard deviation over runs; all networks of a column see the "
    "same images. Corrupted: the mean over eleven corruptions of five severities each. Corruption error: the "
    "errors under each corruption divided by those of the row 'plain CNN', averaged; 100 means as many. The "
    "least comes first. Noise 0.2: Gaussian, of this standard deviation. Worst rotation: an image counts as "
    "right if it is right at every angle. Random search, FGSM, PGD, and APGD with the square attack, may "
    "change each pixel by epsilon; an image counts as right if the attack fails. Gradients are suspicious if "
    "attacks without them do better: then attacks along them say little."
)
