"""Synchronised batch normalisation of several processes is that of one process with all images."""

import copy
from contextlib import nullcontext

import torch
from torch import multiprocessing

from besselnet.nn import synchronised_norms
from nn.norm_ddp_rank import SHARES, make_images, make_model, run_rank, two_steps


def test_uneven_shares_are_normalised_as_one_batch(tmp_path):
    multiprocessing.spawn(run_rank, (tmp_path,), nprocs=len(SHARES))
    outputs, gradients, buffers = two_steps(make_model(), make_images(), nullcontext)
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(len(SHARES))]
    for turn, expected in enumerate(outputs):
        together = torch.cat([outputs[turn] for outputs, _, _ in found[:-1]])
        torch.testing.assert_close(together, expected, atol=1e-4, rtol=1e-4)
    for _, summed, averages in found:
        for actual, wanted in zip([*summed, *averages], [*gradients, *buffers], strict=True):
            torch.testing.assert_close(actual, wanted, atol=1e-4, rtol=1e-3)


def test_layers_are_the_same_outside(tmp_path):
    model = make_model()
    before = copy.deepcopy(model.state_dict())
    with synchronised_norms(model):
        names = list(model.state_dict())
        # In eval mode nothing is asked of other processes, of which there are none.
        inside = model.eval()(make_images())
    assert names == list(before)
    assert torch.equal(inside, model(make_images()))
    outputs, *_ = two_steps(model.train(), make_images(), nullcontext)
    expected, *_ = two_steps(make_model(), make_images(), nullcontext)
    assert torch.equal(outputs[0], expected[0])
