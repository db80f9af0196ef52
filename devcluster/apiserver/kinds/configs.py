"""ConfigMaps and Secrets: keys, size and immutability."""

import base64
import re

from devcluster.apiserver.errors import Cause, Json, forbidden_field, invalid_value, too_long
from devcluster.apiserver.kinds.rules import Rules
from devcluster.apiserver.shapes import ConfigMap, Secret

SIZE_LIMIT = 1024 * 1024
KEY = re.compile(r"[-._a-zA-Z0-9]+")
KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME', "
    " or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def _fill_config_map(config: Json, old: Json | None) -> None:
    for field in ("data", "binaryData"):
        if not config.get(field):
            config.pop(field, None)


def _wrong_config_map(config: Json, old: Json | None) -> list[Cause]:
    data, binary = config.get("data") or {}, config.get("binaryData") or {}
    causes = _wrong_keys({**data, **binary})
    causes += [
        invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData") for key in data if key in binary
    ]
    size = sum(len(value.encode()) for value in data.values()) + _decoded_size(binary)
    if size > SIZE_LIMIT:
        causes.append(too_long("", SIZE_LIMIT))
    return causes + _wrong_change(config, old, ("data", "binaryData"))


def _wrong_secret(secret: Json, old: Json | None) -> list[Cause]:
    data = secret.get("data") or {}
    causes = _wrong_keys(data)
    if _decoded_size(data) > SIZE_LIMIT:
        causes.append(too_long("data", SIZE_LIMIT))
    if old is not None and secret.get("type") != old.get("type"):
        causes.append(invalid_value("type", secret.get("type"), "field is immutable"))
    return causes + _wrong_change(secret, old, ("data",))


def _fill_secret(secret: Json, old: Json | None) -> None:
    plain = secret.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        secret["data"] = (secret.get("data") or {}) | encoded
    if not secret.get("data"):
        secret.pop("data", None)
    secret["type"] = secret.get("type") or "Opaque"


def _wrong_keys(data: Json) -> list[Cause]:
    return [invalid_value(f"data[{key}]", key, wrong) for key in data if (wrong := _wrong_key(key))]


def _wrong_key(key: str) -> str:
    if len(key) > 253:
        return "must be no more than 253 characters"
    if not KEY.fullmatch(key):
        return KEY_RULE
    if key in (".", ".."):
        return f"must not be '{key}'"
    return "must not start with '..'" if key.startswith("..") else ""


def _decoded_size(data: Json) -> int:
    return sum(len(base64.b64decode(value)) for value in data.values())


def _wrong_change(obj: Json, old: Json | None, fields: tuple[str, ...]) -> list[Cause]:
    if old is None or not old.get("immutable"):
        return []
    changed = ["immutable"] if not obj.get("immutable") else []
    changed += [field for field in fields if (obj.get(field) or {}) != (old.get(field) or {})]
    return [forbidden_field(field, "field is immutable when `immutable` is set") for field in changed]


CONFIG_MAP_RULES = Rules(shape=ConfigMap, fill=_fill_config_map, wrong=_wrong_config_map)
SECRET_RULES = Rules(shape=Secret, fill=_fill_secret, wrong=_wrong_secret)
