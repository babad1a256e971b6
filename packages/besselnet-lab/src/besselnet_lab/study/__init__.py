"""Studies: a recipe is expanded to cells, each cell is one training, and results become a report.

`recipe` reads, `cells` expands, `images` divides the data, `local` and `cluster` run, `store` keeps,
`status` and `estimate` look; `besselnet_lab.report` renders. Import from these.
"""

__all__: list[str] = []
