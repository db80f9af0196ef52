"""What a set-up does about an installed definition, as an API server hands it out."""

import msgspec

from muster.crds import manifests
from muster.definitions import step
from shared.cluster.objects import Custom
from shared.frameworks.kinds import BUILT_IN


def test_a_definition_with_managed_fields_is_compared_like_any_other():
    ours = next(iter(manifests(BUILT_IN)))
    managed = [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:group": {}}}}]
    installed = ours | {"metadata": {**ours["metadata"], "managedFields": managed}}
    found = msgspec.json.decode(msgspec.json.encode(installed), type=Custom)
    assert step(found, ours, take=False).word == "unchanged"
