"""What the paper compares: its rows as networks, the peers on escnn, its published numbers.

Importing this package registers the peers with `besselnet.models`.
"""

from besselnet_lab.paper import peers  # noqa: F401  (registers its models)

__all__: list[str] = []
