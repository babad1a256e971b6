"""Every test has its own, empty cache folder."""

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("BESSELNET_DATA", str(folder))
    return folder
