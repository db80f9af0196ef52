"""`muster report --html`: a file whose policy lets run its own script alone, whatever the events say."""

import re
from base64 import b64encode
from hashlib import sha256

from muster.page.drawing import drawn, written
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.status import JobFailed, JobSealed
from shared.job.events.watcher import JobGone
from shared.job.fold import History
from shared.telling.targets import parse_target
from tests.kit.builders import a_running_job
from tests.kit.histories import KEY, stored


def test_the_policy_names_the_scripts_of_the_file_and_words_end_no_element():
    history, log = History(KEY), []
    for event in [*a_running_job(2), JobFailed(reason="Crash", message="</script><script>alert(1)</script>")]:
        log.append(stored(history, event))
        history.fold(log[-1])
    text = written(drawn(log, parse_target("resnet"), BUILT_IN, until=log[-1].time))
    scripts = re.findall(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    assert text.count("<script") == 2
    assert len(scripts) == 1
    digest = b64encode(sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")


def test_a_sealed_job_is_drawn_as_it_was():
    history, log = History(KEY), []
    for event in [*a_running_job(2), JobFailed(reason="Crash"), JobGone(version=3)]:
        log.append(stored(history, event))
        history.fold(log[-1])
    last, digest = history.sequence, history.digest.hex()
    seal = JobSealed(first=1, last=last, count=len(log), hash=digest, outcome="Failed", reason="Crash")
    log.append(stored(history, seal))
    drawing = drawn(log, parse_target("resnet"), BUILT_IN, until=log[-1].time)
    assert drawing.report.job.gone
    assert [lane.role for lane in drawing.report.places] == ["launcher", "worker", "worker"]
    assert drawing.links[drawing.events[-1]].type == "JobSealed"
