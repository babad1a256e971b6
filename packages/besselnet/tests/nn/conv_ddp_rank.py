"""What each process of ``test_conv_distributed`` runs; a file of its own, so that a process can import it."""

import torch
from torch import distributed, nn

from besselnet.nn import BesselConv2d


def make_model(seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        BesselConv2d(1, 4, 5, padding=2), nn.ReLU(), BesselConv2d(4, 2, 5, scales=(-2, 0))
    )


def make_images():
    return torch.randn(4, 1, 9, 9, generator=torch.Generator().manual_seed(1))


def gradients(model, images):
    model(images).square().mean().backward()
    return [p.grad for p in model.parameters()]


def run_rank(rank, folder):
    """One step of two processes, each on its half of the images; the gradients go to a file."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    # Different seeds: the wrapper must carry the weights of rank 0 to rank 1.
    model = nn.parallel.DistributedDataParallel(make_model(seed=rank))
    torch.save(gradients(model, make_images()[2 * rank : 2 * rank + 2]), folder / f"{rank}.pt")
    # A process that leaves early can abort the other one, which still listens to it.
    distributed.barrier()
    distributed.destroy_process_group()
