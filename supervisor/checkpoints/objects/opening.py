"""A store by its place: a path, or the URL of a bucket. obstore is asked for only where a bucket is named."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from supervisor.checkpoints.objects.bulk import Bulk, PosixBulk
from supervisor.checkpoints.objects.bulk_remote import RemoteBulk
from supervisor.checkpoints.objects.port import Objects
from supervisor.checkpoints.objects.posix import LAG_S, PosixObjects
from supervisor.errors import UserError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig, S3Config

REQUEST_S = 30
"""Seconds for one request, 5 of them to connect. The deadline of a call is the caller's, and may be shorter."""

READ_RETRIES = 3
"""Of a read that a server has answered with an error, or not at all; with obstore's waits, about a second."""


def open_objects(place: str, config: Mapping[str, str] | None = None, *, lag_s: float = LAG_S) -> Objects:
    """A path, or `s3://BUCKET/PREFIX`, `gs://...`, `az://...`. Raises UserError for what can't be used.

    `config` are obstore's names (`endpoint`, `region`, ...); what is not named comes from the environment, as the
    AWS tools take it. `lag_s` is for a path.
    """
    if "://" not in place:
        return PosixObjects(place, lag_s=lag_s)
    from supervisor.checkpoints.objects.remote import RemoteObjects  # noqa: PLC0415 - see `bucket`

    return RemoteObjects(bucket(place, config), reader=bucket(place, config, retries=READ_RETRIES))


def open_bulk(place: str, config: Mapping[str, str] | None = None) -> Bulk:
    """The files of the same store. Raises UserError."""
    if "://" not in place:
        return PosixBulk(place)
    return RemoteBulk(bucket(place, config), reader=bucket(place, config, retries=READ_RETRIES))


def bucket(url: str, config: Mapping[str, str] | None = None, *, retries: int = 0) -> ObjectStore:
    """The library's own store for a URL. `retries` after a server's error or a lost connection. Raises UserError.

    For writing there must be none: a put that is sent again after its reply was lost is refused by its own first half.
    """
    try:
        from obstore.exceptions import BaseError  # noqa: PLC0415 - an optional dependency
        from obstore.store import from_url  # noqa: PLC0415
    except ImportError:
        raise UserError(f"{url}: object stores need obstore; pip install 'relight[objects]'") from None
    if not url.startswith(("s3://", "s3a://", "gs://", "az://", "azure://", "abfs://", "abfss://")):
        raise UserError(f"{url}: no object store that is known; a path, s3://, gs:// or az:// would be right")
    given = cast("S3Config", dict(config or {}))  # the names differ between stores, and obstore checks them
    client: ClientConfig = {
        "timeout": f"{REQUEST_S}s",
        "connect_timeout": "5s",
        "allow_http": str(given.get("endpoint", "")).startswith("http://"),
    }
    again: RetryConfig = {"max_retries": retries, "retry_timeout": timedelta(seconds=REQUEST_S)}
    try:
        store: ObjectStore = from_url(url, config=given, client_options=client, retry_config=again)
    except (BaseError, ValueError, TypeError) as error:
        raise UserError(f"{url}: {str(error).splitlines()[0][:200]}") from None
    return store
