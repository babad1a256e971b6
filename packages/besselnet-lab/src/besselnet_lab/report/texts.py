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
    "This report compares the trainings of a study with the accuracies that Delchevalerie, Mayer, Bibal and "
    "Frénay published for Bessel-convolutional neural networks and other methods (arXiv:2304.09214)."
)
ALONE = (
    "This report compares the trainings of a study with one another. None of them has a counterpart in the "
    "paper on Bessel-convolutional neural networks (arXiv:2304.09214)."
)

# A word of the tables, and what it means.
WORDS = (
    ("column", "a data set, the augmentation and the number of its training images"),
    ("row", "a method and its symmetry group"),
    ("aug", "training images are rotated (galaxies and blood cells also mirrored) at random"),
    ("noaug", "training images are not augmented"),
    (
        "upright",
        "training images stay upright, test and validation images are rotated by random angles",
    ),
    (
        "high, inter, low",
        "many, fewer and few training images; the head of a column shows the number",
    ),
)

LEGEND = (
    "Accuracy in per cent, mean ± standard deviation over runs (the sample standard deviation for this "
    "study). The first line of a cell is the paper's result. The second line is that of this study, with "
    "the number of runs and the difference. ▲ above and ▼ below the paper by more than two standard "
    "deviations of both, = within two of both, ~ within two of one of them only. Bold: the best three of "
    "the column among the paper's methods, and among those of this study if there are several. –: missing."
)

LEGEND_ALONE = (
    "Accuracy in per cent, mean ± sample standard deviation over runs. ▲ above and ▼ below the first row "
    "by more than two standard deviations of both, = within two of both, ~ within two of one of them "
    "only, ? unknown, because both were run once."
)

LEGEND_MASKS = (
    "Scores in per cent, mean ± sample standard deviation over runs; the best method comes first. F1 is "
    "the Dice coefficient of the class that is not background. With more than two classes, the mean Dice "
    "is shown. Boundary F1 accepts boundaries within 2 pixels of each other. Instance F1 accepts objects "
    "with an IoU above 0.5. Agreement is the IoU of two masks: that of the rotated image, rotated back, "
    "and that of the original image. It covers the disc that is visible at every angle. It is the mean "
    "over the classes and over 30, 60, ..., 330 degrees, with black corners unless the head says reflected "
    "borders. Quarter turns: whether all masks are identical, or the share of pixels that changes in the "
    "worst run."
)

LEGEND_ROBUST = (
    "Accuracy in per cent, mean ± sample standard deviation over runs. All networks of a column see the "
    "same images. Clean: the original images. Corrupted: the mean over eleven corruptions of five severities "
    "each. Corruption error: the errors under each corruption divided by those of the row 'plain CNN', "
    "averaged; 100 means as many errors. The lowest comes first. Noise 0.2: Gaussian noise with this "
    "standard deviation. Worst rotation: an image counts as right if it is right at every angle. Random "
    "search, FGSM, PGD, and APGD with the square attack can change each pixel by at most epsilon; an image "
    "counts as right if the attack fails. Gradients are suspicious if attacks without gradients do better: "
    "then gradient-based attacks prove little."
)
