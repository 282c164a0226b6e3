"""YAML of others is data of a limited size."""

import time

import pytest

from cory.cli.main import main
from cory.runtime.yaml_files import read_yaml

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "file.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LAUGHS, "with its aliases written out it holds more than 100,000 values"),
        ("a: &a [*a]", "an alias stands inside of what it stands for"),
        ("a: &a {b: *a}", "an alias stands inside of what it stands for"),
        ("a: " + "[" * 5000, "nested too deeply"),
        ("seed: 1\nseed: 2", "the key 'seed' is given twice"),
        ("kl: {coef: 1, coef: 2}", "the key 'coef' is given twice"),
        ("a: [1", "expected ',' or ']'"),
        ("a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        (b"\xff\xfe\x00", "codec can't decode byte 0xff"),
    ],
)
def test_yaml_with_aliases_or_control_characters_is_refused_quickly(written, text, reason):
    began = time.process_time()
    with pytest.raises(ValueError, match=reason):
        read_yaml(written(text))
    assert time.process_time() - began < 5


def test_aliases_and_merges_of_ordinary_size_are_written_out(written):
    text = "base: &base {lr: 0.1}\none: *base\ntwo: {<<: *base, seed: 3}\n"
    expected = {"base": {"lr": 0.1}, "one": {"lr": 0.1}, "two": {"lr": 0.1, "seed": 3}}
    assert read_yaml(written(text)) == expected
    assert read_yaml(written("")) is None


@pytest.mark.parametrize("command", [["train", "--config"], ["study"]])
def test_nested_aliases_in_settings_and_studies_are_one_error(written, command, capsys):
    path = written(LAUGHS)
    assert main([*command, str(path)]) == 2
    assert "more than 100,000 values); give YAML" in capsys.readouterr().err
