"""AWS Secrets Manager, through boto3: region, endpoint, profile and credentials as boto3 finds them."""

from __future__ import annotations

import re
import threading
from typing import Any

from flowctl.errors import AccessDenied, FlowctlError, TableError, TransientError
from flowctl.spec.secret_stores.store import CONNECT_TIMEOUT, READ_TIMEOUT, SecretStore

_REGION_OF_ARN = re.compile(r"arn:[\w-]+:secretsmanager:([\w-]+):")
#: Other versions are named by a stage, such as AWSPREVIOUS.
_VERSION_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired"}
_UNKNOWN_CALLER = {
    "UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException", "IncompleteSignature",
    "SignatureDoesNotMatch", "MissingAuthenticationToken", "AuthFailure",
}  # fmt: skip
_DENIED = {"AccessDeniedException", "AccessDenied", "NotAuthorized", "OptInRequired"}
_HINT_CREDENTIALS = "Check the credentials that `aws sts get-caller-identity` shows"


class SecretsManager(SecretStore):
    title = "AWS Secrets Manager"
    clients = ("boto3",)
    name_form = re.compile(r"(arn:[\w-]+:secretsmanager:[\w-]+:\d{12}:secret:)?[\w/+=.@!-]+", re.ASCII)
    example = "shop/postgres"

    def __init__(self) -> None:
        import boto3

        self._session = boto3.Session()
        self._lock = threading.Lock()

    def read(self, name: str, version: str) -> str:
        which = {"VersionId" if _VERSION_ID.fullmatch(version) else "VersionStage": version} if version else {}
        found = self._client(name).get_secret_value(SecretId=name, **which)
        return str(found["SecretString"]) if "SecretString" in found else found["SecretBinary"].decode()

    def _client(self, name: str) -> Any:
        from botocore.config import Config

        in_arn = _REGION_OF_ARN.match(name)
        config = Config(
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
            retries={"mode": "standard", "total_max_attempts": 2},
        )
        with self._lock:  # a session is not thread-safe, a client is
            return self._session.client("secretsmanager", region_name=in_arn[1] if in_arn else None, config=config)

    @classmethod
    def explain(cls, error: Exception, name: str) -> FlowctlError | None:
        from botocore import exceptions

        match error:
            case exceptions.ClientError():
                return _explain_response(error, name)
            case exceptions.NoRegionError():
                return TableError(f"{cls.title} needs a region", hint="Set AWS_DEFAULT_REGION, or use the secret's ARN")
            case exceptions.SSOError() | exceptions.TokenRetrievalError() | exceptions.UnauthorizedSSOTokenError():
                return AccessDenied("the AWS session has expired", hint="Renew it: aws sso login")
            case exceptions.NoCredentialsError() | exceptions.CredentialRetrievalError():
                return AccessDenied(f"there are no credentials for {cls.title}", hint=_HINT_CREDENTIALS)
            case exceptions.PartialCredentialsError() | exceptions.ProfileNotFound():
                return AccessDenied(f"the credentials for {cls.title} are incomplete", hint=_HINT_CREDENTIALS)
            case exceptions.SSLError():
                hint = "Set AWS_CA_BUNDLE to the certificate of its authority"
                return TableError(f"the certificate of {cls.title} is not trusted", hint=hint)
            case exceptions.HTTPClientError() | exceptions.ConnectionError():
                hint = "Check the region, AWS_ENDPOINT_URL_SECRETS_MANAGER and the network"
                return TransientError(f"{cls.title} cannot be reached", hint=hint)
            case exceptions.InvalidRegionError() | exceptions.UnknownEndpointError():
                return TableError(f"{cls.title}: the region is not a valid one", hint="Correct AWS_DEFAULT_REGION")
            case _:
                return None


def _explain_response(error: Any, name: str) -> FlowctlError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    in_arn = _REGION_OF_ARN.match(name)
    region = in_arn[1] if in_arn else _region_used()
    where = SecretsManager.title + (f" in {region}" if region else "")
    if code == "ResourceNotFoundException":
        return TableError(
            f"{where} has no secret {name}, or not in this version",
            hint="Check the name, the version and the region (AWS_DEFAULT_REGION)",
        )
    if code in _EXPIRED:
        return AccessDenied(f"the credentials for {where} have expired", hint="Renew them and run again")
    if code in _UNKNOWN_CALLER:
        return AccessDenied(f"{where} does not accept the credentials", hint=_HINT_CREDENTIALS)
    if code in _DENIED or status == 403:
        hint = "Grant secretsmanager:GetSecretValue on it to the identity of this run"
        return AccessDenied(f"{where} refuses access to the secret {name}", hint=hint)
    if code == "DecryptionFailure":
        return AccessDenied(f"{where} cannot decrypt the secret {name}", hint="Grant kms:Decrypt on its key")
    if code == "InvalidRequestException":
        hint = "Restore it, or name another one"
        return TableError(f"{where} does not give the secret {name}: it is marked for deletion", hint=hint)
    if status == 429 or status >= 500 or "Throttling" in code or code == "TooManyRequestsException":
        return TransientError(f"{where} is not available ({code or status})", hint="Try again later")
    return TableError(f"{where} does not give the secret {name} ({code or status})", hint="Check the name and version")


def _region_used() -> str:
    import boto3

    return boto3.Session().region_name or ""
