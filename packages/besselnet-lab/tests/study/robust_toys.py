"""What a cell leaves about the robustness of its network, made up; and a recipe that asks for it."""

from besselnet.robust import CORRUPTIONS
from study.toys import RECIPE, make_result

ROBUST_RECIPE = RECIPE.replace(
    "[[methods]]",
    """[data.D.robust]
images = 6
border = "reflect"
[data.D.robust.attacks]
epsilons = [0.02, 0.04]
strong_epsilon = 0.02
attacked = 3
placed = 2
angles = 2
curve_steps = 1
steps = 2
restarts = 1
queries = 2
tries = 2

[[methods]]""",
    1,
)


def robust_result(
    accuracy: float,
    *,
    corrupted: float | None = None,
    strong: dict[str, float] | None = None,
    reasons: tuple[str, ...] = (),
    **changes,
) -> dict:
    """A finished cell with `corrupted` right answers under every corruption and severity."""
    share = accuracy if corrupted is None else corrupted
    attacks = dict.fromkeys(("apgd_ce", "apgd_dlr", "square", "ensemble", "pgd"), 0.1)
    attacks |= {"fgsm": 0.3, "random_search": 0.6, **(strong or {})}
    robust = {
        "images": 100,
        "accuracy": accuracy,
        "corrupted_accuracy": share,
        "corruptions": {
            name: {"strengths": list(found.strengths), "accuracy": [share] * 5}
            for name, found in CORRUPTIONS.items()
        },
        "spatial": {
            "images": 50,
            "angles": 24,
            "shift_pixels": 3,
            "accuracy": accuracy,
            "worst_rotated_accuracy": 0.5,
            "worst_accuracy": 0.4,
        },
        "attacks": {
            "images": 20,
            "accuracy": accuracy,
            "epsilons": [0.01, 0.02],
            "fgsm": [0.5, 0.3],
            "short_pgd": [0.4, 0.2],
            "epsilon": 0.02,
            "strong": attacks,
        },
        "gradient_masking": {"suspicious": bool(reasons), "reasons": list(reasons)},
        "settings": {"steps": 50, "restarts": 5},
        "noise": {
            "sigma": 0.2,
            "images": 20,
            "layers": ["image", "1 ReLU", "mean", "logits"],
            "changes": {"white": [0.4, 0.3, 0.2, accuracy]},
        },
    }
    return {**make_result(accuracy, **changes), "robust": robust}
