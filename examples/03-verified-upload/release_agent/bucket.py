"""The bucket: `file:FOLDER` on a laptop, or `s3://bucket/prefix?endpoint=...` on any store that speaks S3.

An object has an id that tells it from others that were uploaded under its name: S3 calls it the ETag, and a
folder has one of the same kind.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import boto3


@dataclass(frozen=True)
class Found:
    """What lies in the bucket under a name."""

    id: str
    body: str


class Bucket(Protocol):
    """The two calls that the agent makes. They block."""

    def put(self, name: str, body: str) -> str:
        """Upload an object in place of any other of that name, and return its id."""

    def get(self, name: str) -> Found | None:
        """Return the object of that name; None if there is none."""


def open_bucket(where: str) -> Bucket:
    """Return the bucket at a URL, which may name environment variables, `file:$HOME/bucket` for instance."""
    url = urlsplit(os.path.expandvars(where))
    if url.scheme == "file":
        return Folder(Path(url.path))
    if url.scheme == "s3":
        endpoint = parse_qs(url.query).get("endpoint", [None])[0]
        return S3(url.netloc, url.path.strip("/"), endpoint)
    raise ValueError(f"{where} is no bucket: it begins with file: or s3:")


class Folder:
    """A folder as a bucket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def put(self, name: str, body: str) -> str:
        """Write a new file beside, and put it in the place of the old one at once."""
        self._path.mkdir(parents=True, exist_ok=True)
        unfinished = self._path / f".{name}.unfinished"
        unfinished.write_text(body, encoding="utf-8")
        unfinished.replace(self._path / name)
        return _etag(body)

    def get(self, name: str) -> Found | None:
        """Return the file, if it is there."""
        path = self._path / name
        if not path.exists():
            return None
        body = path.read_text(encoding="utf-8")
        return Found(_etag(body), body)


def _etag(body: str) -> str:
    return f'"{hashlib.sha256(body.encode()).hexdigest()[:32]}"'


class S3:
    """A bucket of a store that speaks S3, with the credentials that boto3 finds by itself."""

    def __init__(self, bucket: str, prefix: str, endpoint: str | None) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._client: Any = boto3.client("s3", endpoint_url=endpoint)

    def put(self, name: str, body: str) -> str:
        """Upload the object."""
        answer = self._client.put_object(Bucket=self._bucket, Key=self._key(name), Body=body.encode())
        return str(answer["ETag"])

    def get(self, name: str) -> Found | None:
        """Download the object, if it is there."""
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key(name))
        except self._client.exceptions.NoSuchKey:
            return None
        return Found(str(answer["ETag"]), answer["Body"].read().decode())

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name
