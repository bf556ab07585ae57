from pathlib import Path

import pytest

from rollbook.errors import ModelError
from rollbook.models import CATALOGUE, SHIPPED, parse_model_name


def test_a_name_of_the_catalogue_is_a_known_model():
    assert parse_model_name("smollm2-135m") is CATALOGUE["smollm2-135m"]


def test_a_name_of_a_shipped_model_is_that_model():
    assert parse_model_name("tiny") is SHIPPED["tiny"]
    assert CATALOGUE.keys() & SHIPPED.keys() == set()


def test_a_path_is_a_path():
    assert parse_model_name("a/b.gguf") == Path("a/b.gguf")


@pytest.mark.parametrize("name", ["", "smollm", "model.bin", "SMOLLM2-135M"])
def test_anything_else_says_what_can_be_named(name):
    with pytest.raises(ModelError, match=r"smollm2-135m, tiny.*\.gguf"):
        parse_model_name(name)
