// Draws the figures, and moves the timeline. Everything that is shown as text is set as text, never as markup.
const tip = document.getElementById("tip");
const fmt = (s) => (s < 1 ? `${(s * 1e3).toFixed(s < 0.01 ? 2 : 1)} ms` : `${s.toFixed(s < 100 ? 3 : 1)} s`);
const plural = (n, one) => `${n.toLocaleString("en")} ${one}${n === 1 ? "" : "s"}`;

function showTip(x, y, value) {
  tip.replaceChildren();
  const { title, ...rest } = typeof value === "object" && value !== null ? value : { title: String(value) };
  if (title) tip.appendChild(document.createElement("strong")).textContent = title;
  const list = tip.appendChild(document.createElement("dl"));
  for (const [name, text] of Object.entries(rest)) {
    if (name) list.appendChild(document.createElement("dt")).textContent = name;
    const cell = list.appendChild(document.createElement("dd"));
    if (!name) cell.className = "all";
    cell.textContent = String(text);
  }
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - box.width - 10))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(6, y - box.height - 12) : y + 18}px`;
}
const hideTip = () => { tip.hidden = true; };

const WORDS = { kept: "", redone: "done again", lost: "lost: no checkpoint has it" };
function told(value) {
  if (value && value.tip) return value.tip;
  if (value && value.k === "step") {
    const rows = { title: `rank ${value.r}, ${value.n === 1 ? `step ${value.f}` : `steps ${value.f}–${value.l}`}` };
    if (value.n > 1) rows.updates = plural(value.n, "update");
    rows.time = `${value.t0.toFixed(3)} s, for ${fmt(value.t1 - value.t0)}`;
    rows.attempt = value.a;
    if (value.w >= 0) rows["input wait"] = fmt(value.w / 1e6);
    if (value.n > 1 && value.rd) rows["done again"] = plural(value.rd, "update");
    if (value.n > 1 && value.ls) rows.lost = plural(value.ls, "update");
    if (value.n === 1 && value.rd) rows[""] = "done again: an earlier attempt had done it";
    if (value.n === 1 && value.ls) rows["  "] = "lost: no checkpoint of the lineage has it";
    return rows;
  }
  if (value && value.k === "save") {
    return { title: `save of step ${value.s}, rank ${value.r}`, part: value.part === "stall" ? "training waits" : "in the background",
      time: fmt(value.t1 - value.t0), attempt: value.a, published: value.p ? "yes" : "never" };
  }
  if (value && value.k === "phase") return { title: `recovery, attempt ${value.a}`, part: value.part, time: fmt(value.t1 - value.t0) };
  if (value && value.kind) return { title: value.text, time: `${value.t.toFixed(3)} s`, attempt: value.attempt };
  return value;
}
function tooltips(_handler, event, _item, value) {
  if (value === null || value === undefined || value === "") hideTip();
  else {
    const at = event.changedTouches ? event.changedTouches[0] : event;
    showTip(at.clientX, at.clientY, told(value));
  }
}

const views = new Map();
async function draw(id) {
  const place = document.getElementById(id);
  const spec = specs[id];
  if (place.clientWidth < 560 && spec.padding) spec.padding = { ...spec.padding, left: 74, right: 10 };
  const room = spec.padding ? spec.padding.left + spec.padding.right : 2;
  spec.width = Math.max(160, place.clientWidth - room);
  const mode = spec.$schema.includes("vega-lite") ? "vega-lite" : "vega";
  const { view } = await vegaEmbed(place, spec, {
    mode, ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip: tooltips, loader: { load: () => Promise.reject() },
  });
  views.set(id, { view, room, width: place.clientWidth });
  return view;
}

async function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}
function summed(values) {
  const out = new Float64Array(values.length);
  for (let i = 0, total = 0; i < values.length; i += 1) out[i] = total += values[i];
  return out;
}
function firstEndingAfter(ends, at) {
  let low = 0;
  let high = ends.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

// A piece of several updates shows how many of them were done again, and how many were lost, by the height of each.
function shares(row) {
  const redone = row.rd / row.n;
  const lost = Math.min(row.ls / row.n, 1 - redone);
  if (redone === 1 || lost === 1) return [{ ...row, work: redone === 1 ? "redone" : "lost" }];
  const rows = [row];
  if (redone) rows.push({ ...row, label: "", work: "redone", y: row.y + row.h * (1 - redone), h: row.h * redone });
  if (lost) rows.push({ ...row, label: "", work: "lost", y: row.y + row.h * (1 - redone - lost), h: row.h * lost });
  return rows;
}

class Timeline {
  static MOST = 900; // pieces in view
  static TICK = 5; // pixels that a microbatch needs to be drawn
  static DENSE = 40; // kills in view, from which on their marks are small

  constructor(id, view, data) {
    this.id = id;
    this.view = view;
    this.end = data.end / 1e6;
    this.data = data;
    const unit = data.unit / 1e6; // seconds
    this.levels = data.levels.map((level) => level.lanes.map((lane) => {
      const start = new Float64Array(lane.start_us.length);
      const end = new Float64Array(start.length);
      for (let i = 0, at = 0; i < start.length; i += 1) {
        start[i] = (at + lane.start_us[i]) * unit;
        at += lane.start_us[i] + lane.end_us[i];
        end[i] = at * unit;
      }
      const first = summed(lane.first);
      return { ...lane, start, end, first, attempt: summed(lane.attempt), last: first.map((f, i) => f + lane.last[i]) };
    }));
    this.saves = data.saves.map((lane) => {
      const due = summed(lane.due_us).map((t) => t * unit);
      const [staged, written, published] = ["staged_us", "written_us", "published_us"].map((name) => lane[name].map((t) => (t < 0 ? -1 : t * unit)));
      const until = due.map((t, i) => t + Math.max(0, staged[i], written[i], published[i]));
      return { due, until, staged, published, step: summed(lane.step), attempt: summed(lane.attempt) };
    });
    this.ticks = data.ticks.map((ticks, number) => {
      const { start, end } = this.levels[0][number];
      const at = [];
      ticks.counts.forEach((count, i) => {
        for (let k = 0; k < count; k += 1) at.push(start[i] + ((end[i] - start[i]) * ticks.shares[at.length]) / 255);
      });
      return Float64Array.from(at);
    });
    this.kills = data.marks.filter((mark) => mark.kind === "kill").map((mark) => mark.t);
    this.told = -1; // number of the kill that was told of last
    this.box = document.getElementById(`${id}-box`);
    this.place = document.getElementById(id);
    this.listen();
    this.mapKills();
    this.show(-Infinity, Infinity);
  }

  show(lo, hi) {
    const span = Math.min(Math.max(hi - lo, 5e-4), this.end * 1.02 || 1);
    this.lo = Math.max(-0.01 * span, Math.min(lo, this.end - 0.99 * span)); // a little room on either side
    this.hi = this.lo + span;
    if (!this.waiting) {
      this.waiting = true;
      requestAnimationFrame(() => { this.waiting = false; this.redraw(); });
    }
  }

  redraw() {
    const { lo, hi } = this;
    const found = this.levels.map((lanes) => lanes.map((lane) => [firstEndingAfter(lane.end, lo), lane]));
    const counts = found.map((lanes) => lanes.reduce((n, [from, lane]) => n + firstEndingAfter(lane.start, hi) - from, 0));
    let level = counts.findIndex((n) => n <= Timeline.MOST);
    if (level < 0) level = counts.length - 1;
    const { view, data } = this;
    const kills = this.kills.filter((t) => t >= lo && t <= hi).length;
    view.signal("lo", lo).signal("hi", hi).signal("dense", kills > Timeline.DENSE);
    const pieces = found[level].flatMap(([from, lane], number) => this.pieces(lane, from, hi, data.lanes[number]));
    const second = view.width() / (hi - lo);
    const marks = data.marks.filter((mark) => mark.t >= lo && mark.t <= hi);
    const fences = marks.filter((mark) => mark.kind === "fence");
    view.data("pieces", pieces);
    view.data("labels", pieces.filter((row) => row.label && (Math.min(row.t1, hi) - Math.max(row.t0, lo)) * second > 7 + 7 * row.label.length));
    view.data("saves", this.saves.flatMap((lane, number) => this.saveRows(lane, lo, hi, data.lanes[number])));
    view.data("ticks", level === 0 && data.levels[0].bin === 0 ? this.tickRows(lo, hi) : []);
    view.data("phases", data.phases.filter(([s, e]) => e >= lo * 1e6 && s <= hi * 1e6)
      .map(([s, e, part, attempt]) => ({ k: "phase", t0: s / 1e6, t1: e / 1e6, part, a: attempt, y: data.h.top, h: data.h.recovery })));
    view.data("fences", fences);
    view.data("attempts", this.attempts(fences, second));
    view.data("kills", marks.filter((mark) => mark.kind === "kill"));
    view.data("symbols", marks.filter((mark) => mark.kind === "kill" || (kills <= Timeline.DENSE && mark.kind !== "fence")));
    view.runAsync();
    this.place.dataset.lo = lo;
    this.place.dataset.hi = hi;
    this.place.dataset.level = data.levels[level].bin;
    this.place.dataset.pieces = counts[level];
    const window = this.box.querySelector(".map i");
    window.style.left = `${(100 * Math.max(0, lo)) / this.end}%`;
    window.style.width = `${(100 * Math.min(hi - Math.max(0, lo), this.end)) / this.end}%`;
    this.box.querySelector(".window").textContent =
      `${Math.max(0, lo).toFixed(hi - lo < 1 ? 3 : 1)} to ${Math.min(hi, this.end).toFixed(hi - lo < 1 ? 3 : 1)} s of ${this.end.toFixed(1)} s`;
  }

  attempts(fences, second) { // names that do not cover one another
    let free = -Infinity;
    return fences.filter(({ t }) => {
      const shown = t * second >= free && (this.hi - t) * second > 70;
      if (shown) free = t * second + 84;
      return shown;
    }).map((mark) => ({ ...mark, label: `attempt ${mark.attempt}` }));
  }

  pieces(lane, from, until, place) {
    const rows = [];
    for (let i = from; i < lane.start.length && lane.start[i] <= until; i += 1) {
      const one = lane.updates[i] === 1;
      const row = { k: "step", r: place.rank, a: lane.attempt[i], f: lane.first[i], l: lane.last[i], n: lane.updates[i],
        rd: lane.redone[i], ls: lane.lost[i], w: lane.wait_us[i] * this.data.unit, t0: lane.start[i], t1: lane.end[i], y: place.y,
        h: this.data.h.steps, work: "kept", label: one ? String(lane.first[i]) : `${lane.first[i]}–${lane.last[i]}` };
      rows.push(...shares(row));
    }
    return rows;
  }

  saveRows(lane, a, b, place) {
    const rows = [];
    const least = (b - a) / 2000;
    let until = -Infinity;
    for (let i = firstEndingAfter(lane.until, a); i < lane.due.length && lane.due[i] <= b; i += 1) {
      if (lane.until[i] < until + least) continue; // narrower than a pixel beside the one before
      until = lane.until[i];
      const row = { k: "save", r: place.rank, s: lane.step[i], a: lane.attempt[i], p: lane.published[i] >= 0,
        y: place.y + this.data.h.steps + 1, h: this.data.h.saves };
      const staged = lane.due[i] + Math.max(0, lane.staged[i]);
      rows.push({ ...row, part: "stall", t0: lane.due[i], t1: staged });
      if (lane.until[i] > staged) rows.push({ ...row, part: "background", t0: staged, t1: lane.until[i] });
    }
    return rows;
  }

  tickRows(a, b) {
    const rows = this.ticks.flatMap((ticks, number) => {
      const from = firstEndingAfter(ticks, a);
      const until = firstEndingAfter(ticks, b);
      if ((until - from) * Timeline.TICK > this.view.width()) return [];
      return Array.from(ticks.subarray(from, until), (t) => ({ t, y: this.data.lanes[number].y, h: this.data.h.steps }));
    });
    return rows;
  }

  zoom(factor, at = (this.lo + this.hi) / 2) {
    this.show(at - (at - this.lo) * factor, at + (this.hi - at) * factor);
  }

  move(share) {
    const by = (this.hi - this.lo) * share;
    this.show(this.lo + by, this.hi + by);
  }

  kill(step) { // from the one told of last, if it is still in view; else from the edge of the view
    const { kills } = this;
    if (!kills.length) return;
    const last = kills[this.told];
    const seen = last >= this.lo && last <= this.hi;
    const found = step > 0 ? kills.findIndex((t) => (seen ? t > last : t >= this.lo)) : kills.findLastIndex((t) => (seen ? t < last : t <= this.hi));
    this.told = found >= 0 ? found : step > 0 ? 0 : kills.length - 1;
    const at = kills[this.told];
    const span = Math.min(this.hi - this.lo, Math.max(this.end / 400, this.around(at)));
    this.show(at - span / 2, at + span / 2);
    const mark = this.data.marks.find((each) => each.kind === "kill" && each.t === at);
    const box = this.place.getBoundingClientRect();
    showTip(box.left + box.width / 2, box.bottom - 24, told(mark));
  }

  around(at) { // seconds that show the recovery from this kill whole
    const after = this.data.phases.filter(([s, e]) => e / 1e6 >= at && s / 1e6 <= at + 60).map(([, e]) => e / 1e6 - at);
    return after.length ? 3 * Math.max(...after.slice(0, 4)) : 2;
  }

  act(what) {
    const acts = { in: () => this.zoom(0.5), out: () => this.zoom(2), left: () => this.move(-0.4), right: () => this.move(0.4),
      all: () => this.show(-Infinity, Infinity), next: () => this.kill(1), previous: () => this.kill(-1) };
    acts[what]?.();
  }

  timeAt(clientX) {
    const box = this.place.getBoundingClientRect();
    const [left] = this.view.origin();
    return this.lo + ((clientX - box.left - left) / this.view.width()) * (this.hi - this.lo);
  }

  listen() {
    const { place } = this;
    this.box.querySelector(".tools").addEventListener("click", (event) => this.act(event.target.dataset.do));
    const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all", Home: "all", n: "next", N: "next", p: "previous", P: "previous" };
    place.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
      event.preventDefault();
      this.act(keys[event.key]);
    });
    place.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(event.deltaY / 240), this.timeAt(event.clientX));
      else this.move(event.deltaX / 900);
    }, { passive: false });
    place.addEventListener("dblclick", (event) => this.zoom(0.35, this.timeAt(event.clientX)));
    this.drag();
  }

  drag() {
    const { place } = this;
    const down = new Map();
    let before = null;
    const state = () => {
      const xs = [...down.values()];
      return xs.length > 1 ? [(xs[0] + xs[1]) / 2, Math.abs(xs[0] - xs[1])] : [xs[0], 0];
    };
    place.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      down.set(event.pointerId, event.clientX);
      before = state();
    });
    place.addEventListener("pointermove", (event) => {
      if (!down.has(event.pointerId)) return;
      if (!place.classList.contains("moving") && Math.abs(event.clientX - down.get(event.pointerId)) < 4) return;
      place.setPointerCapture(event.pointerId);
      place.classList.add("moving");
      down.set(event.pointerId, event.clientX);
      const now = state();
      const perPixel = (this.hi - this.lo) / this.view.width();
      const by = (before[0] - now[0]) * perPixel;
      this.show(this.lo + by, this.hi + by);
      if (before[1] > 20 && now[1] > 20) this.zoom(before[1] / now[1], this.timeAt(now[0]));
      before = now;
      hideTip();
    });
    const up = (event) => {
      down.delete(event.pointerId);
      before = down.size ? state() : null;
      if (!down.size) place.classList.remove("moving");
    };
    place.addEventListener("pointerup", up);
    place.addEventListener("pointercancel", up);
  }

  mapKills() {
    const map = this.box.querySelector(".map");
    for (const t of this.kills) map.appendChild(document.createElement("b")).style.left = `${(100 * t) / this.end}%`;
  }
}

function resized() {
  for (const [id, seen] of views) {
    const width = document.getElementById(id).clientWidth;
    if (width !== seen.width) {
      seen.width = width;
      seen.view.width(Math.max(160, width - seen.room)).resize().runAsync();
    }
  }
}

function controls() {
  const root = document.documentElement;
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "copied";
      } catch { // a page from a file may not be let near the clipboard: the text is selected instead
        getSelection().selectAllChildren(code);
      }
    });
  }
  addEventListener("scroll", hideTip, { passive: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
  let timer = 0;
  addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(resized, 120); });
  addEventListener("beforeprint", () => { for (const each of document.querySelectorAll("details")) each.open = true; });
}

const breath = () => new Promise((go) => { setTimeout(go, 0); });

controls();
const specs = await unpacked("specs");
const ids = Object.keys(specs);
for (const id of ids) { // in the page's order: what is looked at first is there first
  const view = await draw(id);
  const packed = document.getElementById(id).dataset.packed;
  if (packed) new Timeline(id, view, await unpacked(packed));
  await breath();
}
document.documentElement.dataset.ready = String(ids.length);
