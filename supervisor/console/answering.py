"""Documents as answers: JSON that any reader takes, text that stays text."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, is_dataclass
from typing import Any

from starlette.responses import Response

_MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def encoded(document: object) -> bytes:
    """A document as ASCII JSON. What is no finite number becomes null; what could be markup is escaped, in whatever it is put."""
    value = asdict(document) if is_dataclass(document) and not isinstance(document, type) else document
    return json.dumps(_finite(value), allow_nan=False, separators=(",", ":")).translate(_MARKUP).encode("ascii")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(_finite(one) for one in value)
    return value


def document(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON."""
    return Response(encoded(value), status, headers, media_type="application/json")


def text(value: str) -> Response:
    """Plain text: what is said here was cleaned by those who made it."""
    return Response(value.encode("utf-8", "replace"), media_type="text/plain; charset=utf-8")


def trouble(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """Why not, in one line."""
    return document({"detail": detail}, status, headers)
