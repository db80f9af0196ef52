"""`muster why` of a job that does not begin where it is."""

import pytest

from muster import asking
from muster.commands.arguments import named
from shared.errors import Refused
from shared.process.settings import Settings
from tests.muster.conftest import NAME, Site


async def test_why_names_the_labels_that_the_namespace_lacks(site: Site, monkeypatch: pytest.MonkeyPatch):
    async def unknown(*_: object, **__: object) -> None:
        raise Refused("the log knows no job default/resnet", reason="NotFound")

    monkeypatch.setattr(asking, "_why", unknown)
    settings = Settings(kubeconfig=site.kubeconfig)
    for name, words in ((NAME, "lacks muster.dev/jobs=enabled"), ("another", "knows no job")):
        with pytest.raises(Refused, match=words):
            await asking.why(named(name), "", "default", settings, uid="", as_json=False)
