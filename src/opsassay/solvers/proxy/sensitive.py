r"""What should not leave a machine, by its form: keys, e-mail addresses, paths, network addresses, phone numbers.

Text comes nested: JSON in JSON doubles backslashes and may escape slashes and signs, URLs encode ``@``, and base64 hides
everything; all of these are looked for. Where a pattern has a group *value*, the rest of the match stays: in
``password=...`` the name tells what was there. No pattern may look at a character more often than a few dozen times: tool
outputs are megabytes.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

_FORMS = (
    r"(?<![A-Za-z0-9])(?:"
    r"[spr]k[-_](?=[\w-]{0,40}\d)[A-Za-z0-9_-]{12,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|xox[abeprs]-[\w-]{10,}|"
    r"(?:AKIA|ASIA|AGPA|AROA|AIDA)[A-Z0-9]{16}|AIza[\w-]{30,}|hf_[A-Za-z0-9]{16,}|glpat-[\w-]{16,}|npm_[A-Za-z0-9]{30,}|"
    r"pypi-[\w-]{30,}|SG\.[\w-]{16,}\.[\w-]{16,}|dapi[0-9a-f]{32}|ya29\.[\w-]{20,}|opsassay-[\w-]{24,}|"
    r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
_PEM = r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
_COMMON_WORD = (
    r"(?!(?i:null|none|true|false|required|incorrect|invalid|missing|expired|empty|unset|string|undefined|redacted)\b"
    r"|\d+(?:[\s,;)}\]\"'\\]|\Z))"
)
_NAMED = (
    r"(?i:passw(?:or)?d|pwd|secret|api[_-]?key|access[_-]?key|account[_-]?key|client[_-]?key|token)[\\\"']*\s*[:=]\s*[\\\"']*"
    rf"{_COMMON_WORD}(?P<value>[^\s\"'\\,;&(){{}}\[\]<>$*]{{6,}})"
)
_SCHEME = r"(?i:\b(?:bearer|basic))\s+(?=[\w+/.~-]{0,200}\d)(?P<value>[\w+/.~-]{8,}={0,2})"
_HEADER = r"(?i:authorization[\"']*\s*[:=]\s*[\"']*[a-z]+)\s+(?P<value>[\w+/.~-]{6,}={0,2})"
_USERINFO = r"(?<=://)(?P<value>[^\s/:@\"'<>]{1,80}:[^\s/@\"'<>]{1,200})(?=@)"

_AT = r"(?:@|%40|\\+u0040)"
_EMAIL = rf"(?<![\w.%+-])[\w.%+-]{{1,64}}?{_AT}(?:[^\W_][\w-]{{0,62}}\.){{1,8}}[^\W\d_]{{2,24}}(?![\w-])"
_SPELT_EMAIL = (
    r"(?<![\w.+-])[\w.+-]{1,64}\s?[\[(]\s?at\s?[\])]\s?[\w-]{1,62}"
    r"(?:\s?(?:\.|[\[(]\s?dot\s?[\])])\s?[\w-]{1,62}){1,6}"
)

_SLASH = r"\\{0,8}/"
_PART = r"[\w.@+=,%-]{1,255}"
_PRIVATE = "home|Users|root|tmp|var|etc|opt|usr|mnt|srv|data|workspace|private|Volumes|media"
_QUOTED = rf"(?<=[\"'`])(?:{_SLASH}(?:home|Users)|[A-Za-z]:\\{{1,8}}Users)[^\"'`\n\r]{{1,400}}?(?=\\{{0,8}}[\"'`])"
_UNIX = (
    rf"(?:(?<=file://)|(?<![\w./<])){_SLASH}(?:{_PRIVATE})(?:{_SLASH}{_PART}){{1,60}}|"
    rf"(?<![\w./<~])~(?:[a-z_][\w-]{{0,31}})?(?:{_SLASH}{_PART}){{1,60}}"
)
_WINDOWS = (
    r"(?<!\w)[A-Za-z]:(?:\\{1,8}|/(?=(?i:users|documents|windows|program)))"
    r"(?:[\w .@+()-]{1,255}(?:\\{1,8}|/)){0,60}[\w.@+-]{1,255}|"
    r"(?<![\w\\])\\{2,8}[A-Za-z][\w.-]{2,62}\\{1,4}[\w$.-]{3,80}(?:\\{1,4}[\w .$-]{1,80}){0,60}"
)

_BYTE = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_IPV4 = rf"(?<![\w.-])(?!127\.0\.0\.1|0\.0\.0\.0){_BYTE}(?:\.{_BYTE}){{3}}(?![\w.])"
_IPV6 = (
    r"(?<![\w:])(?:(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|"
    r"(?i:fe80|f[cd][0-9a-f]{2}):(?::?[0-9a-fA-F]{1,4}){1,7})(?![\w:])"
)
_PHONE = (
    r"(?<![\w+])\+(?=(?:[ .()-]{0,2}\d){8,15}(?!\d))"
    r"\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{2,4}(?:[ .-]?\d{2,4}){1,4}(?!\w)"
)

PATTERNS: dict[str, tuple[str, ...]] = {
    "key": (_PEM, _FORMS, _USERINFO, _HEADER, _SCHEME, _NAMED),
    "email": (_EMAIL, _SPELT_EMAIL),
    "path": (_QUOTED, _UNIX, _WINDOWS),
    "address": (_IPV4, _IPV6),
    "phone": (_PHONE,),
}
"""What is redacted by default, in the order in which it is looked for: what is taken first is seen by no later one."""

_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{16,}={0,2}(?![A-Za-z0-9+/_=-])")


def hidden_in_base64(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield every run of base64 in *text* that is UTF-8 text, with that text."""
    for found in _BASE64.finditer(text):
        run = found[0].rstrip("=").replace("-", "+").replace("_", "/")
        try:
            decoded = base64.b64decode(run + "=" * (-len(run) % 4), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
        if decoded.replace("\n", " ").replace("\t", " ").replace("\r", " ").isprintable():
            yield found, decoded
