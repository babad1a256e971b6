"""What each process of ``test_norm_distributed`` runs; a file of its own, so that a process can import it."""

from functools import partial

import torch
from torch import distributed, nn

from besselnet.nn import AttentiveNorm2d, synchronised_norms

# Images of each of three processes. The last one only takes part.
SHARES = (4, 1, 0)


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 5, 3),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        AttentiveNorm2d(5, preset="eccv2020"),
        nn.BatchNorm2d(5, momentum=None, affine=False),
        nn.Flatten(),
        nn.Linear(80, 3),
        nn.BatchNorm1d(3, track_running_stats=False),
    ).train()


def make_images():
    """Far from 0 and of small variance, where sums of squares cancel."""
    return 50 + torch.randn(sum(SHARES), 2, 6, 6, generator=torch.Generator().manual_seed(1))


def two_steps(model, images, context, counts=1.0):
    """Outputs, gradients and running averages after two forward and backward passes."""
    outputs = []
    for turn in range(2):
        with context():
            outputs.append(model(images + turn))
        # Not a plain sum, whose gradient normalisation makes 0.
        (counts * (outputs[-1] * images.mean((1, 2, 3))[:, None].sin())).sum().backward()
    return outputs, [p.grad for p in model.parameters()], list(model.buffers())


def run_rank(rank, folder):
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=len(SHARES)
    )
    silent = SHARES[rank] == 0
    share = torch.zeros(2, 2, 6, 6) if silent else make_images().split(SHARES[:-1])[rank]
    model = make_model()
    context = partial(synchronised_norms, model, silent=silent)
    found = two_steps(model, share, context, counts=0.0 if silent else 1.0)
    for gradient in found[1]:
        distributed.all_reduce(gradient)
    torch.save(found, folder / f"{rank}.pt")
    # A process that leaves early can abort the other one, which still listens to it.
    distributed.barrier()
    distributed.destroy_process_group()
