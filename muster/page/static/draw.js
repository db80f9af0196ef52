// Draws a job: its timeline on a canvas or as SVG, the chain of causes as a graph, and tables.  Imports nothing, so that
// it works in a file of its own as well.  What others wrote becomes text alone, never markup.

const SVG = "http://www.w3.org/2000/svg";
const GUTTER = 132;
const HEAD = { axis: 24, phases: 20, curve: 58, progress: 48, request: 18, marks: 20 };
const LEAST_REQUEST_PX = 3;
const MARKS = {
  DisruptionNoticed: "notice", NodeLost: "notice", NodeBack: "notice", EffectRefused: "notice", HistoryBroken: "notice", HistoryDisputed: "notice",
  HostsPublished: "hosts", CheckpointTaken: "checkpoint",
};
const ENDED = { Succeeded: "training", Failed: "lost", Rejected: "lost" };
const FONT = "12px system-ui, sans-serif";

/** An element; children are elements, or text that stays text. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

export const lasted = (seconds) => {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min` : `${(seconds / 86400).toFixed(1)} d`;
};
const clock = (ms, digits = 19) => new Date(ms).toISOString().slice(0, digits).replace("T", " ");

/** A table of which only the rows in sight exist; `cells` makes the texts or elements of a row. */
export class Rows {
  constructor(label, columns, { height = 28, most = 420, cells, chosen = () => {}, sorted = null }) {
    Object.assign(this, { columns, height, cells, chosen, rows: [], selected: -1 });
    this.body = el("tbody");
    this.heads = columns.map(({ name, width }) => {
      const button = sorted ? el("button", { type: "button", onclick: () => sorted(name) }, name) : name;
      return el("th", { scope: "col", ...(width ? { class: `w-${width}` } : {}) }, button);
    });
    this.table = el("table", { "aria-label": label }, el("thead", {}, el("tr", {}, ...this.heads)), this.body);
    this.root = el("div", { class: "rows", tabindex: 0, role: "region", "aria-label": `${label}, scrollable` }, this.table);
    this.root.style.maxHeight = `${most}px`;
    this.above = el("tr", { "aria-hidden": "true", class: "space" });
    this.below = el("tr", { "aria-hidden": "true", class: "space" });
    this.live = [];
    this.root.addEventListener("scroll", () => this.#soon(), { passive: true });
    new ResizeObserver(() => this.#soon()).observe(this.root);
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr[aria-rowindex]");
      if (row && !event.target.closest("a")) this.chosen(this.rows[row.ariaRowIndex - 2], row.ariaRowIndex - 2);
    });
  }
  show(rows) {
    this.rows = rows;
    this.table.setAttribute("aria-rowcount", rows.length + 1);
    this.#paint();
  }
  select(index, { scroll = true } = {}) {
    this.selected = index;
    const top = index * this.height, room = this.root.clientHeight - 2 * this.height;
    if (scroll && (top < this.root.scrollTop || top > this.root.scrollTop + room)) this.root.scrollTop = top - room / 2;
    this.#paint();
  }
  #soon() {
    this.due ??= requestAnimationFrame(() => { this.due = null; this.#paint(); });
  }
  #paint() {
    const first = Math.max(0, Math.floor(this.root.scrollTop / this.height) - 4);
    const end = Math.min(this.rows.length, first + Math.ceil((this.root.clientHeight || 420) / this.height) + 8);
    while (this.live.length < end - first) this.live.push(el("tr", {}, ...this.columns.map(() => el("td"))));
    for (let place = first; place < end; place++) {
      const row = this.live[place - first];
      row.ariaRowIndex = place + 2;
      row.classList.toggle("selected", place === this.selected);
      this.cells(this.rows[place]).forEach((cell, column) => {
        const td = row.cells[column];
        if (typeof cell === "string") { if (td.textContent !== cell || td.firstElementChild) td.textContent = cell; if (td.title !== cell) td.title = cell; }
        else td.replaceChildren(cell);
      });
    }
    const wanted = [this.above, ...this.live.slice(0, end - first), this.below];
    this.above.style.height = `${first * this.height}px`;
    this.below.style.height = `${(this.rows.length - end) * this.height}px`;
    if (wanted.length !== this.body.childElementCount) this.body.replaceChildren(...wanted);
  }
}

/** Pens: the same drawing on a canvas and as SVG. */
class CanvasPen {
  constructor(canvas, width, height) {
    const scale = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.height = `${height}px`;
      // Not that of the box: a scroll bar in it would shift the times.
      canvas.style.width = `${width}px`;
    }
    this.to = canvas.getContext("2d");
    this.to.setTransform(scale, 0, 0, scale, 0, 0);
    this.to.clearRect(0, 0, width, height);
    this.to.font = FONT;
    this.to.textBaseline = "middle";
  }
  rects(colour, flat) {
    this.to.fillStyle = colour;
    for (let at = 0; at < flat.length; at += 4) this.to.fillRect(flat[at], flat[at + 1], flat[at + 2], flat[at + 3]);
  }
  line(colour, points, { width = 1, dash = [], fill = null } = {}) {
    this.to.beginPath();
    points.forEach(([x, y], place) => (place ? this.to.lineTo(x, y) : this.to.moveTo(x, y)));
    if (fill) { this.to.fillStyle = fill; this.to.fill(); }
    this.to.strokeStyle = colour;
    this.to.lineWidth = width;
    this.to.setLineDash(dash);
    if (colour) this.to.stroke();
    this.to.setLineDash([]);
  }
  text(colour, x, y, words, { align = "left", most = 1e9 } = {}) {
    if (most < 24) return;
    this.to.fillStyle = colour;
    this.to.textAlign = align;
    while (words.length > 1 && this.to.measureText(words).width > most) words = `${words.slice(0, -2)}…`;
    this.to.fillText(words, x, y);
  }
}

class SvgPen {
  constructor(width, height, background) {
    this.root = document.createElementNS(SVG, "svg");
    this.#set(this.root, { xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "system-ui, sans-serif", "font-size": 12 });
    this.#add("rect", { width, height, fill: background });
    this.shift = 0;
  }
  #set(made, attributes) {
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }
  #add(tag, attributes) {
    return this.root.appendChild(this.#set(document.createElementNS(SVG, tag), attributes));
  }
  rects(colour, flat) {
    let path = "";
    for (let at = 0; at < flat.length; at += 4) {
      path += `M${flat[at].toFixed(2)} ${(flat[at + 1] + this.shift).toFixed(2)}h${flat[at + 2].toFixed(2)}v${flat[at + 3].toFixed(2)}h-${flat[at + 2].toFixed(2)}z`;
    }
    if (path) this.#add("path", { d: path, fill: colour });
  }
  line(colour, points, { width = 1, dash = [], fill = null } = {}) {
    const shape = points.map(([x, y]) => `${x.toFixed(2)},${(y + this.shift).toFixed(2)}`).join(" ");
    this.#add("polyline", { points: shape, fill: fill ?? "none", stroke: colour ?? "none", "stroke-width": width, "stroke-dasharray": dash.join(" ") });
  }
  text(colour, x, y, words, { align = "left", most = 1e9 } = {}) {
    if (most < 24) return;
    const fits = Math.floor(most / 6.6);
    const anchor = { left: "start", right: "end", center: "middle" }[align];
    this.#add("text", { x, y: y + this.shift + 4, fill: colour, "text-anchor": anchor }).textContent =
      words.length > fits ? `${words.slice(0, Math.max(fits - 1, 1))}…` : words;
  }
}

/** A drawing's numbers, in seconds since the job's first event; what lasts has no end yet. */
class Model {
  constructor(drawing) {
    const { report, links } = drawing;
    this.drawing = drawing;
    this.received = performance.now();
    const times = drawing.events.map((place) => Date.parse(links[place].time));
    const firsts = report.places.map((lane) => Date.parse(lane.stretches[0].since));
    this.base = [...times, ...firsts].reduce((least, time) => Math.min(least, time), Infinity);
    if (!Number.isFinite(this.base)) this.base = Date.parse(report.until) || 0;
    this.at = (time) => (Date.parse(time) - this.base) / 1000;
    this.buckets = Object.keys(drawing.buckets);
    const number = Object.fromEntries(this.buckets.map((bucket, place) => [bucket, place]));
    const count = report.places.reduce((sum, lane) => sum + lane.stretches.length, 0);
    this.since = new Float64Array(count);
    this.until = new Float64Array(count);
    this.bucket = new Uint8Array(count);
    this.first = new Uint32Array(report.places.length + 1);
    let place = 0;
    report.places.forEach((lane, index) => {
      this.first[index] = place;
      for (const each of lane.stretches) {
        this.since[place] = this.at(each.since);
        this.until[place] = each.until ? this.at(each.until) : Infinity;
        this.bucket[place++] = number[each.bucket];
      }
    });
    this.first[report.places.length] = place;
    const live = this.until.includes(Infinity) || !(report.job.over || report.job.gone);
    this.asked = Math.max(this.at(report.until), 0);
    const ends = [...times.map((time) => (time - this.base) / 1000), ...report.scalings.map((each) => (each.until ? this.at(each.until) : 0))];
    for (const end of this.until) if (end !== Infinity) ends.push(end);
    this.end = ends.reduce((most, each) => Math.max(most, each), 1);
    this.live = live;
    this.#curve(report.places, number);
    this.#marks(drawing);
    this.#progress(drawing.progress ?? []);
  }
  /** How long after the first event it is now; the clock of the browser is asked only how long it has been. */
  get now() {
    return this.live ? Math.max(this.end, this.asked + (performance.now() - this.received) / 1000) : this.end;
  }
  #curve(places, number) {
    const steps = [];
    const workers = places.some((lane) => lane.role === "worker");
    places.forEach((lane, index) => {
      if (workers && lane.role !== "worker") return;
      for (let place = this.first[index]; place < this.first[index + 1]; place++) {
        const wanted = this.bucket[place] === number.draining || this.bucket[place] === number.ended ? 0 : 1;
        const trains = this.bucket[place] === number.training ? 1 : 0;
        steps.push([this.since[place], wanted, trains]);
        if (this.until[place] !== Infinity) steps.push([this.until[place], -wanted, -trains]);
      }
    });
    steps.sort(([one], [other]) => one - other);
    this.curve = [];
    let wanted = 0, trains = 0;
    for (const [time, more, trained] of steps) {
      wanted += more;
      trains += trained;
      if (this.curve.length && this.curve.at(-1)[0] === time) this.curve.pop();
      this.curve.push([time, wanted, trains]);
    }
    this.most = this.curve.reduce((most, [, each]) => Math.max(most, each), 1);
    this.noun = workers ? "workers" : "places";
  }
  /** The step, and one metric: the loss, or the first that the training names. */
  #progress(told) {
    const names = new Set(told.flatMap(({ values }) => Object.keys(values)).filter((name) => name !== "step"));
    const metric = ["loss", "train_loss", ...names].find((name) => names.has(name));
    this.progress = [["step", "training-ink"], [metric, "accent"]].map(([name, colour]) => {
      const points = told.filter(({ values }) => name in values).map(({ time, values }) => [this.at(time), values[name]]);
      const all = points.map(([, value]) => value);
      return { name, colour, points, least: name === "step" ? 0 : Math.min(...all), most: Math.max(...all) };
    }).filter(({ points }) => points.length);
  }
  #marks({ report, links, events, requests }) {
    const by = new Map(events.map((place) => [links[place].sequence, place]));
    const marks = events.filter((place) => Object.hasOwn(MARKS, links[place].type)).map((place) => ({ kind: MARKS[links[place].type], at: this.at(links[place].time), link: place, text: links[place].text }));
    for (const each of report.failures) marks.push({ kind: "failure", at: this.at(each.time), link: by.get(each.sequence), text: `${each.pod} was lost: ${each.reason}` });
    for (const each of report.changes) marks.push({ kind: "change", at: this.at(each.time), link: by.get(each.sequence), text: each.change });
    marks.sort((one, other) => one.at - other.at);
    const ofGroup = ({ kind }) => kind === "hosts" || kind === "checkpoint";
    this.marks = [["notices, changes", marks.filter((each) => !ofGroup(each))], ["hosts, checkpoints", marks.filter(ofGroup)]].filter(([, some], row) => !row || some.length);
    this.restarts = report.attempts.slice(1).map((each) => ({ at: this.at(each.since), link: by.get(each.sequence), text: `attempt ${each.number}` }));
    this.phases = report.phases.map((each) => ({ from: this.at(each.since), to: each.until ? this.at(each.until) : Infinity, phase: each.phase, link: by.get(each.sequence) }));
    const rows = [];
    this.requests = report.scalings.map((each) => {
      const from = this.at(each.since), to = each.until ? this.at(each.until) : Infinity;
      let row = rows.findIndex((end) => end <= from);
      if (row < 0) row = Math.min(rows.length, 3);
      rows[row] = to;
      const chain = requests.find(({ title }) => title === `${each.kind} ${each.name}`) ?? requests.find(({ links: known }) => links[known[0]]?.sequence === each.sequence);
      const ticks = (chain?.links ?? []).map((place) => ({ at: this.at(links[place].time), link: place }));
      const sizes = each.after ? ` ${each.before} → ${each.after}` : "";
      return { from, to, row, ticks, phase: each.phase, link: by.get(each.sequence), text: `${each.name ? `${each.kind} ${each.name}` : "edit of the job"}${sizes}: ${each.phase || "waits"}` };
    });
    this.requestRows = rows.length;
  }
}

/** The timeline of one job, in an element of its own. */
export class Timeline {
  constructor({ selected = () => {}, viewed = () => {} } = {}) {
    Object.assign(this, { selected, viewed, from: 0, to: 1, follows: true, cursor: null, focus: 0, laneHeight: 0 });
    this.head = el("canvas", { class: "head", "aria-hidden": "true" });
    this.lanes = el("canvas", { class: "lanes", "aria-hidden": "true" });
    this.space = el("div", { class: "space" }, this.lanes);
    this.scroll = el("div", { class: "scroll" }, this.space);
    this.tip = el("div", { class: "tip", role: "tooltip", hidden: true });
    this.said = el("p", { class: "said", "aria-live": "polite" });
    this.probe = el("i", { hidden: true });
    const help = "Timeline. Arrow keys left and right pan, up and down choose a lane, plus and minus zoom, 0 shows all, Enter tells what the lane did at the cursor";
    this.plot = el("div", { class: "plot", tabindex: 0, role: "application", "aria-label": help }, this.head, this.scroll, this.tip, this.probe);
    const button = (words, label, act) => el("button", { type: "button", title: label, "aria-label": label, onclick: act }, words);
    this.tools = el("div", { class: "tools", role: "toolbar", "aria-label": "Timeline" },
      button("−", "Zoom out", () => this.zoom(1.6)), button("+", "Zoom in", () => this.zoom(1 / 1.6)), button("All", "Show the whole life", () => this.fit()),
      button("▴", "Lower lanes", () => this.tall(1 / 1.5)), button("▾", "Higher lanes", () => this.tall(1.5)),
      el("span", { class: "hint" }, "drag to pan · Ctrl + wheel to zoom · click for the causes"));
    this.root = el("div", { class: "timeline" }, this.tools, this.plot, this.said);
    new ResizeObserver(() => this.soon()).observe(this.root);
    this.scroll.addEventListener("scroll", () => this.soon(), { passive: true });
    // A canvas keeps the colours that it was painted with.
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.soon());
    addEventListener("themed", () => this.soon());
    this.#listen();
  }
  show(drawing) {
    this.model = new Model(drawing);
    if (this.follows && !this.#zoomed) this.fit();
    this.soon();
  }
  /** From and to, in seconds since the first event. */
  view(from, to) {
    this.#zoomed = true;
    this.#set(from, to);
  }
  fit() {
    this.#zoomed = false;
    this.#set(0, this.model.now * 1.01);
  }
  #zoomed = false;
  #set(from, to) {
    const least = 0.05, span = Math.max(to - from, least), limit = this.model.now * 1.5 + 1;
    this.from = Math.max(Math.min(from, limit - least), -limit * 0.5);
    this.to = Math.min(this.from + span, limit * 1.5);
    this.viewed(this.#zoomed ? this : null);
    this.soon();
  }
  zoom(factor, around = (this.from + this.to) / 2) {
    this.#zoomed = true;
    this.#set(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }
  pan(seconds) {
    this.#zoomed = true;
    this.#set(this.from + seconds, this.to + seconds);
  }
  tall(factor) {
    const middle = (this.scroll.scrollTop + this.scroll.clientHeight / 2) / this.height;
    this.laneHeight = Math.min(Math.max(this.height * factor, 0.05), 32);
    this.paint();
    this.scroll.scrollTop = middle * this.height - this.scroll.clientHeight / 2;
  }
  mark(at) {
    this.cursor = at;
    this.soon();
  }
  soon() {
    this.due ??= requestAnimationFrame(() => { this.due = null; this.paint(); });
  }
  get width() { return Math.max(this.plot.clientWidth, 200); }
  get most() { return Math.max(Math.min(window.innerHeight * 0.6, 720), 240); }
  get count() { return this.model.drawing.report.places.length; }
  get height() { return this.laneHeight || Math.min(22, Math.max(this.most / Math.max(this.count, 1), this.count > 200 ? 0.05 : 5)); }
  get progressHeight() { return this.model.progress.length ? HEAD.progress : 0; }
  get headHeight() { return HEAD.axis + HEAD.phases + HEAD.curve + this.progressHeight + HEAD.request * this.model.requestRows + HEAD.marks * this.model.marks.length; }
  colour(name) {
    return (this.colours ??= {})[name] ??= (this.probe.style.color = `var(--${name})`, getComputedStyle(this.probe).color);
  }
  x(at) { return GUTTER + ((at - this.from) / (this.to - this.from)) * (this.width - GUTTER); }
  time(x) { return this.from + ((x - GUTTER) / (this.width - GUTTER)) * (this.to - this.from); }

  paint() {
    if (!this.model || !this.plot.clientWidth) return;
    this.colours = null;
    if (!this.#zoomed) this.to = this.model.now * 1.01;
    const all = this.count * this.height, shown = Math.min(all, this.most);
    this.scroll.style.height = `${shown}px`;
    this.space.style.height = `${all}px`;
    this.#head(new CanvasPen(this.head, this.width, this.headHeight));
    const pen = new CanvasPen(this.lanes, this.width, Math.max(shown, 1));
    const top = this.scroll.scrollTop;
    this.#lanes(pen, top, shown, this.height);
    this.#uprights(pen, shown);
    clearTimeout(this.again);
    if (this.model.live && this.model.now <= this.to) this.again = setTimeout(() => this.soon(), 1000);
  }
  #uprights(pen, height) {
    const lines = [...this.model.restarts.map((each) => [each.at, "restart", [4, 3], 1])];
    if (this.cursor != null) lines.push([this.cursor, "accent", [], 1.5]);
    for (const [at, colour, dash, width] of lines) {
      const x = this.x(at);
      if (x >= GUTTER) pen.line(this.colour(colour), [[x, 0], [x, height]], { dash, width });
    }
  }
  #head(pen) {
    const { model, width } = this, ink = this.colour("ink"), soft = this.colour("soft"), grid = this.colour("grid");
    let y = HEAD.axis / 2;
    const step = [0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2419200]
      .find((each) => (each / (this.to - this.from)) * (width - GUTTER) > 92) ?? 2419200 * 6;
    const zero = (model.base / 1000) % step;
    pen.text(soft, 0, y, `${clock(model.base, 10)} UTC`, { most: GUTTER - 8 });
    for (let at = Math.ceil((this.from + zero) / step) * step - zero; at < this.to; at += step) {
      const x = this.x(at), time = clock(model.base + at * 1000, step < 1 ? 23 : 19);
      pen.line(grid, [[x, HEAD.axis - 4], [x, this.headHeight]]);
      if (x < width - 40) pen.text(soft, x, y, step >= 86400 ? time.slice(5, 10) : step < 60 ? time.slice(11) : time.slice(11, 16), { align: "center" });
    }
    y = HEAD.axis;
    pen.text(ink, 0, y + HEAD.phases / 2, "phase");
    for (const each of model.phases) {
      const [from, to] = this.#clip(each.from, each.to);
      if (to <= from) continue;
      pen.rects(this.colour(`phase-${each.phase.toLowerCase()}`) || soft, [from, y + 2, Math.max(to - from - 1, 1), HEAD.phases - 5]);
      pen.text(this.colour("on-phase"), from + 5, y + HEAD.phases / 2, each.phase, { most: to - from - 10 });
    }
    y += HEAD.phases;
    this.#curve(pen, y);
    y += HEAD.curve;
    this.#advances(pen, y);
    y += this.progressHeight;
    model.requests.forEach((each) => {
      const top = y + each.row * HEAD.request, [from, to] = this.#clip(each.from, each.to);
      if (to < from) return;
      const colour = this.colour(ENDED[each.phase] ?? "scaling");
      pen.rects(colour, [from, top + HEAD.request - 4, Math.max(to - from, LEAST_REQUEST_PX), 3]);
      for (const tick of each.ticks) if (tick.at >= this.from && tick.at <= this.to) pen.rects(colour, [this.x(tick.at), top + HEAD.request - 9, 2, 8]);
      const next = model.requests.find((other) => other.row === each.row && other.from > each.from);
      pen.text(ink, from + 4, top + 6, each.text, { most: (next ? Math.min(this.x(next.from), width) : width) - from - 8 });
    });
    if (model.requests.length) pen.text(ink, 0, y + 8, "scale requests");
    y += HEAD.request * model.requestRows + HEAD.marks / 2;
    for (const [name, marks] of model.marks) {
      pen.text(ink, 0, y, name, { most: GUTTER - 8 });
      this.#row(pen, marks, y);
      y += HEAD.marks;
    }
    for (const each of model.restarts) {
      const x = this.x(each.at);
      if (x >= GUTTER) pen.text(this.colour("restart"), x + 3, HEAD.axis + HEAD.phases + 8, each.text);
    }
    this.#uprights(pen, this.headHeight);
  }
  /** Marks beside each other: of those of a kind that share a pixel, the first. */
  #row(pen, marks, y) {
    const last = {};
    for (const { kind, at } of marks) {
      const x = this.x(at);
      if (x < GUTTER || x > this.width || x - last[kind] < 1) continue;
      last[kind] = x;
      this.#mark(pen, kind, x, y);
    }
  }
  #mark(pen, kind, x, y) {
    const shapes = {
      notice: ["notice", [[x, y - 5], [x + 5, y + 4], [x - 5, y + 4], [x, y - 5]]],
      failure: ["lost", [[x - 4, y - 4], [x + 4, y - 4], [x + 4, y + 4], [x - 4, y + 4], [x - 4, y - 4]]],
      change: ["accent", [[x, y - 5], [x + 5, y], [x, y + 5], [x - 5, y], [x, y - 5]]],
      hosts: ["scaling", [[x - 1.5, y - 5], [x + 1.5, y - 5], [x + 1.5, y + 5], [x - 1.5, y + 5], [x - 1.5, y - 5]]],
      checkpoint: ["training-ink", [[x, y + 5], [x + 5, y - 4], [x - 5, y - 4], [x, y + 5]]],
    };
    const [colour, points] = shapes[kind];
    pen.line(this.colour("paper"), points, { fill: this.colour(colour) });
  }
  #curve(pen, y) {
    const { model } = this, low = y + HEAD.curve - 6, high = y + 8, scale = (low - high) / model.most;
    pen.text(this.colour("ink"), 0, high + 13, `${model.noun} wanted`);
    pen.text(this.colour("training-ink"), 0, high + 28, "training");
    pen.text(this.colour("soft"), GUTTER - 6, high, String(model.most), { align: "right" });
    pen.text(this.colour("soft"), GUTTER - 6, low - 2, "0", { align: "right" });
    const series = [2, 1].map((which) => {
      const points = [];
      let before = 0, last = -1;
      for (const each of model.curve) {
        if (each[0] > this.to) break;
        const x = Math.max(this.x(each[0]), GUTTER);
        if (x - last < 0.4 && points.length) points.pop();
        else points.push([x, low - before * scale]);
        points.push([x, low - each[which] * scale]);
        before = each[which];
        last = x;
      }
      points.push([Math.min(this.x(Math.min(model.now, this.to)), this.width), low - before * scale]);
      return points;
    });
    const [trains, wanted] = series;
    if (!model.curve.length) return;
    pen.line(null, [[trains[0][0], low], ...trains, [trains.at(-1)[0], low]], { fill: this.colour("training-pale") });
    pen.line(this.colour("training-ink"), trains, { width: 1.5 });
    pen.line(this.colour("ink"), wanted, { width: 1.25, dash: [4, 2] });
  }
  #advances(pen, y) {
    const low = y + HEAD.progress - 6, high = y + 8;
    this.model.progress.forEach(({ name, colour, points, least, most }, row) => {
      const drawn = [], known = points.filter(([at]) => at <= this.to);
      if (!known.length) return;
      for (const [at, value] of known) {
        const x = this.x(at), height = low - ((value - least) / (most - least || 1)) * (low - high);
        if (x < GUTTER || (drawn.length && x - drawn.at(-1)[0] < 0.5)) continue;
        drawn.push([x, height]);
      }
      pen.line(this.colour(colour), drawn, { width: 1.5 });
      pen.text(this.colour(colour), 0, high + 13 * row, `${name} ${Number(known.at(-1)[1].toPrecision(6))}`, { most: GUTTER - 8 });
    });
  }
  #clip(from, to) {
    return [Math.max(this.x(from), GUTTER), Math.min(this.x(Math.min(to, this.model.now)), this.width)];
  }
  /** The lanes between two heights: where several share a row of pixels, the first of them, and every loss. */
  #lanes(pen, top, shown, height) {
    const { model, width } = this, { since, until, bucket, first } = model, now = model.now;
    const rects = model.buckets.map(() => []), lost = model.buckets.indexOf("lost"), gap = height >= 5 ? 1 : 0;
    const scale = (width - GUTTER) / (this.to - this.from);
    const end = Math.min(this.count, Math.ceil((top + shown) / height));
    let pixel = -1;
    for (let lane = Math.max(0, Math.floor(top / height)); lane < end; lane++) {
      const y = height < 1 ? Math.floor(lane * height - top) : lane * height - top;
      const losses = height < 1 && y === pixel;
      pixel = y;
      let low = first[lane], high = first[lane + 1];
      while (low < high) { const middle = (low + high) >> 1; if (until[middle] < this.from) low = middle + 1; else high = middle; }
      for (let place = low, last = -1; place < first[lane + 1] && since[place] <= this.to; place++) {
        const kind = bucket[place];
        if (losses && kind !== lost) continue;
        const left = Math.max(GUTTER + (since[place] - this.from) * scale, GUTTER);
        const right = Math.min(GUTTER + (Math.min(until[place], now) - this.from) * scale, width);
        if (right - left < 1 && kind !== lost && Math.floor(left) === last) continue;
        last = Math.floor(left);
        if (right >= left) rects[kind].push(left, y, Math.max(right - left, 1), Math.max(height - gap, 1));
      }
    }
    rects.forEach((flat, kind) => { if (kind !== lost) pen.rects(this.colour(model.buckets[kind]), flat); });
    pen.rects(this.colour("lost"), rects[lost] ?? []);
    const { places } = model.drawing.report, every = Math.max(1, Math.ceil(13 / height));
    for (let lane = Math.ceil(Math.floor(top / height) / every) * every; lane < end; lane += every) {
      const y = lane * height - top + 7;
      pen.text(lane === this.focus && document.activeElement === this.plot ? this.colour("accent") : this.colour("ink"), 0, y, `${places[lane].role} ${places[lane].index}`, { most: GUTTER - 8 });
    }
  }

  /** What is at a point of the plot: words, and the event to which they belong. */
  #found(x, y) {
    const at = this.time(x), { model } = this, near = (this.to - this.from) / (this.width - GUTTER) * 6;
    if (x < GUTTER) return null;
    if (y >= this.headHeight) return this.#inLane(Math.floor((y - this.headHeight + this.scroll.scrollTop) / this.height), at);
    let top = HEAD.axis;
    if (y < top) return null;
    if (y < (top += HEAD.phases)) {
      const phase = model.phases.find((each) => each.from <= at && at < each.to);
      return phase && { words: [phase.phase, this.#text(phase.link)], link: phase.link };
    }
    if (y < (top += HEAD.curve)) {
      const restart = model.restarts.find((each) => Math.abs(each.at - at) < near);
      if (restart) return { words: [restart.text, this.#text(restart.link)], link: restart.link };
      const [, wanted, trains] = model.curve.findLast(([time]) => time <= at) ?? [0, 0, 0];
      return { words: [`${wanted} ${model.noun} wanted, ${trains} training`] };
    }
    if (y < (top += this.progressHeight)) {
      const words = model.progress.map(({ name, points }) => [name, points.findLast(([time]) => time <= at)]);
      return { words: words.filter(([, point]) => point).map(([name, [, value]]) => `${name} ${value}`) };
    }
    if (y < top + HEAD.request * model.requestRows) {
      const row = Math.floor((y - top) / HEAD.request);
      const request = model.requests.findLast((each) => each.row === row && each.from - near <= at && at <= Math.max(each.to, each.from + near));
      if (!request) return null;
      const tick = request.ticks.findLast((each) => each.at <= at + near);
      return { words: [request.text, this.#text(tick?.link)], link: tick?.link ?? request.link };
    }
    const row = model.marks[Math.floor((y - top - HEAD.request * model.requestRows) / HEAD.marks)];
    const marks = row[1].filter((each) => Math.abs(each.at - at) < near);
    const mark = marks.sort((one, other) => Math.abs(one.at - at) - Math.abs(other.at - at))[0];
    return mark && { words: [mark.text, marks.length > 1 ? `and ${marks.length - 1} more here: zoom in` : ""], link: mark.link };
  }
  #text(link) {
    return link == null ? "" : this.model.drawing.links[link].text;
  }
  #inLane(lane, at) {
    const { model } = this, { report, lives, links, buckets, causes } = model.drawing, place = report.places[lane];
    const stretch = place?.stretches.find((_, index) => model.since[model.first[lane] + index] <= at && at < model.until[model.first[lane] + index]);
    if (!stretch || at > model.now) return null;
    const key = `${place.role}/${place.index}`, known = lives[key] ?? [], moment = Math.max(at, model.at(stretch.since) + 0.0005);
    const link = known.findLast((each) => model.at(links[each].time) <= moment) ?? known[0];
    const why = stretch.cause ? `: ${causes[stretch.cause]}` : "", until = stretch.until ? model.at(stretch.until) : model.now;
    return {
      lane, link,
      words: [`${place.role} ${place.index} ${buckets[stretch.bucket]}${why}`, `${lasted(until - model.at(stretch.since))} from ${stretch.since.slice(11, 19)}${stretch.node ? ` on ${stretch.node}` : ""}, attempt ${stretch.attempt}`, this.#text(link)],
    };
  }
  #listen() {
    let drag = null;
    const point = (event) => { const box = this.plot.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    this.plot.addEventListener("wheel", (event) => {
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(((event.deltaX || event.deltaY) / this.width) * (this.to - this.from));
      else if (event.altKey) this.tall(Math.exp(-event.deltaY / 300));
      else if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(event.deltaY / 300), this.time(Math.max(point(event)[0], GUTTER)));
      else return;
      event.preventDefault();
    }, { passive: false });
    this.plot.addEventListener("pointerdown", (event) => {
      if (event.button || event.offsetX >= this.scroll.clientWidth) return;
      drag = { x: event.clientX, from: this.from, to: this.to, moved: false };
    });
    this.plot.addEventListener("pointermove", (event) => {
      const [x, y] = point(event);
      if (drag && event.buttons) {
        const by = ((drag.x - event.clientX) / (this.width - GUTTER)) * (drag.to - drag.from);
        drag.moved ||= Math.abs(drag.x - event.clientX) > 4;
        if (drag.moved) { this.plot.setPointerCapture(event.pointerId); this.view(drag.from + by, drag.to + by); }
        return;
      }
      this.#tell(this.#found(x, y), x, y);
    });
    this.plot.addEventListener("pointerup", (event) => {
      if (drag && !drag.moved) { const found = this.#found(...point(event)); if (found?.link != null) this.selected(found.link); }
      drag = null;
    });
    this.plot.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.plot.addEventListener("dblclick", (event) => this.zoom(0.5, this.time(point(event)[0])));
    const keys = {
      ArrowLeft: () => this.pan((this.from - this.to) / 8), ArrowRight: () => this.pan((this.to - this.from) / 8),
      ArrowUp: () => this.#lane(-1), ArrowDown: () => this.#lane(1), "+": () => this.zoom(1 / 1.4), "=": () => this.zoom(1 / 1.4),
      "-": () => this.zoom(1.4), 0: () => this.fit(), Enter: () => this.#lane(0, true),
    };
    this.plot.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
  }
  #lane(step, chosen = false) {
    this.focus = Math.max(0, Math.min(this.count - 1, this.focus + step));
    const at = this.cursor != null && this.cursor >= this.from && this.cursor <= this.to ? this.cursor : Math.min((this.from + this.to) / 2, this.model.now - 0.001);
    const found = this.#inLane(this.focus, at), top = this.focus * this.height;
    if (top < this.scroll.scrollTop || top > this.scroll.scrollTop + this.scroll.clientHeight - this.height) this.scroll.scrollTop = top - this.most / 2;
    this.said.textContent = found ? found.words.filter(Boolean).join("; ") : this.count ? "the job did not hold this place then" : "";
    if (chosen && found?.link != null) this.selected(found.link);
    this.soon();
  }
  #tell(found, x, y) {
    this.tip.hidden = !found;
    this.plot.classList.toggle("hit", found?.link != null);
    if (!found) return;
    this.tip.replaceChildren(...found.words.filter(Boolean).map((words, place) => el(place ? "div" : "strong", {}, words)));
    this.tip.style.left = `${Math.min(x + 14, this.width - Math.min(this.tip.offsetWidth, this.width) - 4)}px`;
    this.tip.style.top = `${y + 18}px`;
  }
  /** The drawing as an SVG element: the times in sight, and every lane. */
  svg() {
    this.colours = null;
    const each = Math.max(Math.min(this.height, 22), 4), height = this.headHeight + this.count * each;
    const pen = new SvgPen(this.width, height + 8, this.colour("paper"));
    this.#head(pen);
    pen.shift = this.headHeight;
    this.#lanes(pen, 0, this.count * each, each);
    this.#uprights(pen, this.count * each);
    return new XMLSerializer().serializeToString(pen.root);
  }
  /** What is in sight, as a PNG. */
  png() {
    const both = el("canvas", {}), to = both.getContext("2d");
    both.width = this.head.width;
    both.height = this.head.height + this.lanes.height;
    to.fillStyle = this.colour("paper");
    to.fillRect(0, 0, both.width, both.height);
    to.drawImage(this.head, 0, 0);
    to.drawImage(this.lanes, 0, this.head.height);
    return new Promise((done) => both.toBlob(done, "image/png"));
  }
}

/** Chains of causes as a graph: the newest event above, a line from each to its cause. */
export class Graph {
  constructor(selected) {
    this.selected = selected;
    this.list = el("ol", { class: "chain" });
    this.lines = document.createElementNS(SVG, "svg");
    this.lines.setAttribute("aria-hidden", "true");
    this.root = el("div", { class: "graph" }, this.lines, this.list);
    new ResizeObserver(() => this.#join()).observe(this.list);
  }
  show(drawing, chains, chosen) {
    this.drawing = drawing;
    const asked = new Map();
    for (const { title, links } of chains) if (links.length) asked.set(links[0], [...(asked.get(links[0]) ?? []), title]);
    const all = [...new Set(chains.flatMap(({ links }) => links))].sort((one, other) => drawing.links[other].sequence - drawing.links[one].sequence || other - one);
    this.items = new Map(all.map((place) => {
      const { sequence, time, type, author, text, unknown } = drawing.links[place];
      const button = el("button", { type: "button", "aria-current": place === chosen ? "true" : null, onclick: () => this.selected(place) },
        el("b", {}, text || type), el("small", {}, `${sequence} · ${time.slice(0, 19).replace("T", " ")} · ${author} · ${type}`));
      return [place, el("li", {}, ...(asked.get(place) ?? []).map((title) => el("em", {}, title)), button, unknown ? el("small", { class: "unknown" }, `unknown: ${unknown}`) : null)];
    }));
    this.list.replaceChildren(...this.items.values());
    this.#join();
  }
  #join() {
    if (!this.items) return;
    const columns = new Map(), open = [], shapes = [], box = this.root.getBoundingClientRect();
    for (const [place, item] of this.items) {
      let column = open.indexOf(place);
      if (column < 0) { column = open.findIndex((each) => each == null); if (column < 0) column = open.length; }
      open.forEach((each, other) => { if (each === place) open[other] = null; });
      const { cause } = this.drawing.links[place];
      columns.set(place, column);
      open[column] = this.items.has(cause) ? cause : null;
      const button = item.querySelector("button").getBoundingClientRect();
      shapes.push([place, cause, 10 + Math.min(column, 5) * 12, button.top - box.top + 12]);
    }
    const at = new Map(shapes.map(([place, , x, y]) => [place, [x, y]]));
    const made = (tag, attributes) => { const one = document.createElementNS(SVG, tag); Object.entries(attributes).forEach(([name, value]) => one.setAttribute(name, value)); return one; };
    const edges = shapes.filter(([, cause]) => at.has(cause)).map(([, cause, x, y]) => {
      const [ox, oy] = at.get(cause);
      return made("path", { d: x === ox ? `M${x} ${y}V${oy}` : `M${x} ${y}V${oy - 16}Q${x} ${oy - 4} ${ox} ${oy}`, class: "edge" });
    });
    this.lines.setAttribute("height", Math.max(this.root.scrollHeight, 1));
    this.lines.replaceChildren(...edges, ...shapes.map(([place, , x, y]) => made("circle", { cx: x, cy: y, r: 4.5, class: this.items.get(place).querySelector("[aria-current]") ? "node chosen" : "node" })));
    this.list.style.paddingInlineStart = `${24 + Math.min(Math.max(0, ...columns.values()), 5) * 12}px`;
  }
}

const keep = (name, blob) => {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};

/** The whole view of a job.  `at(sequence)` gives texts of the state then, where a server can be asked. */
export class JobView {
  constructor({ at = null, raw = null, viewed = () => {}, selected = () => {} } = {}) {
    Object.assign(this, { at, told: selected, chosen: null });
    this.title = el("h1");
    this.heading = el("p", { class: "heading" });
    this.legend = el("ul", { class: "legend", "aria-label": "What the places did" });
    this.timeline = new Timeline({ selected: (link) => this.select(link), viewed: (view) => viewed(view, this) });
    this.graph = new Graph((link) => this.select(link));
    this.question = el("h2", { id: "why" });
    this.slider = el("input", { type: "range", min: 0, step: 1, "aria-label": "Event", oninput: () => this.select(this.drawing.events[this.slider.value]) });
    this.moment = el("output", { class: "moment" });
    this.now = el("button", { type: "button", onclick: () => this.select(null) }, "Now");
    this.events = new Rows("Events", [{ name: "Sequence", width: "s" }, { name: "Time", width: "t" }, { name: "Author", width: "s" }, { name: "Type", width: "m" }, { name: "What happened" }], {
      most: 380, chosen: (place) => this.select(place),
      cells: (place) => { const each = this.drawing.links[place]; return [String(each.sequence), each.time.slice(0, 23).replace("T", " "), each.author, each.type, each.text]; },
    });
    this.stretches = new Rows("Places", [{ name: "Place", width: "m" }, { name: "From", width: "t" }, { name: "To", width: "t" }, { name: "What it did" }, { name: "Node", width: "m" }, { name: "Attempt", width: "s" }], {
      cells: ([lane, each]) => [`${lane.role} ${lane.index}`, each.since.slice(0, 19).replace("T", " "), each.until.slice(0, 19).replace("T", " ") || "now", `${this.drawing.buckets[each.bucket]}${each.cause ? `: ${this.drawing.causes[each.cause]}` : ""}`, each.node, String(each.attempt)],
    });
    this.panes = ["status", "state", "event"].map((name) => [name, el("pre", { tabindex: 0, role: "region", "aria-label": name })]);
    const asTable = el("details", { ontoggle: () => this.#table() }, el("summary", {}, "Places as a table"), this.stretches.root);
    this.asTable = asTable;
    this.then = el("section", { class: "then", hidden: !at }, ...this.panes.map(([name, pane]) => el("details", { open: name === "status" }, el("summary", {}, name === "event" ? "raw event" : `${name} then`), pane)));
    const named = (kind) => `${this.drawing.report.job.name}-timeline.${kind}`;
    this.root = el("article", { class: "job" },
      el("div", { class: "top" }, this.title, el("span", { class: "downloads" },
        el("button", { type: "button", onclick: () => keep(named("svg"), new Blob([this.timeline.svg()], { type: "image/svg+xml" })) }, "SVG"),
        el("button", { type: "button", onclick: async () => keep(named("png"), await this.timeline.png()) }, "PNG"),
        raw ? el("a", { href: raw, download: "events.jsonl" }, "Raw events") : null)),
      this.heading, this.legend, this.timeline.root,
      el("div", { class: "slide" }, el("span", { "aria-hidden": "true" }, "event"), this.slider, this.now, this.moment),
      el("div", { class: "below" }, el("section", { "aria-labelledby": "why" }, this.question, this.graph.root), el("div", {}, this.then, el("h2", {}, "Events"), this.events.root, asTable)));
  }
  show(drawing) {
    const before = this.drawing && this.chosen != null ? this.drawing.links[this.chosen] : null;
    this.drawing = drawing;
    const { report } = drawing, held = report.shares.reduce((sum, each) => sum + each.seconds, 0);
    this.title.textContent = `${report.job.namespace} / ${report.job.name}`;
    // Lines about its size and its training are news, and no warnings.
    this.heading.replaceChildren(...drawing.heading.map((line, place) => el(place ? "span" : "strong", { class: place && !/^its (size|training)\b/.test(line) ? "warning" : null }, line)));
    const shares = new Map();
    for (const each of report.shares) shares.set(each.bucket, (shares.get(each.bucket) ?? 0) + each.seconds);
    this.legend.replaceChildren(...[...shares].map(([bucket, seconds]) => el("li", {}, el("i", { class: `swatch b-${bucket}` }), `${drawing.buckets[bucket]} `, el("b", {}, seconds && seconds < held / 200 ? "< 1 %" : `${Math.round((100 * seconds) / (held || 1))} %`))),
      ...(report.places.length ? [] : [el("li", {}, "it has held no place yet")]));
    this.timeline.show(drawing);
    this.slider.max = Math.max(drawing.events.length - 1, 0);
    this.events.show(drawing.events);
    this.#table();
    // Places in the list of links change as events come.
    if (before) this.chosen = drawing.links.findIndex((each) => each.sequence === before.sequence && each.text === before.text);
    this.select(this.chosen === -1 ? null : this.chosen, { again: true });
  }
  #table() {
    if (this.asTable.open) this.stretches.show(this.drawing.report.places.flatMap((lane) => lane.stretches.map((each) => [lane, each])));
  }
  /** Show an event by its place in `links`, with its causes; null for now. */
  select(place, { again = false } = {}) {
    const { drawing } = this, { links, events } = drawing;
    this.chosen = place;
    const sequence = place == null ? null : links[place].sequence;
    const index = place == null ? events.length - 1 : events.findLastIndex((each) => links[each].sequence <= sequence);
    this.slider.value = index;
    this.events.select(place == null ? -1 : index, { scroll: place != null && !again });
    this.now.disabled = place == null;
    const one = links[place ?? events[index]];
    this.moment.textContent = one ? `${index + 1} of ${events.length} · sequence ${one.sequence} · ${one.time.slice(0, 19).replace("T", " ")} · ${one.type}: ${one.text}` : "";
    this.slider.setAttribute("aria-valuetext", this.moment.textContent);
    this.timeline.mark(place == null ? null : this.timeline.model.at(one.time));
    this.question.textContent = place == null ? "Why it is so" : "Why this happened";
    const chain = [];
    for (let each = place; each != null; each = links[each].cause) chain.push(each);
    this.graph.show(drawing, place == null ? drawing.why : [{ title: "", links: chain }], place);
    if (!again || place == null) this.told(sequence);
    if (one && this.at && !(again && place != null)) this.#then(one.sequence);
  }
  selectSequence(sequence) {
    const found = this.drawing.events.findLast((place) => this.drawing.links[place].sequence <= sequence);
    if (found != null) this.select(found);
  }
  #then(sequence) {
    clearTimeout(this.asking);
    this.asking = setTimeout(async () => {
      const found = await this.at(sequence).catch((error) => ({ status: error.message, state: error.message, event: "" }));
      for (const [name, pane] of this.panes) pane.textContent = found[name];
    }, 120);
  }
}
