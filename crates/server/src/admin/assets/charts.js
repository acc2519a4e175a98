// Lines over time as SVG, from counters that the server sampled.

const box = document.querySelector("[data-charts]");
const state = document.getElementById("charts-state");
const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 180, LEFT = 44, RIGHT = 6, TOP = 10, BOTTOM = 22;
const SPAN = 10 * 60 * 1000, REFRESH = 2000, KEPT = 300;

let samples = [];
let next = 0;
let names = { operations: [], groups: [], bounds: [] };

if (box) refresh();

async function refresh() {
  try {
    const answer = await fetch(`${box.dataset.charts}?since=${next}`, { headers: { Accept: "application/json" } });
    if (answer.status === 401) {
      location.reload();
      return;
    }
    const data = await answer.json();
    if (data.next < next) samples = [];
    names = data;
    next = data.next;
    samples = samples.concat(data.samples).slice(-KEPT);
    if (samples.length > 1) draw();
    state.textContent = "The charts cover the last ten minutes and refresh by themselves.";
    box.dataset.ready = samples.length > 1 ? "yes" : "no";
  } catch {
    state.textContent = "The server does not answer; trying again.";
  }
  setTimeout(refresh, REFRESH);
}

function draw() {
  const rate = (figure) => pairs((one, two, seconds) => (figure(two) - figure(one)) / seconds);
  const kinds = [["Search", "Compare"], ["Bind"], ["Add", "Modify", "Modrdn", "Delete"]];
  const titles = ["Search and compare", "Bind", "Changes"];
  const places = kinds.map((kind) => kind.map((name) => names.operations.indexOf(name)));
  const total = (sample, at) => at.reduce((all, n) => all + (sample.operations[n] ?? 0), 0);
  chart("chart-operations", places.map((at, n) => ({ title: titles[n], points: rate((s) => total(s, at)) })), { sum: true });

  const groups = ["searches", "changes", "binds"];
  const lines = groups.flatMap((name, n) =>
    [0.5, 0.99].map((part) => ({
      title: part > 0.5 ? `99 of 100 ${name}` : `half of ${name}`,
      colour: n + 1,
      dashed: part > 0.5,
      points: pairs((one, two) => percentile(one.latencies[n], two.latencies[n], part)),
    })),
  );
  chart("chart-latency", lines.filter((line) => line.points.some(([, y]) => y !== null)), { log: true });
  chart("chart-connections", [{ title: "Open", points: samples.map((s) => [s.at, s.connections]) }]);
  const together = (one, two) => (two.groups > one.groups ? (two.changes - one.changes) / (two.groups - one.groups) : null);
  chart("chart-writes", [
    { title: "Waiting", points: samples.map((s) => [s.at, s.waiting]) },
    { title: "In one commit", points: pairs(together) },
  ]);
}

function pairs(value) {
  return samples.slice(1).map((two, n) => {
    const one = samples[n];
    return [two.at, value(one, two, Math.max((two.at - one.at) / 1000, 0.001))];
  });
}

// The upper bound of the bucket in which the part lies, in milliseconds.
function percentile(before, after, part) {
  const counts = after.map((count, n) => count - before[n]);
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (all <= 0) return null;
  let left = all * part;
  for (let n = 0; n < counts.length; n++) {
    left -= counts[n];
    if (left <= 0) return names.bounds[Math.min(n, names.bounds.length - 1)];
  }
  return names.bounds[names.bounds.length - 1];
}

function chart(id, series, { sum = false, log = false } = {}) {
  const figure = document.getElementById(id);
  const svg = figure.querySelector("svg");
  const unit = figure.dataset.unit;
  const width = svg.clientWidth || 600;
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  const end = samples[samples.length - 1].at, start = end - SPAN;
  const values = series.flatMap((one) => one.points.map(([, y]) => y ?? 0)).filter((y) => y > 0);
  const highest = Math.max(0, ...values);
  const x = (at) => LEFT + ((at - start) / SPAN) * (width - LEFT - RIGHT);
  const scale = log ? logarithmic(values, highest) : linear(highest);
  const y = (value) => HEIGHT - BOTTOM - scale.share(value) * (HEIGHT - TOP - BOTTOM);
  const parts = [];
  for (const tick of scale.ticks) {
    parts.push(node("line", { x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick), class: "grid" }));
    const label = node("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end", class: "axis" });
    label.textContent = short(tick);
    parts.push(label);
  }
  for (const minutes of [10, 5, 0]) {
    const anchor = minutes === 0 ? "end" : minutes === 10 ? "start" : "middle";
    const label = node("text", { x: x(end - minutes * 60000), y: HEIGHT - 5, "text-anchor": anchor, class: "axis" });
    label.textContent = minutes === 0 ? "now" : `−${minutes} min`;
    parts.push(label);
  }
  series.forEach((one, n) => {
    let path = "", pen = false;
    for (const [at, value] of one.points) {
      if (at < start) continue;
      if (value === null) {
        pen = false;
        continue;
      }
      path += `${pen ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      if (!pen) path += "h0.1";
      pen = true;
    }
    parts.push(node("path", { d: path || "M0 0", class: `line series-${one.colour ?? n + 1}${one.dashed ? " dashed" : ""}` }));
  });
  svg.replaceChildren(...parts);
  figure.querySelector(".legend").replaceChildren(...(series.length > 1 ? series.map(entry) : []));
  const last = series.map((one) => latest(one.points));
  const known = last.filter((value) => value !== null);
  const shown = sum ? known.reduce((sum, value) => sum + value, 0) : Math.max(...known, 0);
  const text = known.length ? `${short(shown)} ${unit}` : "nothing yet";
  figure.querySelector(".now").textContent = text;
  svg.setAttribute("aria-label", `${figure.querySelector(".title").textContent}: now ${text}`);
}

function entry(one, n) {
  const item = document.createElement("li");
  const mark = node("svg", { viewBox: "0 0 24 8", "aria-hidden": "true" });
  mark.append(node("path", { d: "M0 4H24", class: `line series-${one.colour ?? n + 1}${one.dashed ? " dashed" : ""}` }));
  const value = latest(one.points);
  item.append(mark, value === null ? one.title : `${one.title} ${short(value)}`);
  return item;
}

function latest(points) {
  for (let n = points.length - 1; n >= 0 && n > points.length - 5; n--) {
    if (points[n][1] !== null) return points[n][1];
  }
  return null;
}

function node(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function linear(highest) {
  const top = nice(highest);
  return { ticks: [0, top / 2, top], share: (value) => value / top };
}

// Each step is ten times the one before: what takes microseconds is seen beside what takes seconds.
function logarithmic(values, highest) {
  const low = Math.floor(Math.log10(Math.min(...values, 0.1)));
  const high = Math.max(Math.ceil(Math.log10(highest || 1)), low + 1);
  const ticks = [];
  for (let power = low; power <= high; power++) ticks.push(10 ** power);
  return { ticks, share: (value) => (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low) };
}

function nice(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

function short(value) {
  if (value >= 1e6) return `${+(value / 1e6).toFixed(1)}M`;
  if (value >= 1e4) return `${+(value / 1e3).toFixed(1)}k`;
  if (value >= 100 || Number.isInteger(value)) return `${Math.round(value)}`;
  return `${+value.toPrecision(2)}`;
}
