"""Forms of the platform's pages as bytes: fields and files come out as they were put in, and nonsense is a sentence."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsassay.core.errors import UserError
from opsassay.ui.platform.forms import read_form

HEAD = "multipart/form-data; boundary=xyz"


def part(name, content, file=None):
    of_file = "" if file is None else f'; filename="{file}"'
    return f'--xyz\r\nContent-Disposition: form-data; name="{name}"{of_file}\r\n\r\n'.encode() + content + b"\r\n"


@given(st.binary(max_size=400), st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc")), max_size=30))
def test_a_file_keeps_its_bytes_and_a_field_its_text(content, text):
    sent = part("name", text.encode()) + part("bundle", content, "my agent.tar") + b"--xyz--\r\n"
    form = read_form(sent, HEAD)
    assert form.fields.get("name") == [text]
    assert form.files == {"bundle": content}


def test_no_chosen_file_is_none_and_several_values_are_kept():
    sent = part("domains", b"sre") + part("domains", b"finops") + part("bundle", b"", "") + b"--xyz--\r\n"
    form = read_form(sent, HEAD)
    assert form.fields == {"domains": ["sre", "finops"]}
    assert form.files == {}
    assert form.first("missing") == ""


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\xff=1", "application/x-www-form-urlencoded"),
        (part("name", b"\xff") + b"--xyz--\r\n", HEAD),
        (b"".join(part(f"f{i}", b"x") for i in range(201)) + b"--xyz--\r\n", HEAD),
    ],
)
def test_what_is_no_form_is_refused_in_a_sentence(content, kind):
    with pytest.raises(UserError, match="cannot be read"):
        read_form(content, kind)


@given(st.binary(max_size=200), st.text(max_size=40))
def test_nonsense_is_a_form_or_a_sentence(content, kind):
    for said in (kind, HEAD, f"multipart/form-data; boundary={kind}"):
        with contextlib.suppress(UserError):
            read_form(content, said)
