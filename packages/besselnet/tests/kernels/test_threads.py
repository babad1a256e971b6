"""The kernel with several threads: the same bits each time, beside other threads, after a fork."""

import os
import signal
import threading

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from besselnet.kernels import available, status
from besselnet.kernels._load import load
from besselnet.kernels._openmp import find_parallel
from besselnet.nn import BesselConv2d

pytestmark = pytest.mark.skipif(not available(), reason=str(status()))


@pytest.fixture(autouse=True, params=[1, 2, 3])
def _threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def pass_both_ways():
    """Response and gradients of one layer on the same images."""
    generator = torch.Generator().manual_seed(0)
    layer = BesselConv2d(6, 20, 7, padding=3, algorithm="factored")
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator))
    image = torch.randn(3, 6, 31, 17, generator=generator).requires_grad_()
    output = layer(image)
    output.square().sum().backward()
    return [output.detach(), image.grad, layer.weight.grad, layer.bias.grad]


def same(first, second):
    return all(torch.equal(one, two) for one, two in zip(first, second, strict=True))


def test_repeated_calls_are_bit_identical():
    expected = pass_both_ways()
    assert all(same(pass_both_ways(), expected) for _ in range(20))


def test_several_python_threads_at_once():
    expected = pass_both_ways()
    threads = torch.get_num_threads()
    agreed = []

    def work():
        # The number of threads is a setting of each thread.
        torch.set_num_threads(threads)
        agreed.extend(same(pass_both_ways(), expected) for _ in range(10))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert agreed == [True] * 40


def test_threads_of_its_own_give_the_same_bits():
    """What it uses where torch has no OpenMP, and after a fork."""
    expected = pass_both_ways()
    parallel, _ = find_parallel()
    assert parallel is not None
    library = load().library
    library.bessel_use_openmp(None)
    try:
        assert same(pass_both_ways(), expected)
    finally:
        library.bessel_use_openmp(parallel)


# Python warns of forks beside threads, which is what is tested here.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork():
    expected = pass_both_ways()
    child = os.fork()
    if child == 0:
        # Whatever happens, the child must not go on with the tests.
        try:
            signal.alarm(60)
            os._exit(0 if same(pass_both_ways(), expected) else 1)
        finally:
            os._exit(2)
    _, code = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(code) == 0


class Filtered(Dataset):
    """What a layer makes of images; module level, so that a worker of any kind can load it."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return pass_both_ways()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_in_workers_of_a_data_loader():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    expected = pass_both_ways()
    torch.set_num_threads(before)
    batches = list(DataLoader(Filtered(), batch_size=2, num_workers=2, timeout=60))
    # A worker has one thread.
    assert len(batches) == 2
    for batch in batches:
        assert all(same(found, expected) for found in zip(*batch))
