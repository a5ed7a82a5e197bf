"use strict";
// The report's own script: charts, drawn by uPlot; a pair opens in the dialog.

const colour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const share = (value) => (value === null ? "-" : Math.round(100 * value) + " %");
const dollars = (value) => (value === null ? "unknown" : `$${Number(value.toPrecision(2))}`);

function shortened(text, most) {
  if (text.length <= most) return text;
  const half = Math.floor((most - 1) / 2);
  return `${text.slice(0, half)}…${text.slice(-half)}`;
}

// --- one pair -----------------------------------------------------------------------------------

function facts(pair) {
  const parts = [
    { failed: "failed by the candidate", void: "no answer", pending: "under way", unfinished: "unfinished" }[pair.state] ?? null,
    pair.score === null ? null : `score ${share(pair.score)}`,
    pair.finish ? `finished: ${pair.finish}` : null,
    pair.attempts === null ? null : `${pair.attempts} attempt${pair.attempts === 1 ? "" : "s"}`,
    pair.tokens === null ? null : `${count(pair.tokens)} tokens`,
    pair.usd === null ? null : dollars(pair.usd),
    pair.seconds ? `${Number(pair.seconds.toPrecision(2))} s` : null,
    pair.cached ? "from the cache" : null,
    pair.failure,
  ];
  return parts.filter((part) => part !== null).join(" · ");
}

// Open a pair: `texts` are numbered, `list` are the pairs that previous and next go through.
function openPair(dialog, pair, { label, texts, list }) {
  const block = (title, number) =>
    number === null ? [] : [h("h3", {}, title), h("pre", {}, texts[number])];
  const folded = (title, number) => number === null ? []
    : [h("details", {}, h("summary", {}, title), h("pre", {}, texts[number]))];
  const at = list.indexOf(pair);
  const go = (step) => {
    const other = list[at + step];
    if (other) openPair(dialog, other, { label, texts, list });
  };
  const move = (text, step) => h("button", {
    type: "button", disabled: !list[at + step], onclick: () => go(step),
  }, text);
  const votes = pair.votes.map(([by, said, value, why]) =>
    h("p", {}, h("strong", {}, `${by}: ${said}`), ` (${share(value)}) ${why}`));
  dialog.replaceChildren(
    h("div", { class: "tools" }, move("← previous", -1), move("next →", 1),
      h("button", { type: "button", onclick: () => dialog.close() }, "close")),
    h("h2", {}, label(pair)),
    h("p", { class: "dim" }, `example ${pair.example} · ${facts(pair)}`),
    ...block("Prompt", pair.prompt), ...pictures(pair.pictures),
    ...folded("Reasoning, which is not scored", pair.reasoning), ...block("Reply", pair.reply),
    ...block("Answer read", pair.answer), ...block("Target", pair.target),
    ...block("Message", pair.message),
    ...(votes.length ? [h("h3", {}, "Judge"), ...votes] : []));
  dialog.onkeydown = (event) => {
    if (event.key === "ArrowLeft") go(-1);
    if (event.key === "ArrowRight") go(1);
  };
  if (!dialog.open) dialog.showModal();
}

// --- charts -------------------------------------------------------------------------------------

function axis(label, values, more = {}) {
  return {
    label, values, stroke: colour("dim"), grid: { stroke: colour("line"), width: 1 },
    ticks: { stroke: colour("line"), width: 1 }, labelSize: 18, labelGap: 0, font: "12px system-ui", labelFont: "12px system-ui",
    ...more,
  };
}

// Draw a chart with a legend and a line that tells what is under the pointer.
function chart(place, { data, series, x, y, legend = [], tell = null, ...more }) {
  const status = h("p", { class: "status", "aria-live": "polite" });
  const box = h("div", { role: "img", "aria-label": place.dataset.title });
  const entries = legend.map(([name, text]) =>
    h("li", {}, svg("svg", { viewBox: "0 0 1 1" }, svg("rect", { width: 1, height: 1, fill: `var(--${name})` })), text));
  place.replaceChildren(h("ul", { class: "legend" }, ...entries), box, status);
  return new uPlot({
    width: place.clientWidth, height: 300, legend: { show: false }, padding: [8, 28, 0, 0],
    cursor: { drag: { x: false, y: false }, points: { show: false }, y: false },
    series: [{}, ...series], axes: [x, y],
    ...more,
    hooks: {
      ...more.hooks,
      setCursor: [(u) => { status.textContent = (tell && tell(u)) ?? ""; }],
    },
  }, data, box);
}

// the colour of a state that has none of its own name
const SHADES = { take: "best", leading: "best", equal: "open", undecided: "open", worse: "beaten",
  barred: "beaten", dropped: "beaten", unmeasured: "bad" };
const shade = (state) => SHADES[state] ?? state;
const NAMED = 6;  // candidates with their names in a chart
const LINES = ["line-1", "line-2", "line-3", "line-4", "line-5"];

function drawRace(place, { race }, candidates) {
  const labels = race.rows.map((row) => candidates.get(row).label);
  // the first few scores say little, and would fill the chart
  const late = race.mean.flatMap((means) => means.slice(Math.floor(means.length / 4)));
  const n = race.rows.length, means = late.filter((value) => value !== null);
  const lowest = Math.min(...means), highest = Math.max(...means);
  // an interval that is wider than the chart is high would only tint it
  const narrow = (ends) => ends.map((line, k) => line.map((end, at) =>
    race.upper[k][at] - race.lower[k][at] > highest - lowest + 0.2 ? null : end));
  const data = [race.told, ...race.mean, ...narrow(race.upper), ...narrow(race.lower)];
  const faint = (name) => `color-mix(in srgb, ${colour(name)} 10%, transparent)`;
  chart(place, {
    data,
    series: [
      ...race.rows.map((_, k) => ({ stroke: colour(LINES[k]), width: k ? 1.5 : 3, points: { show: false } })),
      ...race.rows.map(() => ({ width: 0, points: { show: false } })),
      ...race.rows.map(() => ({ width: 0, points: { show: false } })),
    ],
    bands: race.rows.slice(0, 3).map((_, k) => ({ series: [1 + n + k, 1 + 2 * n + k], fill: faint(LINES[k]) })),
    scales: { x: { time: false }, y: { range: [Math.max(0, lowest - 0.1), Math.min(1, highest + 0.1)] } },
    x: axis("answers", (u, at) => at.map(count)),
    y: axis("", (u, at) => at.map(share)),
    legend: labels.map((label, k) => [LINES[k], label]),
    hooks: { draw: [(u) => {
      u.ctx.fillStyle = colour("ink");
      const bottom = u.bbox.top + u.bbox.height, tick = 8 * devicePixelRatio;
      for (const at of race.left)
        u.ctx.fillRect(u.valToPos(at, "x", true), bottom - tick, devicePixelRatio, tick);
    }] },
    tell: (u) => {
      const at = u.cursor.idx;
      if (at === null || at === undefined) return null;
      const gone = race.left.filter((left) => left <= race.told[at]).length;
      const now = labels.map((label, k) => `${label} ${share(race.mean[k][at])}`);
      return `after ${count(race.told[at])} answers: ${now.join(", ")}; ${gone} asked no more`;
    },
  });
}

// Two quantities of the candidates, chosen in the lists above the chart, against each other.
function drawPareto(place, data) {
  const { candidates, axes, states } = data;
  const named = (key) => axes.find((one) => one.key === key);
  if (axes.length < 2) { place.closest("section").remove(); return; }
  const yKey = place.dataset.y ?? (named("estimate") ?? axes[1]).key;
  const xKey = place.dataset.x ?? axes.find((one) => one.key !== yKey).key;
  const pick = (side, chosen) => h("label", {}, side === "x" ? "across " : "up ",
    h("select", { onchange: (event) => { place.dataset[side] = event.target.value; drawPareto(place, data); } },
      ...axes.map((one) => h("option", { value: one.key, selected: one.key === chosen }, one.label))));
  const lists = document.getElementById("pareto-axes");
  if (!lists.children.length) lists.append(pick("x", xKey), pick("y", yKey));
  const [across, up] = [named(xKey), named(yKey)], at = (one, { key }) => one.values[key];
  const shown = candidates.filter((one) => at(one, across) !== null && at(one, up) !== null);
  const rank = (one, scale) => (scale.low ? 1 : -1) * at(one, scale);
  shown.sort((a, b) => rank(a, across) - rank(b, across) || rank(a, up) - rank(b, up));
  let best = Infinity;
  const front = shown.filter((one) => rank(one, up) < best && (best = rank(one, up), true));
  const isShare = ({ key }) => key === "estimate" || key.startsWith("measure: ");
  const amount = (value, scale) => scale.key === "price" ? dollars(value) : isShare(scale) ? share(value)
    : count(Number(value.toPrecision(3)));
  const rangeOf = (scale) => {
    if (isShare(scale)) return { time: false, range: [0, 1] };
    const values = shown.map((one) => at(one, scale));
    const range = [Math.min(...values) / 1.5, Math.max(...values) * 1.5];
    return { time: false, distr: range[1] > 20 * range[0] ? 3 : 1, range };
  };
  const draw = (u) => {
    const ctx = u.ctx, ratio = devicePixelRatio;
    const point = (x, y) => [u.valToPos(x, "x", true), u.valToPos(y, "y", true)];
    const spot = (one) => point(at(one, across), at(one, up));
    ctx.save();
    ctx.lineWidth = 1.5 * ratio;
    ctx.strokeStyle = colour("dim");
    ctx.setLineDash([4 * ratio, 3 * ratio]);
    ctx.beginPath();
    front.forEach((one, k) => {
      if (k) ctx.lineTo(...point(at(one, across), at(front[k - 1], up)));
      ctx.lineTo(...spot(one));
    });
    ctx.stroke();
    ctx.setLineDash([]);
    for (const one of [...shown].reverse()) {
      ctx.strokeStyle = ctx.fillStyle = colour(shade(one.state));
      const ends = [one.lower, one.upper];
      if (shown.length <= 60 || front.includes(one)) {
        ctx.globalAlpha = 0.35;
        ctx.beginPath();
        if (yKey === "estimate") for (const end of ends) ctx.lineTo(...point(at(one, across), end));
        else if (xKey === "estimate") for (const end of ends) ctx.lineTo(...point(end, at(one, up)));
        ctx.stroke();
        ctx.globalAlpha = 1;
      }
      ctx.beginPath();
      ctx.arc(...spot(one), 4.5 * ratio, 0, 2 * Math.PI);
      if (["take", "leading", "worse"].includes(one.state)) ctx.fill(); else ctx.stroke();
    }
    ctx.fillStyle = colour("ink");
    ctx.font = `${12 * ratio}px system-ui`;
    [ctx.textAlign, ctx.textBaseline] = ["left", "alphabetic"];  // those of the axes are others
    const right = u.bbox.left + u.bbox.width;
    const taken = [];
    for (const one of front.slice(-NAMED).reverse()) {
      const text = shortened(one.label, 24), [x, y] = spot(one), wide = ctx.measureText(text).width;
      const box = [Math.min(x + 8 * ratio, right - wide), Math.max(y - 8 * ratio, u.bbox.top + 12 * ratio)];
      const meets = ([left, base, size]) => Math.abs(base - box[1]) < 14 * ratio && box[0] < left + size && left < box[0] + wide;
      if (taken.some(meets)) continue;
      taken.push([...box, wide]);
      ctx.fillText(text, ...box);
    }
    ctx.restore();
  };
  const nearest = (u) => {
    let found = null, least = 30 ** 2;
    for (const one of shown) {
      const dx = u.valToPos(at(one, across), "x") - u.cursor.left, dy = u.valToPos(at(one, up), "y") - u.cursor.top;
      if (dx * dx + dy * dy < least) { least = dx * dx + dy * dy; found = one; }
    }
    return found;
  };
  const marksOf = (scale) => (u, marks) => marks.map((v) => v === null ? "" : amount(v, scale));
  chart(place, {
    data: [shown.map((one) => at(one, across)), shown.map((one) => at(one, up))],
    series: [{ paths: () => null, points: { show: false } }],
    scales: { x: rangeOf(across), y: rangeOf(up) },
    x: axis(across.label, marksOf(across)),
    y: axis("", marksOf(up), isShare(up) ? {} : { size: 64 }),
    legend: Object.keys(states).filter((state) => shown.some((one) => one.state === state))
      .map((state) => [shade(state), states[state]]),
    hooks: { draw: [draw] },
    tell: (u) => {
      const one = u.cursor.left < 0 ? null : nearest(u);
      const said = (scale) => amount(at(one, scale), scale) +
        (scale.key === "estimate" ? ` (${share(one.lower)} to ${share(one.upper)})` : "");
      return one && `${one.label}: ${said(across)}, ${said(up)}`;
    },
  });
}

// --- the matrix ---------------------------------------------------------------------------------

const CELLS = { ".": ["soft", "not asked"], p: ["pending", "pending"], u: ["pending", "unfinished"], v: ["void", "no answer"],
  f: ["failed", "failed by the candidate"] };

function cellColour(code) {
  if (code in CELLS) return colour(CELLS[code][0]);
  return code === "9" ? colour("right") : code === "0" ? colour("wrong")
    : `color-mix(in srgb, ${colour("right")} ${Math.round(code / 0.09)}%, ${colour("wrong")})`;
}

function drawMatrix(place, { matrix, graded }, candidates, open) {
  const n = matrix.rows.length, m = matrix.examples.length;
  const named = place.clientWidth > 600;
  const height = n <= 40 ? 18 : n <= 80 ? 14 : Math.max(3, Math.floor(600 / n)), left = named ? 220 : 0;
  const step = Math.ceil(14 / height);  // rows from one label to the next
  const width = (place.clientWidth - left) / m, ratio = devicePixelRatio || 1;
  const canvas = h("canvas", { class: "matrix", tabindex: "0", role: "application",
    "aria-label": "Candidates by examples; arrow keys move, Enter opens an answer",
    width: Math.round(place.clientWidth * ratio), height: Math.round(n * height * ratio) });
  canvas.style.width = `${place.clientWidth}px`;
  const status = h("p", { class: "status", "aria-live": "polite" });
  const used = new Set(matrix.cells.join(""));
  const kinds = [["right", graded ? "score 1" : "right"], ["wrong", graded ? "score 0" : "wrong"],
    ...["f", "v", "p", "u"].filter((code) => used.has(code)).map((code) => CELLS[code]), CELLS["."]];
  const legend = h("ul", { class: "legend" }, ...kinds.map(([name, text]) => {
    const mark = h("canvas", { width: 12, height: 12 });
    const ctx = mark.getContext("2d");
    ctx.fillStyle = colour(name);
    ctx.fillRect(0, 0, 12, 12);
    return h("li", {}, mark, ` ${text}`);
  }));
  const ctx = canvas.getContext("2d");
  const known = {};
  let at = null;
  function paint() {
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, place.clientWidth, n * height);
    matrix.cells.forEach((line, i) => {
      for (let j = 0; j < m; j++) {
        ctx.fillStyle = known[line[j]] ??= cellColour(line[j]);
        ctx.fillRect(left + j * width, i * height, width > 4 ? width - 1 : width, height > 6 ? height - 1 : height);
      }
      if (!named || i % step) return;
      ctx.fillStyle = colour("ink");
      ctx.font = "12px system-ui";
      ctx.fillText(shortened(candidates.get(matrix.rows[i]).label, 32), 0, i * height + 12, left - 8);
    });
    if (at === null) return;
    ctx.strokeStyle = colour("ink");
    ctx.lineWidth = 2;
    ctx.strokeRect(left + at[1] * width, at[0] * height, Math.max(width, 3), height);
  }
  function look(i, j) {
    at = [Math.min(n - 1, Math.max(0, i)), Math.min(m - 1, Math.max(0, j))];
    const code = matrix.cells[at[0]][at[1]];
    const said = code in CELLS ? CELLS[code][1] : graded ? `score ${share(code / 9)}`
      : code === "9" ? "right" : "wrong";
    status.textContent = `${candidates.get(matrix.rows[at[0]]).label} · ${matrix.examples[at[1]]} · ${said}`;
    paint();
  }
  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    return [Math.floor((event.clientY - box.top) / height), Math.floor((event.clientX - box.left - left) / width)];
  };
  function choose() {
    if (at === null) return;
    const found = open(matrix.rows[at[0]], matrix.examples[at[1]]);
    if (!found) status.textContent += matrix.cells[at[0]][at[1]] === "." ? ""
      : " · its texts are not in this file: bestarm-agent answers shows them";
  }
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  canvas.addEventListener("mousemove", (event) => look(...point(event)));
  canvas.addEventListener("click", (event) => { look(...point(event)); choose(); });
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Enter") choose();
    if (!(event.key in steps)) return;
    event.preventDefault();
    const [di, dj] = steps[event.key];
    look((at ? at[0] : 0) + di, (at ? at[1] : 0) + dj);
  });
  place.replaceChildren(legend, canvas, status);
  paint();
}

// --- the page -----------------------------------------------------------------------------------

function start() {
  document.querySelectorAll("table").forEach((table) => { if (table.dataset.filter || table.dataset.limit) enhance(table); });
  const data = JSON.parse(document.getElementById("data").textContent);
  const candidates = new Map(data.candidates.map((one) => [one.row, one]));
  const dialog = document.getElementById("pair");
  for (const pair of data.pairs) pair.pictures = pair.pictures.map((n) => data.texts[n]);
  const bySeq = new Map(data.pairs.map((pair) => [pair.seq, pair]));
  const byCell = new Map(data.pairs.map((pair) => [`${pair.row} ${pair.example}`, pair]));
  const label = (pair) => candidates.get(pair.row).label;
  const show = (pair, list) => openPair(dialog, pair, { label, texts: data.texts, list });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.pair");
    if (!button) return;
    const list = [...document.querySelectorAll("#differing button.pair")]
      .map((one) => bySeq.get(Number(one.dataset.seq)));
    const pair = bySeq.get(Number(button.dataset.seq));
    show(pair, list.includes(pair) ? list : data.pairs);
  });
  function openCell(row, example) {
    const pair = byCell.get(`${row} ${example}`);
    if (pair) show(pair, data.pairs.filter((one) => one.row === row));
    return pair !== undefined;
  }
  function draw() {
    const charts = { race: drawRace, matrix: drawMatrix, pareto: drawPareto };
    for (const [id, drawn] of Object.entries(charts)) {
      const place = document.getElementById(id);
      if (!place) continue;
      place.dataset.title = place.closest("section").querySelector("h2").textContent;
      drawn(place, data, candidates, openCell);
    }
  }
  const print = (on) => () => { document.documentElement.toggleAttribute("data-print", on); draw(); };
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; draw(); } });
  addEventListener("beforeprint", print(true));
  addEventListener("afterprint", print(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}

if (document.getElementById("data")) start();
