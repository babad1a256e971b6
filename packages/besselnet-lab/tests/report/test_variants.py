"""What the tables of an ablation say of a row."""

from besselnet_lab.report.collect import collect
from besselnet_lab.report.variants import variants
from study.toys import make_result


def test_another_model_is_named_with_the_options_of_the_recipe_alone():
    common = {"method": "first", "group": "", "model": "besselnet_small", "judge": "val"}
    first, second = make_result(0.8, **common), make_result(0.7, **{**common, "method": "second"})
    # As it was built; the second result is older than `patches`.
    first["config"] = {
        "images": {"patches": 1},
        "model": {"name": "besselnet_small", "options": {}},
    }
    first["recommendation"] = {"model": {"options": {"width": 1.0, "sampling": "cubic"}}}
    options = {"pooling": "template"}
    second["config"] = {"images": {}, "model": {"name": "e2cnn_c8", "options": options}}
    second["recommendation"] = {"model": {"options": {**options, "width": 0.5, "first": 9}}}
    (table,) = collect([first, second])
    found = variants(table, table.columns[0])
    assert [line.cells[4] for line in found.lines] == ["", "model e2cnn_c8, pooling template"]
