// The views of the page: jobs, one job, fleet.  Each is an address of its own, and what one looks at is in it.

import { el, JobView, Rows } from "./draw.js";

const { view, root, now: loaded } = document.documentElement.dataset;
/** What the clock of the browser lacks of the server's, in milliseconds. */
const behind = Date.parse(loaded) - Date.now();
const main = document.getElementById("main");
const trouble = el("p", { class: "trouble", role: "status" });
main.replaceChildren(trouble);

const query = new URLSearchParams(location.search);
const remember = (values) => {
  for (const [name, value] of Object.entries(values)) value ? query.set(name, value) : query.delete(name);
  const words = query.toString();
  history.replaceState(null, "", words ? `?${words}` : location.pathname);
};
const path = (row) => [row.namespace, row.called, row.name].map(encodeURIComponent).join("/");

/** Server-sent events, for ever: a browser tries again by itself only while the server is there. */
function follow(address, told) {
  const stream = new EventSource(address);
  let refused;
  stream.onmessage = ({ data }) => { const news = JSON.parse(data); refused = news.trouble; told(news); };
  stream.onerror = () => {
    told({ trouble: refused || "this page's server does not answer, or refuses; what follows is what was known" });
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => follow(address, told), 2000);
  };
}
const say = (words) => { trouble.textContent = words ?? ""; };

/** All jobs that the person may see, by uid; `changed` is called at most once a frame. */
function jobs(changed) {
  const rows = new Map();
  let due = false;
  follow(`${root}/api/jobs`, (news) => {
    say(news.trouble);
    for (const row of news.rows ?? []) rows.set(row.uid, row);
    if (!due) requestAnimationFrame(() => { due = false; changed([...rows.values()]); });
    due = true;
  });
}

const age = (began, now) => {
  const seconds = Math.max((now - Date.parse(began)) / 1000, 0);
  const [unit, length] = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]].find(([, each]) => seconds >= each) ?? ["s", 1];
  return began ? `${Math.floor(seconds / length)}${unit}` : "";
};
const COLUMNS = [
  { name: "Namespace", width: "m", key: (row) => row.namespace }, { name: "Job", width: "l", key: (row) => row.name },
  { name: "Phase", width: "p", key: (row) => row.phase }, { name: "Kind", width: "m", key: (row) => row.called },
  { name: "Ready", width: "s", key: (row) => row.ready }, { name: "Restarts", width: "s", key: (row) => row.restarts },
  { name: "Age", width: "s", key: (row) => -Date.parse(row.began) || 0 }, { name: "Note", key: (row) => row.note },
];

function showJobs() {
  const words = el("input", { type: "search", placeholder: "Filter by name, namespace, kind or note", "aria-label": "Filter", value: query.get("q") ?? "", oninput: () => { remember({ q: words.value }); show(); } });
  const gone = el("input", { type: "checkbox", onchange: () => { remember({ gone: gone.checked && "1" }); show(); } });
  gone.checked = query.has("gone");
  const phases = el("div", { class: "chips", role: "group", "aria-label": "Phases" });
  const count = el("p", { class: "count", role: "status" });
  const table = new Rows("Jobs", COLUMNS, {
    most: 1e6,
    sorted: (name) => { remember({ sort: query.get("sort") === name ? `-${name}` : name }); show(); },
    chosen: (row) => { location.href = address(row); },
    cells: (row) => [row.namespace, el("a", { href: address(row) }, row.name), el("span", { class: `phase p-${row.phase.toLowerCase()}` }, row.gone ? `${row.phase} (gone)` : row.phase || "-"), row.called,
      row.over || row.gone ? "-" : `${row.ready}/${row.wanted}`, String(row.restarts), age(row.began, now), el("span", { title: row.note }, row.note)],
  });
  const address = (row) => `${root}/jobs/${path(row)}?uid=${encodeURIComponent(row.uid)}`;
  main.append(el("h1", {}, "Jobs"), el("div", { class: "filters" }, words, phases, el("label", {}, gone, " gone")), count, table.root);
  table.root.classList.add("tall");
  let known = [], now = 0;
  const show = () => {
    now = Date.now() + behind;
    const asked = words.value.toLowerCase().split(/\s+/).filter(Boolean), phase = query.get("phase");
    const some = known.filter((row) => (gone.checked || !row.gone) && asked.every((word) => `${row.namespace} ${row.name} ${row.called} ${row.phase} ${row.note}`.toLowerCase().includes(word)));
    const counts = new Map();
    for (const row of some) counts.set(row.phase || "-", (counts.get(row.phase || "-") ?? 0) + 1);
    if (phase && !counts.has(phase)) counts.set(phase, 0);
    phases.replaceChildren(...[...counts].sort().map(([name, each]) => el("button", { type: "button", "aria-pressed": String(name === phase), onclick: () => { remember({ phase: name !== phase && name }); show(); } }, `${name === "-" ? "no phase" : name} ${each}`)));
    const shown = phase ? some.filter((row) => (row.phase || "-") === phase) : some;
    const by = query.get("sort") ?? "Namespace", falls = by.startsWith("-"), name = falls ? by.slice(1) : by;
    const key = COLUMNS.find((column) => column.name === name)?.key ?? COLUMNS[0].key;
    const compare = (one, other) => (one < other ? -1 : one > other ? 1 : 0);
    shown.sort((one, other) => (falls ? -1 : 1) * compare(key(one), key(other)) || compare(one.name, other.name) || compare(one.uid, other.uid));
    COLUMNS.forEach((column, place) => table.heads[place].setAttribute("aria-sort", column.name === name ? (falls ? "descending" : "ascending") : "none"));
    count.textContent = `${shown.length} of ${known.length} jobs`;
    table.show(shown);
  };
  jobs((rows) => { known = rows; show(); });
  setInterval(show, 10000);
}

/** The drawing whose news a server told: what was known of it, and what came after that. */
function goOn(known, news) {
  if (!news.since) return news;
  const [, links, events, progress] = news.since;
  for (const [name, count] of Object.entries({ links, events, progress })) news[name] = known[name].slice(0, count).concat(news[name]);
  for (const [place, [same, ...later]] of Object.entries(news.lives)) news.lives[place] = (known.lives[place] ?? []).slice(0, same).concat(later);
  news.lives = { ...known.lives, ...news.lives };
  return news;
}

function showJob() {
  const here = location.pathname.slice(`${root}/jobs`.length);
  const uid = query.get("uid") ? `uid=${encodeURIComponent(query.get("uid"))}` : "";
  const ask = async (part = "", known = "") => {
    const answer = await fetch(`${root}/api/jobs${here}${part}?${uid}&since=${encodeURIComponent(known)}`);
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error ?? answer.statusText);
    return found;
  };
  const time = (seconds, of) => new Date(of.timeline.model.base + seconds * 1000).toISOString();
  const shown = new JobView({
    at: (sequence) => ask(`/at/${sequence}`), raw: `${root}/api/jobs${here}/events?${uid}`,
    selected: (sequence) => remember({ at: sequence == null ? "" : String(sequence) }),
    viewed: (range, of) => { clearTimeout(shown.writing); shown.writing = setTimeout(() => remember(range ? { from: time(range.from, of), to: time(range.to, of) } : { from: "", to: "" }), 300); },
  });
  let drawn = 0, wanted = 0, asking = false, events = 0, away = "";
  const tell = () => say(away || (drawn ? "" : events ? `its ${events} events are being drawn` : "its events are being read"));
  const refresh = async () => {
    if (asking || drawn === wanted) return;
    asking = true;
    const meant = wanted;
    try {
      const began = performance.now(), known = shown.drawing, drawing = goOn(known, await ask("", known && JSON.stringify(known.version)));
      if (!shown.root.isConnected) main.append(shown.root);
      const wanders = query.get("from"), until = query.get("to"), at = query.get("at"), first = !drawn;
      shown.show(drawing);
      if (first && wanders && until) shown.timeline.view(shown.timeline.model.at(wanders), shown.timeline.model.at(until));
      if (first && at) shown.selectSequence(Number(at));
      if (drawing.report.job.uid && !uid) remember({ uid: drawing.report.job.uid });
      drawn = meant;
      tell();
      // What comes meanwhile is shown together; after the first drawing, which alone takes long, at once.
      if (!first) await new Promise((done) => setTimeout(done, 3 * (performance.now() - began)));
    } catch (error) {
      say(error.message);
      await new Promise((done) => setTimeout(done, 2000));
      wanted ||= 1;
    }
    asking = false;
    refresh();
  };
  wanted = -1;
  tell();
  refresh();
  follow(`${root}/api/jobs${here}/news?${uid}`, (news) => {
    away = news.trouble;
    if (news.events) { wanted = events = news.events; refresh(); }
    tell();
  });
}

/** Of the devices of some jobs, by name: how many are held, and how many wanted. */
function devices(rows) {
  const found = new Map();
  for (const row of rows) [row.devicesHeld, row.devices].forEach((each, place) => {
    for (const [name, count] of Object.entries(each ?? {})) found.set(name, (found.get(name) ?? [0, 0]).map((known, at) => known + (at === place ? count : 0)));
  });
  return [...found].sort();
}
const heldWords = (rows) => devices(rows).map(([name, [held, wanted]]) => `, ${held} of ${wanted} ${name} held`).join("");
const lackWords = (row) => devices([row]).filter(([, [held, wanted]]) => held < wanted).map(([name, [held, wanted]]) => `; ${wanted - held} ${name}`).join("");

function showFleet() {
  const holds = el("div", { class: "holds" }), waits = el("tbody"), totals = el("p", { class: "count", role: "status" });
  main.append(el("h1", {}, "Fleet"), totals, el("h2", {}, "Who holds what"), holds, el("h2", {}, "Who waits for what"),
    el("table", { "aria-label": "Jobs that wait" }, el("thead", {}, el("tr", {}, ...[["Job", "l"], ["Phase", "p"], ["Ready", "s"], ["Waits for"]].map(([name, width]) => el("th", { scope: "col", class: width && `w-${width}` }, name)))), waits));
  const link = (row) => el("a", { href: `${root}/jobs/${path(row)}?uid=${encodeURIComponent(row.uid)}` }, `${row.namespace}/${row.name}`);
  jobs((all) => {
    const live = all.filter((row) => !row.gone && !row.over), namespaces = new Map();
    for (const row of live) namespaces.set(row.namespace, [...(namespaces.get(row.namespace) ?? []), row]);
    const sum = (rows, key) => rows.reduce((total, row) => total + row[key], 0);
    const most = Math.max(1, ...[...namespaces.values()].map((rows) => sum(rows, "wanted")));
    const counted = (rows) => `${rows.length} ${rows.length === 1 ? "job" : "jobs"}`;
    totals.textContent = `${counted(live)}: ${sum(live, "ready")} Ready pods of ${sum(live, "wanted")} wanted${heldWords(live)}`;
    holds.replaceChildren(...[...namespaces].sort(([, one], [, other]) => sum(other, "wanted") - sum(one, "wanted")).map(([namespace, rows]) => {
      const bar = el("div", { class: "bar", "aria-hidden": "true" });
      rows.sort((one, other) => other.wanted - one.wanted);
      for (const row of rows.slice(0, 200)) {
        const part = el("span", { class: "part", title: `${row.name}: ${row.ready} of ${row.wanted} Ready` }), ready = el("i");
        part.style.flexGrow = row.wanted;
        ready.style.width = `${(100 * row.ready) / Math.max(row.wanted, 1)}%`;
        part.append(ready);
        bar.append(part);
      }
      bar.style.width = `${(100 * sum(rows, "wanted")) / most}%`;
      return el("section", {}, el("h3", {}, namespace, el("small", {}, ` ${sum(rows, "ready")} of ${sum(rows, "wanted")} pods Ready, ${counted(rows)}${heldWords(rows)}`)), bar,
        el("p", { class: "names" }, ...rows.slice(0, 8).flatMap((row, place) => [place ? ", " : "", link(row), ` ${row.ready}/${row.wanted}${heldWords([row])}`]), rows.length > 8 ? ` and ${rows.length - 8} more` : ""));
    }));
    const lacking = live.filter((row) => row.ready < row.wanted || row.note).sort((one, other) => (other.wanted - other.ready) - (one.wanted - one.ready));
    waits.replaceChildren(...lacking.slice(0, 500).map((row) => el("tr", {}, el("td", {}, link(row)), el("td", {}, row.phase || "-"), el("td", {}, `${row.ready}/${row.wanted}`), el("td", {}, `${row.note || "its pods are not Ready"}${lackWords(row)}`))),
      ...(lacking.length ? [] : [el("tr", {}, el("td", { colspan: 4 }, "no job waits"))]));
  });
}

const theme = el("button", { type: "button", class: "theme", onclick: () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "light dark" ? matchMedia("(prefers-color-scheme: dark)").matches : document.documentElement.dataset.theme === "dark";
  localStorage.theme = document.documentElement.dataset.theme = dark ? "light" : "dark";
  dispatchEvent(new Event("themed"));
} }, "Dark or light");
if (localStorage.theme) document.documentElement.dataset.theme = localStorage.theme;
document.querySelector("body > header").append(theme);
({ jobs: showJobs, job: showJob, fleet: showFleet })[view]();
