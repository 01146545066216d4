"""The cluster's API as the substrate uses it: objects as dictionaries, watches as iterators, failures by their names.

The official client reads the kubeconfig and keeps its credentials fresh; its typed objects are left out, since they drop
what a newer or older server has that they do not know.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

import yaml

from opsassay.core.errors import LostError, OperationError, StartError, UserError
from opsassay.core.extras import install_hint
from opsassay.testbed.substrates.kubernetes.api.kinds import FORMER, KINDS, group_in, version_in

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

FIELD_MANAGER = "kubectl"
"""Whom the server notes as the writer of our objects: nobody who looks at managedFields learns what was ours."""
CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 5.0, 30.0
WATCH_S = 300
"""How long one watch lasts; the next one goes on from where it ended."""
TRIES, FIRST_PAUSE_S = 5, 0.2
TRANSIENT = frozenset({429, 500, 502, 503, 504})
PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}

Object = dict[str, Any]


class ApiError(OperationError):
    """The API server refused or failed a request; *status* is HTTP's, *answer* the whole of what it said."""

    def __init__(self, status: int, message: str, answer: str = "") -> None:
        self.status, self.answer = status, answer
        super().__init__(message)


class DeniedError(UserError):
    """The cluster does not know this user (401) or does not let it do this (403)."""


class Api:
    """A connection to one cluster, as the user of one context of a kubeconfig."""

    def __init__(self, connected: Callable[[str | None], tuple[ApiClient, str]], context: str | None) -> None:
        """Connect by *connected*, which reads the kubeconfig and returns a client for a context, and the context."""
        self._connected = connected
        self._groups: dict[str, str] = {}
        self._client, self.context = connected(context)
        self.server: str = self._client.configuration.host

    @classmethod
    def connect(cls, kubeconfig: str | Path | None = None, context: str | None = None) -> Api:
        """Return a connection by *kubeconfig* and *context* (None: kubectl's default); raises UserError if unusable."""
        file = str(kubeconfig) if kubeconfig else None
        return cls(partial(_connected, file), context)

    def group_of(self, kind: str) -> str:
        """Return the API path of group and version for *kind*, such as "apis/apps/v1"; may ask the server."""
        (group, plural, _), former = KINDS[kind], FORMER.get(kind)
        if former is None:
            return group
        if kind not in self._groups:
            try:
                listed = self.request("GET", f"/{group}")["resources"]
            except ApiError as error:
                if error.status != 404:
                    raise
                listed = []
            self._groups[kind] = group if any(one["name"] == plural for one in listed) else former
        return self._groups[kind]

    def version_of(self, kind: str) -> str:
        """Return the apiVersion of *kind*, such as ``apps/v1`` or ``v1``."""
        return version_in(self.group_of(kind))

    def path_of(self, kind: str, namespace: str | None = None, name: str | None = None) -> str:
        """Return the API path of the object *name*, or of the collection of *kind* without a *name*."""
        _, plural, namespaced = KINDS[kind]
        inside = f"/namespaces/{namespace}" if namespaced and namespace else ""
        return f"/{self.group_of(kind)}{inside}/{plural}" + (f"/{name}" if name else "")

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = READ_TIMEOUT_S,
        tries: int = TRIES,
        raw_answer: bool = False,
    ) -> Any:
        """Send one request; return the JSON object or text of the response, or its bytes if *raw_answer*.

        A lost connection or an overloaded or starting server is retried, by default five times within about six
        seconds; a write without an answer only if repeating it changes nothing (PUT, DELETE). After a 401 the
        kubeconfig is read again for renewed credentials. Raises LostError when the server cannot be reached,
        DeniedError for 401 and 403, ApiError for other error statuses.
        """
        import urllib3

        for attempt in range(tries):
            pause = FIRST_PAUSE_S * 2**attempt * random.uniform(0.8, 1.2)  # noqa: S311
            last = attempt == tries - 1
            try:
                answer = self._send(method, path, body, query, content_type, timeout_s, headers)
                raw = answer.data
            except urllib3.exceptions.NewConnectionError as error:
                if last:
                    raise self._unreachable_error(error) from error
            except urllib3.exceptions.HTTPError as error:
                if last or method in {"POST", "PATCH"}:
                    raise self._unreachable_error(error) from error
            else:
                if answer.status < 400:
                    return raw if raw_answer else _decode_answer(answer, raw)
                if last or answer.status not in TRANSIENT or (answer.status == 500 and method in {"POST", "PATCH"}):
                    raise self._refusal_error(method, path, answer.status, raw)
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """Return the object *name* of *kind*, None when it does not exist."""
        try:
            return cast("Object", self.request("GET", self.path_of(kind, namespace, name)))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: str, namespace: str | None = None, selector: str | None = None) -> list[Object]:
        """Return the objects of *kind* in *namespace*, or in all namespaces, that match the label *selector*."""
        query = {"labelSelector": selector} if selector else None
        return cast("list[Object]", self.request("GET", self.path_of(kind, namespace), query=query)["items"])

    def create(self, manifest: Object, *, replace: bool = False) -> Object:
        """Create the object of *manifest* and return it; if it exists, raise ApiError 409, or with *replace* patch it."""
        kind, metadata = manifest["kind"], manifest["metadata"]
        namespace = metadata.get("namespace")
        try:
            return cast(
                "Object",
                self.request("POST", self.path_of(kind, namespace), manifest, query={"fieldManager": FIELD_MANAGER}),
            )
        except ApiError as error:
            if error.status != 409 or not replace:
                raise
            return self.patch(kind, metadata["name"], manifest, namespace)

    def try_out(self, manifest: Object) -> str | None:
        """Return why the server refuses to create *manifest* in a dry run, None when it would not."""
        path = self.path_of(manifest["kind"], manifest["metadata"].get("namespace"))
        try:
            self.request("POST", path, manifest, query={"fieldManager": FIELD_MANAGER, "dryRun": "All"})
        except (ApiError, DeniedError) as error:
            return str(error)
        return None

    def allows(self, verb: str, kind: str, namespace: str) -> bool:
        """Return whether this user may do *verb* (get, create, ...) with objects of *kind* in *namespace*."""
        group, plural, _ = KINDS[kind]
        about = {"namespace": namespace, "verb": verb, "resource": plural, "group": group_in(group)}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = self.request("POST", path, {**review, "spec": {"resourceAttributes": about}})
        return bool(answer["status"]["allowed"])

    def patch(
        self, kind: str, name: str, change: Any, namespace: str | None = None, *, patch_type: str = "strategic"
    ) -> Object:
        """Patch the object *name* of *kind* with *change*; return it; *patch_type* is merge, strategic or json."""
        return cast(
            "Object",
            self.request(
                "PATCH",
                self.path_of(kind, namespace, name),
                change,
                query={"fieldManager": FIELD_MANAGER},
                content_type=PATCH_TYPES[patch_type],
            ),
        )

    def replace(self, item: Object) -> Object:
        """Replace an object by *item* and return it; raises ApiError 409 if the server has another resourceVersion."""
        metadata = item["metadata"]
        path = self.path_of(item["kind"], metadata.get("namespace"), metadata["name"])
        return cast("Object", self.request("PUT", path, item, query={"fieldManager": FIELD_MANAGER}))

    def delete(self, kind: str, name: str, namespace: str | None = None) -> bool:
        """Delete the object *name* of *kind*; return False if there is none."""
        try:
            self.request("DELETE", self.path_of(kind, namespace, name), query={"propagationPolicy": "Background"})
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def end_pods(self, namespace: str, grace_s: int) -> None:
        """Delete all pods of *namespace* with at most *grace_s* seconds of grace; raises errors as `request`."""
        self.request("DELETE", self.path_of("Pod", namespace), query={"gracePeriodSeconds": str(grace_s)})

    def watch(
        self, kind: str, version: str, namespace: str | None = None, on_start: Callable[[], None] = lambda: None
    ) -> Iterator[Object]:
        """Yield the watch events of *kind* after resource *version* until the server ends it; raises as `request`.

        *on_start* is called when the server has accepted the watch, which may be long before the first event.
        """
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": WATCH_S}
        for line in self.lines(self.path_of(kind, namespace), query, on_start):
            yield json.loads(line)

    def lines(
        self, path: str, query: Mapping[str, Any], on_start: Callable[[], None] = lambda: None
    ) -> Iterator[bytes]:
        """Yield the lines of the answer to a GET of *path* as they come; *on_start* and errors are as of `watch`."""
        import urllib3

        answer = None
        try:
            answer = self._send("GET", path, None, query, "application/json", WATCH_S + 10)
            if answer.status >= 400:
                raise self._refusal_error("GET", path, answer.status, answer.data)
            on_start()
            pending = b""
            for chunk in answer.stream(65536):
                *lines, pending = (pending + chunk).split(b"\n")
                yield from lines
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable_error(error) from error
        finally:
            if answer is not None:
                answer.close()

    @property
    def verifies(self) -> bool:
        """Whether the server's certificate is verified."""
        return bool(self._client.configuration.verify_ssl)

    def authority(self) -> bytes | None:
        """Return the certificate authority (PEM) of the kubeconfig, None without one or without verification."""
        path = self._client.configuration.ssl_ca_cert
        return Path(path).read_bytes() if path and self.verifies else None

    def answers(self, timeout_s: float) -> bool:
        """Return whether the server sends any response within *timeout_s*; it is asked once."""
        try:
            self.request("GET", "/readyz", timeout_s=timeout_s, tries=1)
        except LostError:
            return False
        except (ApiError, DeniedError):
            return True
        return True

    def require(self) -> str:
        """Return the server's version; raises StartError when it is not ready, other errors as `request`."""
        version = self.request("GET", "/version")["gitVersion"]
        try:
            self.request("GET", "/readyz")
        except ApiError as error:
            raise StartError(f"The API server of {self.context} is not ready: {error}") from error
        return str(version)

    def _send(self, *request: Any) -> Any:
        """Send a request and return the response; once more if that is 401 and the kubeconfig has new credentials."""
        refused = self._credentials()
        answer = self._send_once(*request)
        if answer.status != 401 or not self._renewed(refused):
            return answer
        answer.close()
        return self._send_once(*request)

    def _credentials(self) -> dict[str, Any]:
        """Return the present credentials: {header: value}, and "certificate": its two files."""
        configuration = self._client.configuration
        headers = {one["key"]: one["value"] for one in configuration.auth_settings().values()}
        return {**headers, "certificate": (configuration.cert_file, configuration.key_file)}

    def _renewed(self, former: Mapping[str, Any]) -> bool:
        """Read the kubeconfig again if needed; return whether its credentials differ from *former*."""
        if self._credentials() == former:
            with suppress(UserError):  # whoever logs in may have written half of it: then these are refused
                self._client, _ = self._connected(self.context)
        return self._credentials() != former

    def _send_once(
        self,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, Any] | None,
        content_type: str,
        timeout_s: float,
        extra_headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send one request, without a retry; return the urllib3 response, body unread; *extra_headers* are added."""
        import urllib3

        configuration = self._client.configuration
        headers = {"Accept": "application/json", "User-Agent": "kubectl", **(extra_headers or {})}
        for credential in configuration.auth_settings().values():
            headers[credential["key"]] = credential["value"]
        if body is not None:
            headers["Content-Type"] = content_type
        return self._client.rest_client.pool_manager.request(
            method,
            self.server + path + (f"?{urlencode(query)}" if query else ""),
            body=None if body is None else json.dumps(body),
            headers=headers,
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=timeout_s),
            preload_content=False,
            retries=False,
        )

    def _unreachable_error(self, error: Exception) -> LostError:
        """Return the LostError for *error*: the API server cannot be reached."""
        return LostError(f"The API server of {self.context} ({self.server}) cannot be reached: {error}.")

    def _refusal_error(self, method: str, path: str, status: int, raw: bytes) -> ApiError | DeniedError:
        """Return the error for the answer *raw* with an error *status*: DeniedError for 401 and 403, else ApiError."""
        try:
            message = json.loads(raw)["message"]
        except (ValueError, KeyError, TypeError):
            message = raw.decode(errors="replace").strip()[:300]
        if status == 401:
            return DeniedError(
                f"The cluster {self.context} does not accept these credentials; they may have expired: log in again."
            )
        if status == 403:
            return DeniedError(
                f"The cluster {self.context} does not allow this ({message}); ask for the right, or use another context."
            )
        return ApiError(status, f"{method} {path} was answered with {status}: {message}", raw.decode(errors="replace"))


def _connected(file: str | None, context: str | None) -> tuple[ApiClient, str]:
    """Return (client, context name) for *context* of the kubeconfig *file*; raises UserError when it is unusable."""
    try:
        from kubernetes import config
    except ImportError as error:
        raise UserError(f"Kubernetes needs its client; {install_hint('kubernetes')}.") from error
    try:
        _, active = config.list_kube_config_contexts(file)  # type: ignore[no-untyped-call]
        chosen = context or active["name"]
        return config.new_client_from_config(config_file=file, context=chosen), chosen  # type: ignore[no-untyped-call]
    except (
        config.ConfigException,
        OSError,
        yaml.YAMLError,
        AttributeError,
        TypeError,
    ) as error:  # the last two: no mapping
        where, why = file or "the default kubeconfig", " ".join(str(error).split()).rstrip(".")
        raise UserError(f"{where} cannot be used: {why}; set KUBECONFIG to another one.") from error


def _decode_answer(answer: Any, raw: bytes) -> Any:
    """Return *raw* parsed as JSON if the content type of *answer* is JSON, else as text."""
    if "json" in (answer.headers.get("Content-Type") or ""):
        return json.loads(raw)
    return raw.decode(errors="replace")
