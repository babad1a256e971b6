"""Two processes with DistributedDataParallel take the step that one process would."""

import torch
from torch import multiprocessing

from nn.conv_ddp_rank import gradients, make_images, make_model, run_rank
from tolerances import TOLERANCES, assert_same


def test_two_processes_average_their_gradients(tmp_path):
    multiprocessing.spawn(run_rank, (tmp_path,), nprocs=2)
    expected = gradients(make_model(seed=0), make_images())
    for rank in (0, 1):
        for actual, wanted in zip(torch.load(tmp_path / f"{rank}.pt"), expected, strict=True):
            assert_same(actual, wanted, TOLERANCES[torch.float32].rounding)
