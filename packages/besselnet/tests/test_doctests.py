"""The examples in docstrings are right."""

import doctest
import importlib
import pkgutil

import pytest

import besselnet.core
import besselnet.functional
import besselnet.nn

MODULES = [
    "besselnet.testing",
    *(
        module.name
        for room in (besselnet.core, besselnet.functional, besselnet.nn)
        for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}.")
    ),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
