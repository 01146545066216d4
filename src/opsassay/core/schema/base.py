"""Base classes of all models: frozen, versioned, with deterministic bytes; artefacts tolerate unknown keys."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from opsassay.core.untrusted import storable

Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""An integer that a table column can store, such as an instant in nanoseconds."""
LARGEST = 1e20
"""The largest number allowed in a file that a person writes; sums and products of larger ones may be infinite."""


class Noun(BaseModel):
    """A frozen value; parts of artefacts derive from it directly."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="null", populate_by_name=True)

    def canonical_json(self) -> str:
        """Return this value as JSON with sorted keys and no spaces: equal values give equal text, for hashes."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), sort_keys=True, separators=(",", ":"))

    def digest(self) -> str:
        """Return the SHA-256 of `canonical_json`, in hexadecimal."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()


class Artefact(Noun):
    """A model with a file of its own: it has *schema_version*; unknown keys are tolerated on reading."""

    SCHEMA_VERSION: ClassVar[int] = 1
    schema_version: int = 1

    def pretty_json(self) -> str:
        """Return the JSON that is written to disk: indented by 1, keys in the order of the fields, a newline at the end."""
        text = json.dumps(self.model_dump(mode="json", by_alias=True), indent=1, ensure_ascii=False) + "\n"
        return text if text.isascii() else _without_surrogates(self, text)


def _without_surrogates(noun: Artefact, text: str) -> str:
    """Return *text*, the JSON of *noun*, with lone surrogates escaped, since UTF-8 cannot encode them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        plain = storable(noun.model_dump(mode="json", by_alias=True))
        return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"
    return text


class Written(BaseModel):
    """A model of a file that a person writes: frozen; refuses unknown keys and numbers beyond LARGEST."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _require_bounded_numbers(self) -> Self:
        """Raise ValueError for a number, also in a mapping or tuple, whose absolute value is above LARGEST."""
        for name, value in self:
            for number in (
                value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
            ):
                if isinstance(number, int | float) and abs(number) > LARGEST:
                    raise ValueError(f"{name} is {str(number)[:12]}, beyond {LARGEST:.0e}; write a smaller number")
        return self

    def digest(self) -> str:
        """Return the SHA-256 of this value's JSON (sorted keys, no spaces), in hexadecimal."""
        payload: Any = self.model_dump(mode="json", by_alias=True)
        return hashlib.sha256(json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
