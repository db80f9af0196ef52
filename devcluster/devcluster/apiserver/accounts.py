"""Tokens of service accounts for the programs of pods: made for an audience, and reviewed.

Nothing is stored: a token says what it was made for, signed with a key that a restart of the server keeps.
"""

import base64
import hashlib
import hmac
import time
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from devcluster.apiserver import errors
from devcluster.apiserver.errors import Json
from devcluster.apiserver.resources import PODS
from devcluster.apiserver.store import Place, Store

DEFAULT_SECONDS = 3600
AUDIENCE = "https://kubernetes.default.svc"


class _Claims(msgspec.Struct):
    namespace: str
    account: str
    audiences: list[str]
    until: float
    pod: str
    uid: str


class Accounts:
    def __init__(self, store: Store, secrets: Iterable[str]) -> None:
        """The key comes from `secrets`, the tokens of the server's users."""
        self._store = store
        self._key = hashlib.sha256("\n".join(sorted(secrets)).encode()).digest()

    def request(self, account: Place, body: Any) -> Json:
        """The answer to a TokenRequest of a service account, which need not exist.

        Raises `ApiError` for fields of another type, a lifetime out of range, and a pod that is not there.
        """
        spec = body.get("spec") if isinstance(body, dict) else None
        asked = _read(spec, _Request)
        until = time.time() + (asked.expirationSeconds or DEFAULT_SECONDS)
        name, uid = self._pod(account.namespace, asked.boundObjectRef) if asked.boundObjectRef else ("", "")
        claims = _Claims(account.namespace, account.name, asked.audiences or [AUDIENCE], until, name, uid)
        text = base64.urlsafe_b64encode(msgspec.json.encode(claims)).decode()
        expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(until))
        status = {"token": f"{text}.{self._signature(text)}", "expirationTimestamp": expires}
        return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec, "status": status}

    def review(self, spec: Any) -> Json:
        """The status of a TokenReview: whose token it is, if it holds for one of the audiences.

        Raises `ApiError` for fields of another type.
        """
        asked = _read(spec, _Review)
        claims, wanted = self._claims(asked.token), asked.audiences or [AUDIENCE]
        audiences = [each for each in claims.audiences if each in wanted] if claims is not None else []
        if claims is None or not audiences or claims.until < time.time() or not self._holds(claims):
            return {"authenticated": False, "error": "invalid bearer token"}
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{claims.namespace}", "system:authenticated"]
        name = f"system:serviceaccount:{claims.namespace}:{claims.account}"
        pod = {"pod-name": [claims.pod], "pod-uid": [claims.uid]} if claims.uid else {}
        extra = {f"authentication.kubernetes.io/{key}": value for key, value in pod.items()}
        user = {"username": name, "groups": groups, "extra": extra}
        return {"authenticated": True, "audiences": audiences, "user": user}

    def _pod(self, namespace: str, bound: "_Bound") -> tuple[str, str]:
        """Name and uid of the pod that a token is asked for."""
        pod = self._store.get(PODS.key, Place(namespace, bound.name))
        if pod is None:
            raise errors.not_found("", "pods", bound.name)
        if bound.uid not in ("", pod.uid):
            raise errors.conflict("", "pods", bound.name, f"its uid is not {bound.uid}")
        return bound.name, pod.uid

    def _signature(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def _claims(self, token: str) -> _Claims | None:
        text, _, signature = token.partition(".")
        if not text or not hmac.compare_digest(signature.encode(), self._signature(text).encode()):
            return None
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=_Claims)

    def _holds(self, claims: _Claims) -> bool:
        """A token that is bound to a pod ends with the pod."""
        pod = self._store.get(PODS.key, Place(claims.namespace, claims.pod)) if claims.uid else None
        return not claims.uid or (pod is not None and pod.uid == claims.uid)


class _Bound(msgspec.Struct):
    kind: Literal["Pod"]
    name: str
    uid: str = ""


class _Request(msgspec.Struct):
    audiences: list[str] | None = None
    expirationSeconds: Annotated[int, msgspec.Meta(ge=600, le=2**32)] | None = None  # noqa: N815 - the name in the API
    boundObjectRef: _Bound | None = None  # noqa: N815


class _Review(msgspec.Struct):
    token: str = ""
    audiences: list[str] | None = None


Spec = TypeVar("Spec", _Request, _Review)


def _read(spec: Any, kind: type[Spec]) -> Spec:
    try:
        return msgspec.convert({} if spec is None else spec, kind)
    except msgspec.ValidationError as error:
        raise errors.bad_request(f"the spec cannot be read: {error}") from error
