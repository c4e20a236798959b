"""What an answer of S3, or the lack of one, says about a request.

One list of rules, tried in order; its default row is Unknown, since a wrong "unknown" costs one more read
and any other wrong answer costs a run. It reads answers only: what to do about them is decided elsewhere.

A surprise: a 404 counts as "no such object" only where its body says so in S3's own words. A bare 404 may
come from a proxy in between, and taking that for a deleted run would stop it for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from milepost.checkpoint.store import Answer, Clash, Expired, Gone, Refused, Undecided, Unknown

__all__ = ["FAILURES", "answer_to", "is_damage", "status_of"]

# All that a call of the SDK raises for reasons outside this program.
FAILURES = (sdk.BotoCoreError, sdk.ClientError, ResponseParserError, HTTPError, OSError)

_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})
_INVALID = frozenset(
    {
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "InvalidToken",
        "InvalidSecurity",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        # versitygw's, with the status 404.
        "XAdminUserNotFound",
    }
)
_DAMAGE = frozenset(
    {"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"}
)
# Refusals by their number, and yet gone with the next try: a body damaged on its way, or too many requests.
_PASSING = frozenset(
    {
        "RequestTimeout",
        "RequestTimeTooSkewed",
        "BadDigest",
        "IncompleteBody",
        "ClientDisconnected",
        "XAmzContentChecksumMismatch",
        "XAmzContentSHA256Mismatch",
        "Throttling",
        "ThrottlingException",
        "KMS.ThrottlingException",
    }
)
_CHECK_KEYS = "put valid keys into the store's Secret, or into the environment of `milepost`"
_NO_KEYS = (sdk.NoCredentialsError, sdk.PartialCredentialsError)
# The source of credentials (a token file, a metadata service) did not answer: it may in a moment.
_KEYS_LATE = (
    sdk.CredentialRetrievalError,
    sdk.MetadataRetrievalError,
    sdk.TokenRetrievalError,
    sdk.SSOError,
)
# Raised before anything was sent, for arguments that no retry changes.
_UNSENDABLE = (sdk.ParamValidationError, sdk.EndpointProviderError, sdk.NoRegionError)


@dataclass(frozen=True)
class _Said:
    """A store's answer: the HTTP status, the code in its body, its words, and its Retry-After."""

    status: int
    code: str
    message: str
    retry_after: float

    @property
    def text(self) -> str:
        return f"{self.status} {self.code}: {self.message}" if self.message else f"{self.status} {self.code}"


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an answer, 0 where there was none."""
    return _said(error).status if isinstance(error, sdk.ClientError) else 0


def is_damage(error: BaseException) -> bool:
    """Tell whether the store says that the body does not fit its checksum."""
    return isinstance(error, sdk.ClientError) and _said(error).code in _DAMAGE


def answer_to(error: BaseException, where: str) -> Answer:
    """Return the one answer that a failed request stands for. `where` names the object, for people."""
    if isinstance(error, sdk.ClientError):
        return _of_answer(_said(error), where)
    if isinstance(error, _NO_KEYS):
        return Refused("CredentialsInvalid", f"{where}: {error}", _CHECK_KEYS)
    if isinstance(error, _KEYS_LATE):
        return Expired(str(error))
    if isinstance(error, _UNSENDABLE):
        return Refused(
            "StoreMisconfigured", f"{where}: {error}", "check the store's endpoint, bucket and region"
        )
    return Unknown(f"{type(error).__name__}: {error}")


def _said(error: sdk.ClientError) -> _Said:
    response: Any = error.response
    details = response.get("Error", {})
    meta = response.get("ResponseMetadata", {})
    wait = str(meta.get("HTTPHeaders", {}).get("retry-after", ""))
    return _Said(
        status=int(meta.get("HTTPStatusCode", 0)),
        code=str(details.get("Code", "")),
        message=str(details.get("Message", "")),
        # The other form, a date, is answered with our own back-off.
        retry_after=float(wait) if wait.isdecimal() else 0.0,
    )


def _of_answer(said: _Said, where: str) -> Answer:
    if said.status == HTTPStatus.PRECONDITION_FAILED:
        return Clash()
    if said.status == HTTPStatus.CONFLICT:
        return Undecided(said.text)
    if said.code == "NoSuchKey":
        return Gone()
    if said.code in _EXPIRED:
        return Expired(said.text)
    return _refusal(said, where) if _is_clear_no(said) else Unknown(_cause(said), said.retry_after)


def _is_clear_no(said: _Said) -> bool:
    if said.code in _PASSING:
        return False
    if said.code == "NoSuchBucket" or said.code in _INVALID:
        return True
    if said.status in {HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}:
        return False
    return HTTPStatus.MULTIPLE_CHOICES <= said.status < HTTPStatus.INTERNAL_SERVER_ERROR


def _cause(said: _Said) -> str:
    # A process that was paused between signing and sending gets this too; signed again, it passes. So it
    # is no refusal, and whoever waits in vain reads what to mend.
    if said.code == "RequestTimeTooSkewed":
        return f"{said.text}; the clock of this machine is too far from the store's"
    return said.text


def _refusal(said: _Said, where: str) -> Refused:
    message = f"{where}: the store answered {said.text}"
    if said.code == "NoSuchBucket":
        return Refused(
            "BucketMissing", message, "create the bucket, or correct its name in the store's settings"
        )
    if said.code in _INVALID:
        return Refused("CredentialsInvalid", message, _CHECK_KEYS)
    if said.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return Refused(
            "StoreForbidden",
            message,
            "allow these keys to get and put objects below the prefix, and to list the bucket: without that"
            " AWS answers 403 for a key that does not exist",
        )
    return Refused("StoreMisconfigured", message, "check the store's endpoint, bucket and region")
