// Lines over time as SVG, from what the server counted in intervals of one length.

const box = document.querySelector("[data-charts]");
const state = document.getElementById("charts-state");
const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 180, LEFT = 50, RIGHT = 8, TOP = 10, BOTTOM = 22;
const REFRESH_LEAST = 2000, REFRESH_MOST = 30000;
// A window as narrow as this gets fewer marks on its axis.
const NARROW = 420;
// A line of fewer pixels is drawn as dots.
const SHORTEST = 6;

// The marks on the axis of time: [unit, its milliseconds, marks, marks in a narrow window].
const MINUTE = 60000, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const MARKS = {
  "10m": ["min", MINUTE, [10, 8, 6, 4, 2], [10, 5]],
  "1h": ["min", MINUTE, [60, 45, 30, 15], [60, 30]],
  "6h": ["h", HOUR, [6, 5, 4, 3, 2, 1], [6, 3]],
  "24h": ["h", HOUR, [24, 18, 12, 6], [24, 12]],
  "7d": ["d", DAY, [7, 6, 5, 4, 3, 2, 1], [7, 4]],
  "30d": ["d", DAY, [30, 25, 20, 15, 10, 5], [30, 15]],
};

// By the moment at which they begin. The last one grows until its interval is over, and comes again.
let samples = [];
let data = { now: 0, seconds: 2, span: 1, groups: [], bounds: [] };

if (box) {
  refresh();
  addEventListener("resize", () => samples.length && draw());
}

async function refresh() {
  try {
    const since = samples.length ? samples[samples.length - 1].at : 0;
    const url = `${box.dataset.charts}?range=${box.dataset.range}&since=${since}`;
    const answer = await fetch(url, { headers: { Accept: "application/json" } });
    if (answer.status === 401) {
      location.reload();
      return;
    }
    data = await answer.json();
    const first = data.samples[0]?.at ?? Infinity;
    // What is older than the range goes, and what lies ahead of a clock that was set back.
    const stays = (sample) => sample.at < first && sample.at > data.now - data.span && sample.at <= data.now;
    samples = samples.filter(stays).concat(data.samples);
    if (samples.length) draw();
    state.textContent = `The charts cover the last ${box.dataset.title} and refresh by themselves.`;
    box.dataset.ready = samples.length ? "yes" : "no";
  } catch {
    state.textContent = "The server does not answer; trying again.";
  }
  setTimeout(refresh, Math.min(Math.max(data.seconds * 1000, REFRESH_LEAST), REFRESH_MOST));
}

function draw() {
  const points = (value) => samples.map((sample) => [sample.at, value(sample)]);
  const rate = (n) => points((s) => (s.seconds > 0 ? s.operations[n] / s.seconds : null));
  const titles = { searches: "Search and compare", changes: "Changes", binds: "Bind" };
  chart("chart-operations", data.groups.map((name, n) => ({ title: titles[name] ?? name, points: rate(n) })), { sum: true });

  const lines = data.groups.flatMap((name, n) =>
    [["median", 0.5], ["p99", 0.99]].map(([part, share]) => ({
      title: `${name} ${part}`,
      colour: n + 1,
      dashed: share > 0.5,
      points: points((s) => percentile(s.latencies[n], share)),
    })),
  );
  const known = lines.filter((line) => line.points.some(([, y]) => y !== null));
  chart("chart-latency", known, { log: true, legend: true, write: duration, what: "slowest p99" });
  chart("chart-connections", [{ title: "Open", points: points((s) => s.connections) }]);
  chart("chart-writes", [
    { title: "Waiting", points: points((s) => s.waiting) },
    { title: "In one commit", points: points((s) => (s.groups > 0 ? s.changes / s.groups : null)) },
  ]);
}

// The upper bound of the bucket in which the part lies, in milliseconds.
function percentile(counts, share) {
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (all <= 0) return null;
  let left = all * share;
  for (let n = 0; n < counts.length; n++) {
    left -= counts[n];
    if (left <= 0) return data.bounds[Math.min(n, data.bounds.length - 1)];
  }
  return data.bounds[data.bounds.length - 1];
}

function chart(id, series, { sum = false, log = false, legend = series.length > 1, write = short, what = "" } = {}) {
  const figure = document.getElementById(id);
  const svg = figure.querySelector("svg");
  const unit = figure.dataset.unit;
  const width = svg.clientWidth || 600;
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  const end = data.now, start = end - data.span;
  const values = series.flatMap((one) => one.points.map(([, y]) => y ?? 0)).filter((y) => y > 0);
  const highest = Math.max(0, ...values);
  // A sample stands in the middle of its interval, the last one at the end.
  const middle = (at) => Math.min(at + data.seconds * 500, end);
  const x = (at) => LEFT + ((at - start) / data.span) * (width - LEFT - RIGHT);
  const scale = log ? logarithmic(values, highest) : linear(highest);
  const y = (value) => HEIGHT - BOTTOM - scale.share(value) * (HEIGHT - TOP - BOTTOM);
  const parts = [];
  for (const tick of scale.ticks) {
    parts.push(node("line", { x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick), class: "grid" }));
    parts.push(text(LEFT - 6, y(tick) + 4, "end", write(tick)));
  }
  const [word, long, wide, narrow] = MARKS[box.dataset.range];
  const marks = width < NARROW ? narrow : wide;
  marks.forEach((mark, n) => {
    parts.push(text(x(end - mark * long), HEIGHT - 5, n === 0 ? "start" : "middle", `−${mark} ${word}`));
  });
  parts.push(text(width - RIGHT, HEIGHT - 5, "end", "now"));
  series.forEach((one, n) => {
    const look = `line series-${one.colour ?? n + 1}`;
    const runs = unbroken(one.points.filter(([at]) => middle(at) >= start));
    const place = ([at, value]) => `${x(middle(at)).toFixed(1)} ${y(value).toFixed(1)}`;
    const isLine = (run) => x(run[run.length - 1][0]) - x(run[0][0]) >= SHORTEST;
    const path = runs.filter(isLine).map((run) => `M${run.map(place).join("L")}`);
    if (path.length) parts.push(node("path", { d: path.join(""), class: `${look}${one.dashed ? " dashed" : ""}` }));
    // Samples without neighbours are dots: a line of next to no length would not be seen.
    const dots = runs.filter((run) => !isLine(run)).flat().map((point) => `M${place(point)}h0.01`);
    if (dots.length) parts.push(node("path", { d: dots.join(""), class: `${look} dot` }));
  });
  svg.replaceChildren(...parts);
  const entries = legend ? series.map((one, n) => entry(one, n, write)) : [];
  figure.querySelector(".legend").replaceChildren(...entries);
  const known = series.map((one) => latest(one.points)).filter((value) => value !== null);
  const shown = sum ? known.reduce((sum, value) => sum + value, 0) : Math.max(...known, 0);
  const now = known.length ? `${what} ${write(shown)} ${unit}`.trim() : "nothing yet";
  figure.querySelector(".now").textContent = now;
  const title = figure.querySelector(".title").textContent;
  const each = series.map((one) => `${one.title} ${said(one.points, write)}`).join("; ");
  svg.setAttribute("aria-label", `${title}, the last ${box.dataset.title}. ${each || "Nothing yet"}`);
}

// What a chart says to those who do not see it.
function said(points, write) {
  const known = points.map(([, value]) => value).filter((value) => value !== null);
  if (!known.length) return "none";
  return `now ${write(latest(points) ?? 0)}, at most ${write(Math.max(...known))}`;
}

// The stretches of a line: it is broken where there is no value, and where the server was not looked at.
function unbroken(points) {
  const runs = [];
  let last = -Infinity;
  for (const point of points) {
    if (point[1] === null) {
      last = -Infinity;
      continue;
    }
    if (point[0] - last > data.seconds * 2500) runs.push([]);
    runs[runs.length - 1].push(point);
    last = point[0];
  }
  return runs;
}

function entry(one, n, write) {
  const item = document.createElement("li");
  const mark = node("svg", { viewBox: "0 0 24 8", "aria-hidden": "true" });
  mark.append(node("path", { d: "M0 4H24", class: `line series-${one.colour ?? n + 1}${one.dashed ? " dashed" : ""}` }));
  const value = latest(one.points);
  item.append(mark, value === null ? one.title : `${one.title} ${write(value)}`);
  return item;
}

function latest(points) {
  for (let n = points.length - 1; n >= 0 && n > points.length - 5; n--) {
    if (points[n][1] !== null) return points[n][1];
  }
  return null;
}

function text(x, y, anchor, words) {
  const made = node("text", { x, y, "text-anchor": anchor, class: "axis" });
  made.textContent = words;
  return made;
}

function node(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Whole numbers, with four steps or fewer where that can be.
function linear(highest) {
  const most = Math.max(highest, 1), rough = most / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, Math.round([1, 2, 5, 10].map((times) => times * power).find((one) => one >= rough)));
  const top = Math.ceil(most / step) * step;
  const ticks = [];
  for (let tick = 0; tick <= top; tick += step) ticks.push(tick);
  return { ticks, share: (value) => value / top };
}

// Each step is ten times the one before: what takes microseconds is seen beside what takes seconds.
function logarithmic(values, highest) {
  const low = Math.floor(Math.log10(Math.min(...values, 0.1)));
  const high = Math.max(Math.ceil(Math.log10(highest || 1)), low + 1);
  const ticks = [];
  for (let power = low; power <= high; power++) ticks.push(10 ** power);
  return { ticks, share: (value) => (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low) };
}

function short(value) {
  if (value >= 1e7) return `${+(value / 1e6).toFixed(1)}M`;
  if (value >= 1e4) return `${+(value / 1e3).toFixed(1)}k`;
  if (value >= 100 || Number.isInteger(value)) return `${Math.round(value)}`;
  return `${+value.toPrecision(2)}`;
}

// Milliseconds in the unit in which they are a whole number.
function duration(value) {
  if (value >= 1000) return `${+(value / 1000).toPrecision(3)} s`;
  if (value >= 1) return `${+value.toPrecision(3)} ms`;
  return `${+(value * 1000).toPrecision(3)} µs`;
}
