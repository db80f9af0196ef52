"""`muster ui` in a real browser: its views, hostile words, and how fast it is with much to show."""

import os
import shutil
import sys
import threading
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from muster.page import docs
from muster.page.drawing import Drawing, drawn, written
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.status import JobFailed
from shared.job.events.watcher import CheckpointTaken, ProgressReported
from shared.job.naming import Uid
from shared.runtime.appends import stamp
from shared.telling.reading import event_of
from shared.telling.targets import parse_target
from tests.docs import site
from tests.kit.builders import a_created_job, a_running_job, a_spec, observed, pods, with_devices, worker
from tests.muster.test_why import a_restarted_job, a_scaled_job
from tests.page.browser import PROGRAM, Tab, opened
from tests.page.conftest import Memory

pytestmark = [
    pytest.mark.page,
    pytest.mark.skipif(not PROGRAM, reason="no Chromium is installed (apt-get install chromium)"),
]
RECORDED = Path(__file__).parent / "digits.jsonl"
"""The demo's job, which a person scaled and took a worker from: what `muster history --json` printed."""
PICTURE = Path(__file__).parents[2] / "docs" / "timeline.svg"
RESNET = "jobs/team-a/trainingjob/resnet"
HOSTILE = "<img src=x onerror=window.owned=1></script><script>window.owned=1</script>"
DRAWN = "document.querySelectorAll('.chain li').length > 0"
ROWS = "document.querySelectorAll('tr[aria-rowindex]').length > 0"
FRAMES = """(async () => {
  window.paints = 0;
  const { prototype } = CanvasRenderingContext2D, clear = prototype.clearRect;
  prototype.clearRect = function (...of) {
    if (this.canvas.className === 'lanes') paints++;
    return clear.apply(this, of);
  };
  const plot = document.querySelector('.plot'), box = plot.getBoundingClientRect();
  const frame = () => new Promise(requestAnimationFrame);
  const wheel = (deltaY) => plot.dispatchEvent(new WheelEvent('wheel', { deltaY, ctrlKey: true,
    clientX: box.left + box.width / 2, clientY: box.top + 300, cancelable: true, bubbles: true }));
  const began = performance.now();
  for (let turn = 0; turn < 60; turn++) { wheel(turn < 40 ? -60 : 60); await frame(); }
  const each = paints, seconds = (performance.now() - began) / 1000;
  for (let turn = 0; turn < 600; turn++) wheel(turn % 2 ? 60 : -60);
  await frame();
  await frame();
  return [each, paints - each, seconds];
})()"""
SCROLLED = """(async () => {
  const rows = document.querySelector('.rows'), seen = new Set();
  let most = 0;
  for (let turn = 0; turn < 60; turn++) {
    rows.scrollTop = turn / 59 * rows.scrollHeight;
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    for (const row of rows.querySelectorAll('tr[aria-rowindex]')) seen.add(row.ariaRowIndex);
    most = Math.max(most, rows.querySelectorAll('tr').length);
  }
  return [seen.has('2'), seen.has('10003'), most];
})()"""
HOVERED = """(() => {
  const head = document.querySelector('canvas.head').getBoundingClientRect(), seen = new Set();
  const tip = document.querySelector('.tip');
  for (let clientX = head.left + 132; clientX < head.right; clientX += 2) {
    tip.parentElement.dispatchEvent(new PointerEvent('pointermove', { clientX, clientY: head.bottom - 8 }));
    if (!tip.hidden) seen.add(tip.firstChild.textContent);
  }
  return [...seen];
})()"""
COMPARED = """async (...both) => {
  const [one, other] = await Promise.all(both.map(async (each) => {
    const image = new Image();
    image.src = `data:image/png;base64,${each}`;
    await image.decode();
    const { width, height } = image, [across, down] = [width, height].map((size) => Math.ceil(size / 4));
    const canvas = Object.assign(document.createElement('canvas'), { width: across, height: down });
    const context = canvas.getContext('2d', { willReadFrequently: true });
    context.imageSmoothingQuality = 'high';
    context.drawImage(image, 0, 0, across, down);
    return { size: [width, height], data: context.getImageData(0, 0, across, down).data };
  }));
  let differing = 0;
  for (let at = 0; at < one.data.length; at += 4)
    if ([0, 1, 2].some((of) => Math.abs(one.data[at + of] - other.data[at + of]) > 40)) differing++;
  return [[one.size, other.size], 4 * differing / one.data.length];
}"""
"""The sizes of two pictures, and the part of squares of four pixels, which edges of letters hardly change, of another
colour."""
MOST_DIFFERING = 0.003
WIDTHS = """(context => ['system-ui', '"DejaVu Sans"'].map((font) => {
  context.font = `14px ${font}`;
  return context.measureText('Muster, 0123 ww').width;
}))(document.createElement('canvas').getContext('2d'))"""
SETTLED = "new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 200))"
"""Once all that follows from a change of size is drawn."""
NAMES = "[...document.querySelectorAll('td a')].map((each) => each.textContent).join()"
VIEWS = (("", ROWS), ("fleet", "!!document.querySelector('.holds section')"), (RESNET, DRAWN))
AXE = Path(sys.prefix) / "axe" / "axe_playwright_python" / "axe.min.js"
"""The script of axe-core, which is no part of this project."""
needs_axe = pytest.mark.skipif(not AXE.exists(), reason="no axe-core is installed (make test-page)")


def button(words: str) -> str:
    return f"[...document.querySelectorAll('button')].find((each) => each.textContent === {words!r})"


@pytest_asyncio.fixture
async def tab() -> AsyncIterator[Tab]:
    async with opened() as found:
        yield found
        assert found.complaints == []


async def test_a_job_is_listed_drawn_explained_and_goes_on(tab: Tab, address: str, memory: Memory):
    memory.add("resnet", *a_scaled_job())
    await tab.go(address)
    await tab.until(ROWS)
    await tab.run("document.querySelector('td a').click()")
    await tab.until(DRAWN)
    assert await tab.run("document.querySelector('.heading').textContent.startsWith('trainingjob/resnet (uid-resnet)')")
    # A click on a lane: its causes, its address, and the state then.
    box = await tab.run(
        "(b => [b.left, b.top, b.width])(document.querySelector('canvas.lanes').getBoundingClientRect())"
    )
    await tab.click(box[0] + box[2] * 0.97, box[1] + 80)
    await tab.until("document.querySelector('[aria-current=true] b')?.textContent")
    await tab.until("document.querySelector('.then pre').textContent.includes('conditions')")
    at = await tab.run("new URLSearchParams(location.search).get('at')")
    # The same view from its address alone, also once there are later events.
    kept = await tab.run("location.href")
    memory.add("resnet", JobFailed(reason="Crash", message="too hot"))
    await tab.until("document.querySelector('.heading').textContent.includes('Failed')")
    await tab.go("about:blank")
    await tab.go(kept)
    await tab.until("document.querySelector('[aria-current=true] b')?.textContent")
    assert await tab.run("new URLSearchParams(location.search).get('at')") == at


async def test_a_long_history_goes_on_with_what_is_new(tab: Tab, address: str, memory: Memory):
    memory.add("resnet", *a_running_job(2), *(pods(worker(1, version=100 + each)) for each in range(3000)))
    count = len(memory.logs["resnet"])
    shown = "document.querySelector('.moment').textContent"
    await tab.go(address + RESNET)
    await tab.until(f"{DRAWN} && {shown}.startsWith('{count} of {count} ')")
    memory.add("resnet", JobFailed(reason="Crash", message="too hot"))
    await tab.until(f"{shown}.startsWith('{count + 1} of {count + 1} ')")
    assert await tab.run(f"{shown}.includes('too hot')")
    asked = "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/resnet?'))"
    first, *_, last = await tab.run(f"{asked}.map(({{ decodedBodySize }}) => decodedBodySize)")
    assert first > 300_000
    assert last < 10_000
    # It is what a browser shows that loads all of it.
    texts = (
        "['.heading', '.graph', '.legend', '.moment', 'table'].map((each) => document.querySelector(each).textContent)"
    )
    went_on = await tab.run(texts)
    await tab.go("about:blank")
    await tab.go(address + RESNET)
    await tab.until(f"{DRAWN} && {shown}.startsWith('{count + 1} of ')")
    assert await tab.run(texts) == went_on


async def test_the_first_change_does_not_wait_as_long_as_the_first_drawing_took(
    tab: Tab, address: str, memory: Memory, monkeypatch: pytest.MonkeyPatch
):
    memory.add("resnet", *a_running_job(2))
    slow = [2.0]

    def first_is_slow(*of: Any, **more: Any) -> Drawing:
        time.sleep(slow.pop() if slow else 0)
        return drawn(*of, **more)

    monkeypatch.setattr("muster.page.following.drawn", first_is_slow)
    await tab.go(address + RESNET)
    await tab.until(DRAWN)
    memory.add("resnet", JobFailed(reason="Crash", message="too hot"))
    await tab.until("document.querySelector('.heading').textContent.includes('Failed')")
    asked = "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/resnet?'))"
    times = "({ startTime, responseEnd }) => [startTime, responseEnd]"
    (began, first), (second, _), *_ = await tab.run(f"{asked}.map({times})")
    assert second - first < 2 * (first - began)


async def test_keys_alone_reach_an_event_and_zoom(tab: Tab, address: str, memory: Memory):
    memory.add("resnet", *a_restarted_job())
    await tab.go(address + RESNET)
    await tab.until(DRAWN)
    await tab.run("document.querySelector('.plot').focus()")
    for key in ("+", "ArrowLeft", "ArrowDown", "Enter"):
        await tab.key(key)
    assert "worker 0" in await tab.until("document.querySelector('.said').textContent")
    await tab.until("new URLSearchParams(location.search).get('from')")
    assert await tab.run("!!document.querySelector('[aria-current=true]')")


async def test_jobs_are_filtered_and_sorted_and_the_address_keeps_both(tab: Tab, address: str, memory: Memory):
    for name, story in (("resnet", a_running_job(2)), ("bert", a_running_job(3)), ("gpt", a_running_job(4))):
        memory.add(name, *story)
    memory.add("bart", *a_running_job(1), JobFailed(reason="Crash", message="too hot"))
    await tab.go(address)
    await tab.until(f"{NAMES} === 'bart,bert,gpt,resnet'")
    await tab.run(f"{button('Job')}.click()")
    await tab.run(f"{button('Job')}.click()")
    await tab.until(f"{NAMES} === 'resnet,gpt,bert,bart'")
    await tab.run("document.querySelector('input[type=search]').focus()")
    for key in "rt":
        await tab.key(key)
    await tab.until(f"{NAMES} === 'bert,bart'")
    await tab.run(f"{button('Failed 1')}.click()")
    await tab.until(f"{NAMES} === 'bart'")
    kept = await tab.run("location.href")
    await tab.go("about:blank")
    await tab.go(kept)
    await tab.until(f"{NAMES} === 'bart'")
    await tab.run(f"{button('Failed 1')}.click()")
    await tab.until(f"{NAMES} === 'bert,bart'")


async def test_the_fleet_tells_who_holds_pods_and_who_waits(tab: Tab, address: str, memory: Memory):
    on_nodes = pods(*(worker(index, version=80, node="n-1") for index in range(2)))
    memory.add("resnet", *with_devices(a_running_job(2), 8), on_nodes)
    memory.add("bert", *with_devices(a_created_job(9), 4), namespace="team-b")
    memory.add("over", *a_running_job(1), JobFailed(reason="Crash"))
    await tab.go(f"{address}fleet")
    await tab.until("document.querySelector('.count').textContent.startsWith('2 jobs: ')")
    held = await tab.run("[...document.querySelectorAll('.holds section')].map((each) => each.textContent)")
    assert [each.partition(" ")[0] for each in held] == ["team-b", "team-a"]
    assert "3 of 3 pods Ready, 1 job, 16 of 16 nvidia.com/gpu held" in held[1]
    assert "0 of 9 pods Ready, 1 job, 0 of 36 nvidia.com/gpu held" in held[0]
    assert (await tab.run("document.querySelector('.count').textContent")).endswith(
        "wanted, 16 of 52 nvidia.com/gpu held"
    )
    assert await tab.run(NAMES) == "team-b/bert"
    assert (await tab.run("document.querySelector('tbody td:last-child').textContent")).endswith("; 36 nvidia.com/gpu")


async def test_the_slider_shows_the_state_at_an_event(tab: Tab, address: str, memory: Memory):
    memory.add("resnet", *a_running_job(2), JobFailed(reason="Crash", message="too hot"))
    await tab.go(address + RESNET)
    await tab.until(DRAWN)
    slider = "document.querySelector('input[type=range]')"
    await tab.run(f"{slider}.focus()")
    for _ in range(2):
        await tab.key("ArrowLeft")
    last = await tab.run(f"Number({slider}.max)")
    await tab.until(f"document.querySelector('.moment').textContent.startsWith('{last - 1} of {last + 1} ')")
    # What it shows of the moment before stands there until the answer comes.
    of_then = "(words => words.includes('conditions') && !words.includes('too hot'))"
    await tab.until(f"{of_then}(document.querySelector('.then').textContent)")
    await tab.run(f"{button('Now')}.click()")
    await tab.until("document.querySelector('.then').textContent.includes('too hot')")


async def test_hostile_words_are_words(tab: Tab, address: str, memory: Memory):
    memory.add("resnet", *a_running_job(2), JobFailed(reason="Crash", message=HOSTILE))
    for path in ("", "fleet", RESNET):
        await tab.go(address + path)
        if path != "fleet":
            await tab.until(f"document.body.textContent.includes({HOSTILE[:20]!r})")
        assert await tab.run("[window.owned, document.querySelectorAll('main img').length]") == [None, 0]
    assert HOSTILE.partition(">")[0].replace("<", "&lt;") in await tab.run("document.body.innerHTML")


async def test_a_drawing_is_saved_as_svg_and_in_a_file_of_its_own(tab: Tab, memory: Memory, tmp_path: Path):
    memory.add("resnet", *a_restarted_job())
    log = memory.logs["resnet"]
    path = tmp_path / "resnet.html"
    path.write_text(written(drawn(log, parse_target("resnet"), BUILT_IN, until=log[-1].time)))
    await tab.send("Network.enable")
    await tab.send(
        "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0
    )
    await tab.go(path.as_uri())
    await tab.until(DRAWN)
    # What the buttons save: the blobs of the links that they click.
    await tab.run("window.saved = []; URL.createObjectURL = (blob) => (saved.push(blob), '#'); 0")
    await tab.run("[...document.querySelectorAll('.downloads button')].forEach((each) => each.click())")
    await tab.until("saved.length == 2")
    assert await tab.run("Promise.all(saved.map(async (each) => [each.type, each.size > 2000]))") == [
        ["image/svg+xml", True],
        ["image/png", True],
    ]
    svg = await tab.run("saved[0].text()")
    assert [svg.count(f">worker {index}<") for index in range(2)] == [1, 1]
    assert "attempt 2" in svg


async def test_steps_and_loss_are_curves_of_what_the_training_said(tab: Tab, address: str, memory: Memory):
    said = [
        ProgressReported(pod=Uid("pod-0"), attempt=0, step=step, total=99, metrics=(("lr", "0.1"), ("loss", loss)))
        for step, loss in ((10, "0.75"), (20, "0.5"), (30, "nan"), (40, "0.25"))
    ]
    memory.add("resnet", *a_running_job(2), *said)
    await tab.go(address + RESNET)
    await tab.until(DRAWN)
    # That it advances is no warning.
    assert "at step 40" in await tab.run("document.querySelector('.heading').textContent")
    assert await tab.run("document.querySelectorAll('.heading .warning').length") == 0
    await tab.run("window.saved = []; URL.createObjectURL = (blob) => (saved.push(blob), '#'); 0")
    await tab.run("document.querySelector('.downloads button').click()")
    svg = await tab.run("saved[0].text()")
    # The newest values stand beside the curves; what is no number is no point.
    assert [svg.count(words) for words in (">step 40<", ">loss 0.25<", "NaN")] == [1, 1, 0]


async def test_versions_of_the_group_and_checkpoints_are_marks_in_a_row(tab: Tab, address: str, memory: Memory):
    checkpoint = CheckpointTaken(step=20, pod=Uid("pod-0"), source="Report")
    memory.add("resnet", *a_running_job(2), checkpoint, *[observed(a_spec(2))] * 20)
    await tab.go(address + RESNET)
    await tab.until(DRAWN)
    said = await tab.run(HOVERED)
    assert "a checkpoint of step 20 was taken" in said
    assert any("version" in words for words in said), said
    await tab.run("window.saved = []; URL.createObjectURL = (blob) => (saved.push(blob), '#'); 0")
    await tab.run("document.querySelector('.downloads button').click()")
    assert ">hosts, checkpoints<" in await tab.run("saved[0].text()")


@pytest_asyncio.fixture
async def recorded(tab: Tab, tmp_path: Path) -> None:
    """The tab shows the recorded job."""
    log = [event_of(line) for line in RECORDED.read_bytes().splitlines()]
    path = tmp_path / "digits.html"
    path.write_text(written(drawn(log, parse_target("digits"), BUILT_IN, until=log[-1].time)))
    await tab.size(940, 700)
    await tab.go(path.as_uri())
    await tab.until(DRAWN)


@pytest.mark.usefixtures("recorded")
async def test_the_timeline_in_the_documentation_is_what_the_page_draws_of_a_recorded_job(tab: Tab):
    await tab.run("window.saved = []; URL.createObjectURL = (blob) => (saved.push(blob), '#'); 0")
    await tab.run("document.querySelector('.downloads button').click()")
    svg = await tab.run("saved[0].text()") + "\n"
    if os.environ.get("REWRITE_GOLDEN"):
        PICTURE.write_text(svg)
    assert svg == PICTURE.read_text()


@pytest.mark.usefixtures("recorded")
async def test_the_pictures_in_the_documentation_are_what_the_page_shows(
    tab: Tab, address: str, memory: Memory, tmp_path: Path
):
    own, of_pictures = await tab.run(WIDTHS)
    if own != of_pictures:
        pytest.skip("the pictures were taken where the font is DejaVu Sans")
    stored, taken = PICTURE.parent / "pictures", tmp_path
    await screenshots(tab, address, memory, taken)
    await tab.go("about:blank")
    for name in ("page-job.png", "page-jobs.png"):
        if os.environ.get("REWRITE_GOLDEN"):
            shutil.copy(taken / name, stored)
        one, other = (b64encode((folder / name).read_bytes()).decode() for folder in (stored, taken))
        (size, now), differing = await tab.run(f"({COMPARED})({one!r}, {other!r})")
        print(f"\n{name}: {differing:.3%} differ")
        assert size == now, name
        assert differing < MOST_DIFFERING, f"{name}: {differing:.1%} differ; take it again with REWRITE_GOLDEN=1"


async def screenshots(tab: Tab, address: str, memory: Memory, folder: Path) -> None:
    """Those of the documentation: the open timeline with the causes of a scaling, and jobs on a dark screen."""
    await tab.size(1180, 960)
    await tab.run(SETTLED)
    box = await tab.run(
        "(b => [b.left, b.top, b.width])(document.querySelector('canvas.lanes').getBoundingClientRect())"
    )
    await tab.click(box[0] + box[2] * 0.62, box[1] + 80)
    await tab.until("document.querySelector('[aria-current=true] b')?.textContent")
    await tab.run(SETTLED)
    await tab.picture(folder / "page-job.png")
    for name, story in (("resnet", a_restarted_job()), ("bert", a_scaled_job()), ("gpt", a_running_job(16))):
        memory.add(name, *story)
    memory.add("mnist", *a_running_job(2), JobFailed(reason="Crash", message="the loss is not a number"))
    await tab.dark(True)
    await tab.size(1180, 330)
    await tab.go(address)
    await tab.until("document.querySelector('.count').textContent === '4 of 4 jobs'")
    await tab.run(SETTLED)
    await tab.picture(folder / "page-jobs.png")


async def test_5000_lanes_are_drawn_once_a_frame_zoomed_and_scrolled(tab: Tab, address: str, memory: Memory):
    memory.add("large", *a_running_job(5000), *(pods(worker(index, version=90, ready=False)) for index in range(50)))
    await tab.go(address + RESNET.replace("resnet", "large"))
    await tab.until(DRAWN)
    whole = await tab.run("document.querySelectorAll('*').length")
    paints, of_600_turns, seconds = await tab.run(FRAMES)
    print(f"\n5,000 lanes: zoomed with {paints / seconds:.0f} frames/s")
    # A job that runs is drawn once a second, too.
    assert 60 <= paints <= 61 + seconds
    assert of_600_turns <= 4
    await tab.until("new URLSearchParams(location.search).get('from')")
    for _ in range(16):
        await tab.run("document.querySelector('[aria-label=\"Higher lanes\"]').click()")
    await tab.run("(box => { box.scrollTop = box.scrollHeight })(document.querySelector('.timeline .scroll'))")
    await tab.until("(box => box.scrollTop > 50000)(document.querySelector('.timeline .scroll'))")
    await tab.run("[...document.querySelectorAll('.tools button')].find((each) => each.textContent === 'All').click()")
    x, y = await tab.run(
        "(b => [b.left + b.width * 0.9, b.bottom - 6])(document.querySelector('canvas.lanes').getBoundingClientRect())"
    )
    await tab.mouse("mouseMoved", x, y)
    assert "worker 4999 trained" in await tab.until("document.querySelector('.tip').textContent")
    assert await tab.run("document.querySelector('canvas.lanes').height <= innerHeight")
    assert await tab.run("document.querySelectorAll('*').length") < whole + 50


async def test_10000_jobs_are_a_table_of_those_in_sight(tab: Tab, address: str, memory: Memory):
    memory.add("resnet", *a_running_job(2))
    for number in range(10_001):
        memory.rows[str(number)] = msgspec.structs.replace(memory.rows["resnet"], name=f"job-{number}", uid=str(number))
    await tab.go(address)
    await tab.until("document.querySelector('.count').textContent.includes('of 10002')")
    first, last, most = await tab.run(SCROLLED)
    assert (first, last) == (True, True)
    assert most < 120


async def test_a_job_that_is_being_drawn_says_so(
    tab: Tab, address: str, memory: Memory, monkeypatch: pytest.MonkeyPatch
):
    memory.add("resnet", *a_running_job(2))
    goes_on = threading.Event()

    def slow(*of: Any, **more: Any) -> Drawing:
        assert goes_on.wait(60)
        return drawn(*of, **more)

    monkeypatch.setattr("muster.page.following.drawn", slow)
    await tab.send("Page.navigate", url=address + RESNET)
    count = len(memory.logs["resnet"])
    await tab.until(f"document.querySelector('.trouble')?.textContent === 'its {count} events are being drawn'")
    goes_on.set()
    await tab.until(f"{DRAWN} && document.querySelector('.trouble').textContent === ''")


async def test_a_browser_whose_clock_is_five_hours_off_tells_the_same_ages(tab: Tab, address: str, memory: Memory):
    memory.add("resnet", *a_running_job(2))
    began = stamp(datetime.now(UTC) - timedelta(minutes=90))
    memory.rows["resnet"] = msgspec.structs.replace(memory.rows["resnet"], began=began)
    for hours in (-5, 5):
        wrong = f"{{ const now = Date.now; Date.now = () => now() + {hours} * 3600e3 }}"
        await tab.send("Page.addScriptToEvaluateOnNewDocument", source=wrong)
        await tab.go(address)
        await tab.until(ROWS)
        assert await tab.run("[...document.querySelectorAll('td')].some((cell) => cell.textContent === '1h')")


async def test_a_job_that_never_held_a_place_is_shown(tab: Tab, address: str, memory: Memory):
    memory.add("resnet", observed(a_spec(2)))
    await tab.go(address + RESNET)
    await tab.until("document.querySelector('.heading')?.textContent.includes('not taken on yet')")


async def test_at_400_per_cent_a_page_is_as_wide_as_its_window(tab: Tab, address: str, memory: Memory):
    memory.add("resnet", *a_restarted_job())
    await tab.size(1280 // 4, 1024 // 4)
    for path, ready in VIEWS:
        await tab.go(address + path)
        await tab.until(ready)
        assert await tab.run("document.documentElement.scrollWidth") <= 1280 // 4, path


async def serious(tab: Tab) -> list[list[str]]:
    await tab.send("Runtime.evaluate", expression=AXE.read_text())
    found = await tab.run(
        "axe.run().then(({violations}) => violations.map(({impact, id, nodes}) => [impact, id, nodes[0].html]))"
    )
    return [each for each in found if each[0] in ("serious", "critical")]


@needs_axe
async def test_axe_finds_nothing_serious(tab: Tab, address: str, memory: Memory):
    memory.add("resnet", *a_restarted_job())
    for dark in (False, True):
        await tab.dark(dark)
        for path, ready in VIEWS:
            await tab.go(address + path)
            await tab.until(ready)
            assert await serious(tab) == [], (path, dark)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    site.build(folder / "site")
    site.pack(folder / "site", folder / "docs.zip")
    return folder / "docs.zip"


async def test_the_documentation_is_there_and_is_searched_without_another_host(
    tab: Tab, address: str, packed: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(docs, "ARCHIVE", packed)
    await tab.go(address)
    await tab.run("[...document.querySelectorAll('nav a')].find((each) => each.textContent == 'Docs').click()")
    await tab.until("location.pathname.endsWith('/docs/') && !!document.querySelector('h1#muster')")
    await tab.go(f"{address}docs/docs/reasons/")
    await tab.run("document.querySelector('.md-search__button').click()")
    # Its results stand in a tree of their own.
    tree = "[...document.body.children].find((each) => each.shadowRoot)?.shadowRoot"
    await tab.until(f"{tree}.activeElement?.tagName == 'INPUT'")
    for key in "backoff":
        await tab.key(key)
    await tab.until(
        f"[...{tree}.querySelectorAll('a')].some((each) => each.href.includes('/docs/docs/compatibility/'))"
    )


@needs_axe
async def test_axe_finds_nothing_serious_in_the_documentation(
    tab: Tab, address: str, packed: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(docs, "ARCHIVE", packed)
    for dark, scheme in ((False, "default"), (True, "slate")):
        await tab.dark(dark)
        for page in ("", *(f"docs/{name}/" for name in ("tutorial", "command-line", "comparison", "architecture"))):
            await tab.go(f"{address}docs/{page}")
            await tab.until(f"document.body.dataset.mdColorScheme == '{scheme}'")
            assert await serious(tab) == [], (page, dark)
