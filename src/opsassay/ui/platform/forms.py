"""Parses the forms that pages of the platform send: fields and uploaded files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from urllib.parse import parse_qs

from opsassay.core.errors import UserError

FIELDS = 200
"""Most fields of one form."""
MULTIPART = "multipart/form-data"


@dataclass(frozen=True)
class SentForm:
    """A received form: the values of each field by its name, and the content of each file."""

    fields: Mapping[str, list[str]] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)

    def first(self, name: str) -> str:
        """Return the first value of the field *name*, stripped; "" when it is missing."""
        return self.fields.get(name, [""])[0].strip()


def read_form(content: bytes, content_type: str) -> SentForm:
    """Return the form in *content*, by *content_type* URL-encoded or multipart; raises UserError for another one."""
    fields: dict[str, list[str]] = {}
    files: dict[str, bytes] = {}
    try:
        if not content_type.startswith(MULTIPART):
            return SentForm(parse_qs(content.decode(), max_num_fields=FIELDS))
        for number, (name, file, held) in enumerate(form_parts(content, content_type)):
            if number >= FIELDS:
                raise ValueError(f"more than {FIELDS} fields")
            if file is None:
                fields.setdefault(name, []).append(held.decode())
            elif held or file:  # where no file is chosen a browser sends one without name and content
                files[name] = held
    except ValueError as error:
        raise UserError("The form cannot be read; send it from the page.") from error
    return SentForm(fields, files)


def form_parts(content: bytes, content_type: str) -> Iterator[tuple[str, str | None, bytes]]:
    """Yield (field name, file name or None, content) of each part of a multipart form."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode("utf-8", "replace")
    form = BytesParser(policy=HTTP).parsebytes(head + content)
    for part in form.iter_parts() if form.is_multipart() else ():
        if isinstance(held := part.get_payload(decode=True), bytes):
            yield str(part.get_param("name", "", "content-disposition")), part.get_filename(), held
