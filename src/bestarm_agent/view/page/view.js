"use strict";
// The page behind `bestarm-agent view`, on top of what it shares with the report.

const RIGHT = 0.5;
const LIST_EVERY_MS = 2000;
const TOLD_RUNS = 30; // of which the list says who won
const told = new Map(); // what was said of a run
const GRADES = { r: 1, w: 0, 1: 0, 2: 0.25, 3: 0.5, 4: 0.75, 5: 1 };
const main = document.getElementById("main");
let leave = () => {}; // ends what the shown page has going on
let keys = {}; // actions of the shown page, by key
let latest = 0; // how many pages were shown
let blind = false; // whether scores and verdicts are hidden until an answer is labelled

// --- building blocks -----------------------------------------------------------------------------

function setText(element, text) {
  const before = element.textContent;
  if (before === text) return;
  element.textContent = text;
  if (!before) return;
  element.classList.remove("fresh");
  void element.offsetWidth; // begins the animation anew
  element.classList.add("fresh");
}

function show(...children) {
  main.replaceChildren(...children.flat().filter(Boolean));
}

function problem(text) {
  const line = document.getElementById("problem");
  line.hidden = !text;
  line.textContent = text || "";
}

function say(text) {
  document.getElementById("said").textContent = text;
}

function trail(...steps) {
  const links = steps.map(([name, href]) => (href ? h("a", { href }, name) : h("span", {}, name)));
  document.getElementById("trail").replaceChildren(...links);
  document.title = steps.map(([name]) => name).reverse().join(" - ");
}

function table(columns, rows, filter = null) {
  const head = columns.map(([name, kind]) => h("th", { scope: "col", class: kind }, name));
  return h("div", { class: "scroll", tabindex: "0" }, h("table", { "data-filter": filter }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows)));
}

function shorten(text, most) {
  const line = (text || "").trim().replace(/\s+/g, " ");
  return line.length > most ? line.slice(0, most - 1) + "…" : line;
}

function scoreText(score) {
  return score === null || score === undefined ? "-" : String(Number(score.toPrecision(3)));
}

function rounded(number) {
  return number === null ? null : String(Number(number.toPrecision(2)));
}

function mark(score) {
  return score === null || score === undefined ? null : score >= RIGHT ? "right" : "wrong";
}

class Left extends Error {} // the page was left while it waited for an answer

async function ask(address, options) {
  const turn = latest;
  const answer = await fetch(address, options);
  const isJson = (answer.headers.get("Content-Type") || "").includes("json");
  const body = isJson ? await answer.json() : { error: await answer.text() };
  if (turn !== latest) throw new Left();
  if (!answer.ok) throw new Error(body.error);
  return body;
}

function complain(error) {
  if (error instanceof Left) return;
  const gone = !error || error instanceof TypeError; // fetch failed
  problem(gone ? "No connection to bestarm-agent view; is it still running?" : error.message);
}

// --- addresses: #/run/STORE/ID[/pairs|/pair/SEQ|/compare|/label][?conditions] ----------------------------

function read(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const [, store, run, what, seq] = path.split("/").map(decodeURIComponent);
  return { store, run, what, seq, query: new URLSearchParams(query) };
}

function runHash(at, rest = "", query = null) {
  const asked = query && String(query) ? "?" + query : "";
  return `#/run/${encodeURIComponent(at.store)}/${encodeURIComponent(at.run)}${rest}${asked}`;
}

function runApi(at, rest, query) {
  return `runs/${encodeURIComponent(at.store)}/${encodeURIComponent(at.run)}/${rest}?${query || ""}`;
}

function pairsHash(at, conditions) {
  return runHash(at, "/pairs", new URLSearchParams(conditions));
}

// --- all runs ------------------------------------------------------------------------------------

async function runsPage() {
  trail(["Runs"]);
  show(h("h1", {}, "Runs"), h("p", { class: "dim" }, "Reading the stores..."));
  let before = "";
  const refresh = async () => {
    const runs = await ask("runs");
    const now = JSON.stringify(runs);
    if (now !== before && !main.querySelector("a:focus, input:checked")) show(h("h1", {}, "Runs"), runsTable(runs));
    before = now;
  };
  await refresh();
  const timer = setInterval(() => refresh().catch(complain), LIST_EVERY_MS);
  leave = () => clearInterval(timer);
}

function runsTable(runs) {
  if (!runs.length) return h("p", {}, "No run yet. ", h("code", {}, "bestarm-agent select"), " begins one.");
  const several = new Set(runs.map((run) => run.store)).size > 1;
  const columns = [["study"], ["winner"], ["score", "n extra"], ["cost", "n"], ["answers", "n extra"], ["run", "extra"]];
  if (several) columns.push(["store", "extra"]);
  const rows = runs.map((run, i) => runRow(run, several, i < TOLD_RUNS));
  tellWinners(runs.slice(0, TOLD_RUNS), rows);
  return h("div", {}, table(columns, rows), h("p", {}, h("button", { type: "button", onclick: compareMarked }, "Compare the winners of two marked runs")));
}

// One run after the other: each has to be read once.
async function tellWinners(runs, rows) {
  for (const [i, run] of runs.entries()) {
    const key = `${run.store} ${run.id} ${run.n_told} ${run.stopped}`;
    const page = told.get(key) || (await firstOf(runApi({ store: run.store, run: run.id }, "live", "rows=1")));
    if (!page) return;
    const state = h("span", { class: page.running ? "state open" : "dim" }, run.state);
    rows[i].cells[1].replaceChildren(page.winner || state, ...(page.winner && page.running ? [" ", state] : []));
    rows[i].cells[1].title = page.verdict;
    rows[i].cells[2].textContent = page.winner ? page.score : "";
    rows[i].cells[3].textContent = page.dollars || "";
    told.set(key, page);
  }
}

// Return the first event of a stream; null if it ends, or the page is left.
function firstOf(address) {
  const turn = latest, stream = new EventSource(address);
  return new Promise((done) => {
    stream.onmessage = (message) => { stream.close(); done(turn === latest ? JSON.parse(message.data) : null); };
    stream.onerror = () => { stream.close(); done(null); };
  });
}

function compareMarked() {
  const chosen = [...main.querySelectorAll("input:checked")].map((box) => box.dataset);
  if (chosen.length !== 2 || chosen[0].store !== chosen[1].store) return problem("Mark exactly two runs of one store.");
  location.hash = runHash(chosen[1], "/compare", new URLSearchParams({ other: chosen[0].run }));
}

function runRow(run, several, isTold) {
  const waits = isTold ? "…" : "";  // until the run was read
  return h("tr", {},
    h("td", { class: "tight" }, h("input", { type: "checkbox", "aria-label": `mark ${run.name}, ${run.id}`, "data-store": run.store, "data-run": run.id }), " ",
      h("a", { href: runHash({ store: run.store, run: run.id }) }, run.name)),
    h("td", { class: "label" }, waits || run.state), h("td", { class: "n extra" }, waits), h("td", { class: "n" }, waits),
    h("td", { class: "n extra" }, count(run.n_told)),
    h("td", { class: "extra tight", title: `began ${run.at.slice(0, 16).replace("T", " ")} UTC` }, run.id),
    several ? h("td", { class: "extra tight", title: run.place }, ending(run.place, 22)) : null);
}

// --- one run, live -------------------------------------------------------------------------------

function runPage(at) {
  let rows = 60;
  let parts = null;
  let stream = null;
  trail(["Runs", "#/"], [at.run]);
  const listen = () => {
    if (stream) stream.close();
    stream = new EventSource(runApi(at, "live", "rows=" + rows));
    stream.onmessage = (message) => {
      const page = JSON.parse(message.data);
      if (page.error) return problem(page.error);
      problem("");
      parts = parts || runParts(at, page, () => { rows = 100000; listen(); });
      fill(at, parts, page);
    };
    stream.onerror = () => complain();
  };
  show(h("p", { class: "dim" }, "Reading the log..."));
  listen();
  leave = () => stream.close();
}

function runParts(at, page, more) {
  trail(["Runs", "#/"], [page.name]);
  const parts = { rows: new Map() };
  const text = (name, tag = "p", cls = null) => (parts[name] = h(tag, { class: cls }));
  const figure = (title, name, note) => h("div", {}, h("dt", {}, title), text(name, "dd"), text(note, "dd", "dim"));
  parts.more = h("button", { type: "button", onclick: more }, "Show all candidates");
  parts.compare = h("a", {}, "Compare the first two");
  parts.bar = h("progress", { max: 1, "aria-label": "budget used" });
  parts.lines = h("div");
  parts.seenTitle = h("th", { scope: "col", class: "n" });
  const head = h("tr", {}, h("th", { scope: "col" }, "candidate"), parts.seenTitle,
    h("th", { scope: "col", class: "n" }, "estimate"), h("th", { scope: "col", class: "n" }, "interval"),
    h("th", { scope: "col", class: "extra" }, "0 to 100 %"), h("th", { scope: "col", class: "extra" }, "state"),
    h("th", { scope: "col", class: "n extra" }, "per 1,000"));
  parts.body = h("tbody");
  show(
    text("verdict", "h1", "verdict"), parts.lines,
    h("dl", { class: "figures" }, figure("answers", "pairs", "share"), figure("spent", "dollars", "failures"), figure("time", "time", "left")),
    parts.bar, text("ending", "p", "dim"), text("problems", "p", "broken"),
    h("p", {}, "Look at ", h("a", { href: pairsHash(at, {}) }, "all answers"), ", ",
      h("a", { href: pairsHash(at, { wrong: "" }) }, "the wrong ones"), ", ",
      h("a", { href: pairsHash(at, { failed: "" }) }, "the failures"), ". ", parts.compare, " · ",
      h("a", { href: runApi(at, "report") }, "The report as of now"), ", with its charts"),
    h("h2", {}, "Candidates"),
    h("p", { class: "dim" }, page.judged_by_mode ? "" : "The bar is the interval in which the mean over all examples lies, the tick its estimate. ", "A name leads to its answers."),
    h("div", { class: "scroll", tabindex: "0" }, h("table", { class: page.judged_by_mode ? "ranking plain" : "ranking" }, h("thead", {}, head), parts.body)),
    text("hidden", "p", "dim"), parts.more);
  return parts;
}

function fill(at, parts, page) {
  setText(parts.verdict, page.verdict);
  const coded = (line) => line.split("`").map((part, i) => i % 2 ? h("code", {}, part) : part);
  parts.lines.replaceChildren(...page.lines.map((line) => h("p", {}, coded(line))));
  for (const name of ["pairs", "dollars", "time", "failures", "hidden"]) setText(parts[name], page[name]);
  setText(parts.share, page.share);
  setText(parts.left, page.left);
  setText(parts.ending, capital(page.ending) + (page.running ? `; ${page.used_line} used.` : "."));
  parts.bar.value = page.used;
  parts.bar.hidden = !page.running;
  setText(parts.seenTitle, page.seen_title);
  const latest = page.latest_failure && `Latest failure: ${page.latest_failure}`;
  setText(parts.problems, [...page.problems, latest].filter(Boolean).join("\n"));
  parts.more.hidden = !page.hidden;
  parts.compare.hidden = page.rows.length < 2;
  if (page.rows.length > 1) parts.compare.href = compareHash(at, page.rows[0].label, page.rows[1].label);
  fillRows(at, parts, page.rows);
}

function fillRows(at, parts, rows) {
  const elements = rows.map((row) => {
    if (!parts.rows.has(row.index)) parts.rows.set(row.index, candidateRow(at, row));
    const cells = parts.rows.get(row.index);
    for (const name of ["seen", "estimate", "interval", "state", "cost"]) setText(cells[name], row[name]);
    cells.row.className = row.status;
    setText(cells.short, row.state);
    place(cells, row);
    return cells.row;
  });
  // rows keep their places while someone reads or tabs through them
  const same = elements.length === parts.body.children.length && elements.every((row) => row.parentNode === parts.body);
  if (!same || !parts.body.matches(":hover, :focus-within")) {
    if (elements.some((row, i) => parts.body.children[i] !== row) || !same) parts.body.replaceChildren(...elements);
  }
}

function candidateRow(at, row) {
  const cell = (kind) => h("td", { class: kind });
  const cells = { seen: cell("n"), estimate: cell("n"), interval: cell("n"), state: cell("state extra"), cost: cell("n extra") };
  cells.short = h("div", { class: "state narrow" });
  cells.band = svg("rect", { class: "range", y: 3, height: 4 });
  cells.tick = svg("rect", { class: "mean", y: 0, width: 1, height: 10 });
  const bar = svg("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none" },
    svg("rect", { class: "axis", x: 0, y: 4.7, width: 100, height: 0.6 }), cells.band, cells.tick);
  cells.row = h("tr", {},
    h("td", { class: "label" }, h("a", { href: pairsHash(at, { candidate: row.label }) }, row.label), cells.short),
    cells.seen, cells.estimate, cells.interval,
    h("td", { class: "extra", "aria-hidden": "true" }, bar),
    cells.state, cells.cost);
  return cells;
}

function place(cells, row) {
  cells.band.setAttribute("x", 100 * row.lower);
  cells.band.setAttribute("width", 100 * (row.upper - row.lower));
  cells.tick.setAttribute("visibility", row.value === null ? "hidden" : "visible");
  cells.tick.setAttribute("x", Math.min(99, 100 * (row.value || 0)));
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

// --- answers -------------------------------------------------------------------------------------

async function pairsPage(at, query) {
  const names = await ask(runApi(at, "candidates"));
  const found = await ask(runApi(at, "pairs", query));
  const start = Number(query.get("start") || 0);
  const whose = query.get("candidate") || query.get("example") || "all candidates";
  trail(["Runs", "#/"], [at.run, runHash(at)], ["Answers"]);
  const pages = [];
  const turn = (name, to) => {
    const other = new URLSearchParams(query);
    other.set("start", to);
    pages.push(h("a", { href: runHash(at, "/pairs", other) }, name), " ");
  };
  if (start > 0) turn("Earlier", Math.max(0, start - found.page));
  if (start + found.page < found.count) turn("Later", start + found.page);
  const last = Math.min(start + found.page, found.count);
  const shown = found.count > found.page ? `, ${count(start + 1)} to ${count(last)} shown` : "";
  const columns = [["example"], ["candidate", "extra"], ["score", "n"], ["question", "extra"], ["target", "extra"], ["answer"], ["label", "n"]];
  const rows = found.pairs.map((pair) => pairRow(at, query, pair));
  show(h("h1", {}, `Answers of ${whose}`), note(found.note), filters(at, query, names),
    h("p", { class: "dim" }, `${count(found.count)} ${found.count === 1 ? "answer" : "answers"}${shown}, in the order of asking. `, pages),
    found.pairs.length ? [table(columns, rows), h("p", {}, pages)] : h("p", {}, "No answer is like this."));
  main.querySelectorAll("table").forEach(enhance);
}

function questionOf(pair) {
  const asked = (pair.inputs || {}).question;
  return typeof asked === "string" ? asked : pair.prompt;
}

// Cut what is longer at its start: a question and an answer stand at the end.
function ending(text, most) {
  const line = (text || "").trim().replace(/\s+/g, " ");
  return line.length > most ? "…" + line.slice(1 - most) : line;
}

function note(text) {
  return text ? h("p", { class: "dim" }, "Note: " + text + ".") : null;
}

function chooser(title, names, value, blank) {
  const options = names.map((name) => h("option", { value: name, selected: name === value }, name));
  return h("label", {}, title, h("select", { name: title.toLowerCase() }, blank ? h("option", { value: "" }, blank) : null, options));
}

function filters(at, query, names) {
  const box = (name, text) => h("label", { class: "tick" }, h("input", { type: "checkbox", name, checked: query.has(name) }), text);
  const submit = (event) => {
    event.preventDefault();
    const chosen = [...new FormData(event.currentTarget)].filter(([, value]) => value).map(([name, value]) => [name, value === "on" ? "" : value]);
    location.hash = pairsHash(at, chosen);
  };
  return h("form", { onsubmit: submit, onchange: submit }, chooser("Candidate", names.candidates, query.get("candidate"), "all"),
    names.slices.length ? chooser("Slice", names.slices, query.get("slice"), "all") : null,
    h("label", {}, "Example", h("input", { type: "text", name: "example", value: query.get("example") || "" })), box("wrong", "wrong"), box("failed", "failed"));
}

function pairHash(at, seq, query) {
  const conditions = new URLSearchParams(query);
  conditions.delete("start");
  return runHash(at, "/pair/" + seq, conditions);
}

function pairRow(at, query, pair) {
  const said = pair.failure ? `${pair.failure}: ${pair.message}` : ["pending", "unfinished"].includes(pair.state) ? pair.state : pair.reply || pair.answer;
  return h("tr", {},
    h("td", {}, h("a", { href: pairHash(at, pair.seq, query) }, shorten(pair.example, 40)), h("div", { class: "narrow dim" }, pair.candidate)),
    h("td", { class: "label extra" }, pair.candidate),
    h("td", { class: "n " + (mark(pair.score) || "") }, scoreText(pair.score)),
    h("td", { class: "extra" }, ending(questionOf(pair), 90)),
    h("td", { class: "extra" }, shorten(pair.target, 60)),
    h("td", {}, pair.failure ? shorten(said, 140) : ending(said, 140)),
    h("td", { class: "n" }, pair.label === null ? "" : scoreText(pair.label)));
}

// --- one answer, and its label -------------------------------------------------------------------

async function pairPage(at, seq, query) {
  const pair = await ask(runApi(at, "pairs/" + seq, query));
  const back = runHash(at, "/pairs", query);
  trail(["Runs", "#/"], [at.run, runHash(at)], ["Answers", back], [pair.example]);
  const go = (to) => { if (to !== null) location.hash = pairHash(at, to, query); };
  const grade = (score) => label(at, pair, score, () => (score === null || pair.next === null ? route() : go(pair.next)));
  keys = {
    j: () => go(pair.next), ArrowRight: () => go(pair.next), k: () => go(pair.previous), ArrowLeft: () => go(pair.previous),
    u: () => grade(null), b: () => { blind = !blind; route(); }, Escape: () => { location.hash = back; },
    ...Object.fromEntries(Object.entries(GRADES).map(([key, score]) => [key, () => grade(score)])),
  };
  const hidden = blind && pair.label === null;
  const where = `${count(pair.place)} of ${count(pair.count)}`;
  show(h("h1", {}, hidden ? pair.example : `${pair.candidate} on ${pair.example}`),
    h("p", { class: "dim" }, where, " ", step(at, query, "previous", pair.previous), " ", step(at, query, "next", pair.next)),
    note(pair.note), labelBar(pair, grade),
    text("Prompt", pair.prompt), pictures(pair.pictures),
    pair.reasoning && !hidden && h("details", {}, h("summary", {}, "Reasoning, which is not scored"), h("pre", {}, pair.reasoning)),
    text("Reply", pair.reply && found(pair.reply, pair.target)),
    text("Target", pair.target),
    hidden ? h("p", { class: "dim" }, "Candidate, score and verdicts are hidden until the answer is labelled.") : judged(pair, at));
}

function step(at, query, name, seq) {
  return seq === null ? null : h("a", { href: pairHash(at, seq, query) }, name);
}

function text(title, content) {
  if (content === null || content === undefined || content === "") return null;
  return [h("h2", {}, title), h("pre", { tabindex: "0" }, content)];
}

// Mark the last place in a reply where the target stands.
function found(reply, target) {
  const at = target ? reply.lastIndexOf(target) : -1;
  return at < 0 ? reply : [reply.slice(0, at), h("mark", {}, target), reply.slice(at + target.length)];
}

function judged(pair, at) {
  const judging = pair.judge_usd ? `, $${rounded(pair.judge_usd)} of it for judging` : "";
  const facts = [pair.attempts === null ? null : `${pair.attempts} request${pair.attempts === 1 ? "" : "s"}`,
    pair.tokens === null ? null : `${count(pair.tokens)} tokens`, pair.usd === null ? null : `$${rounded(pair.usd)}${judging}`,
    pair.seconds === null ? null : `${pair.seconds.toFixed(2)} s`, pair.cached ? "taken from the reply cache" : null,
    pair.finish === "length" ? "cut at its limit of tokens" : null];
  const votes = pair.votes.map((vote) => h("tr", {}, h("td", {}, vote.by), h("td", { class: "n" }, scoreText(vote.value)), h("td", {}, vote.said), h("td", {}, vote.why)));
  const score = pair.score === null ? `No score${{ pending: " yet", unfinished: ": unfinished" }[pair.state] ?? ""}` : `Score ${scoreText(pair.score)}`;
  return [
    h("h2", { class: mark(pair.score) }, score),
    text("Answer read from the reply", pair.answer), text("Failure", pair.failure && `${pair.failure}: ${pair.message}`),
    votes.length ? [h("h2", {}, "The judge's verdicts"), table([["by"], ["value", "n"], ["said"], ["because"]], votes)] : null,
    h("h2", {}, "What it took"),
    h("p", { class: "dim" }, facts.filter((one) => one !== null).join(", ")),
    h("p", {}, h("a", { href: pairsHash(at, { example: pair.example }) }, "All answers to this example"), " · ",
      h("a", { href: pairsHash(at, { candidate: pair.candidate }) }, "All answers of this candidate")),
  ].flat(2).filter(Boolean);
}

function labelBar(pair, grade) {
  const now = pair.label;
  if (pair.reply === null) return h("p", { class: "dim" }, "There is no reply to label.");
  const button = (key, name, score) => h("button", { type: "button", "aria-pressed": String(now === score), onclick: () => grade(score) }, h("kbd", {}, key), " " + name);
  const given = now === null ? "Your label" : `Your label: ${scoreText(now)}`;
  return [
    h("div", { class: "tools", role: "group", "aria-label": "Label this answer" }, h("span", {}, given), button("r", "right", 1), button("w", "wrong", 0),
      button("2", "weak", 0.25), button("3", "fair", 0.5), button("4", "good", 0.75),
      h("button", { type: "button", onclick: () => grade(null), disabled: now === null }, h("kbd", {}, "u"), " take back")),
    h("p", { class: "dim" }, "One key labels: ", h("kbd", {}, "r"), " ", h("kbd", {}, "w"), " or ", h("kbd", {}, "1"), " to ", h("kbd", {}, "5"),
      " (0, .25, .5, .75, 1); then comes the next. ", h("kbd", {}, "j"), " ", h("kbd", {}, "k"), " next, previous. ",
      h("kbd", {}, "b"), blind ? " shows scores again. " : " hides scores until you have labelled. ", h("kbd", {}, "Esc"), " back to the list. A label changes no score: bestarm-agent judge check measures the judge by all of them. Stored in ", pair.labels, "."),
  ];
}

async function label(at, pair, score, then) {
  if (pair.reply === null) return say("There is no reply to label.");
  await ask(runApi(at, `pairs/${pair.seq}/label`), { method: "PUT", body: JSON.stringify(score) });
  say(score === null ? "Took the label back." : `Labelled ${scoreText(score)}: ${shorten(pair.example, 40)}.`);
  then();
}

// --- labelling: one example, the answers of those who are left, without names ---------------------

let rater = null; // asked for once; "" is nobody's name
let later = []; // places left for later, the first one first
let done = []; // places labelled here, for going back

function askName(at) {
  const begin = (event) => {
    event.preventDefault();
    rater = new FormData(event.target).get("name").trim();
    route();
  };
  const field = h("input", { type: "text", name: "name", autocomplete: "off", "aria-describedby": "why" });
  show(h("h1", {}, "Label answers"),
    h("p", { id: "why" }, "You see one example at a time, and the answers to it in random order, without the names of those who gave them. Your labels decide who is best."),
    h("form", { onsubmit: begin }, h("label", {}, "Your name, if several people label", field), h("button", {}, "Begin")));
  field.focus();
}

async function labellingPage(at, query) {
  trail(["Runs", "#/"], [at.run, runHash(at)], ["Label"]);
  if (rater === null) return askName(at);
  const chosen = query.get("place");
  const asked = new URLSearchParams(chosen === null ? { rater, later: later.join() } : { place: chosen });
  const found = await ask(runApi(at, "labelling", asked));
  if (!found.question) return labelled(at, found);
  const { place, answers, ...example } = found.question;
  const scores = answers.map(() => null);
  let now = 0;
  const next = () => (chosen === null ? route() : void (location.hash = runHash(at, "/label")));
  const send = async (given, tie) => {
    keys = {};
    const body = JSON.stringify({ rater, tie, scores: Object.fromEntries(answers.map((text, i) => [text, given[i]])) });
    await ask(runApi(at, "labelling/" + place), { method: "PUT", body });
    done = [...done.filter((one) => one !== place), place];
    later = later.filter((one) => one !== place);
    say(tie ? "Labelled: no difference." : `Labelled: ${given.map(scoreText).join(", ")}.`);
    next();
  };
  const grade = (score, answer = now) => {
    scores[answer] = score;
    const open = scores.indexOf(null);
    if (open < 0) return send(scores, false);
    now = open;
    draw();
  };
  const actions = {
    n: () => send(answers.map(() => 0.5), true),
    l: () => { later = [...later.filter((one) => one !== place), place]; say("Left for later."); next(); },
    b: () => {
      if (scores.some((one) => one !== null)) { scores.fill(null); now = 0; return draw(); }
      const before = done.lastIndexOf(place) < 0 ? done.at(-1) : done[done.indexOf(place) - 1];
      if (before === undefined) return say("This is the first one.");
      location.hash = runHash(at, "/label", new URLSearchParams({ place: before }));
    },
  };
  keys = { ...actions, Backspace: actions.b, ...Object.fromEntries(Object.entries(GRADES).map(([key, score]) => [key, () => grade(score)])) };
  const button = (key, name, action) => h("button", { type: "button", onclick: () => Promise.resolve(action()).catch(complain) }, h("kbd", {}, key), " " + name);
  const card = (text, i) => h("section", { class: i === now ? "now" : null, "aria-current": i === now ? "true" : null, "aria-label": `Answer ${i + 1}` },
    h("h2", {}, `Answer ${i + 1}`, scores[i] === null ? "" : `: ${scoreText(scores[i])}`), h("pre", { tabindex: "0" }, text || "(empty)"),
    h("div", { class: "tools" }, button("r", "right", () => grade(1, i)), button("w", "wrong", () => grade(0, i)),
      ...[2, 3, 4].map((key) => button(key, scoreText(GRADES[key]), () => grade(GRADES[key], i)))));
  function draw() {
    main.querySelector(".answers").replaceChildren(...answers.map(card));
    const at = main.querySelector(".answers .now");
    if (at && now) at.scrollIntoView({ block: "nearest" });
  }
  const fields = Object.entries(example.inputs).filter(([, value]) => value !== example.target && value !== example.example);
  const inputs = fields.flatMap(([name, value]) => text(fields.length > 1 ? name : "Question", typeof value === "string" ? value : JSON.stringify(value)) || []);
  show(h("h1", {}, "Which answers are right?"), h("p", { class: "dim" }, found.progress),
    ...inputs, ...pictures(example.pictures), text("Target", example.target), h("div", { class: "answers" }),
    h("div", { class: "tools", role: "group", "aria-label": "This example" }, button("n", "no difference", actions.n), button("l", "later", actions.l), button("b", "back", actions.b)),
    h("p", { class: "dim" }, h("kbd", {}, "r"), " ", h("kbd", {}, "w"), " or ", h("kbd", {}, "1"), " to ", h("kbd", {}, "5"),
      " (0, .25, .5, .75, 1) score the marked answer; after the last comes the next example. “No difference” is a verdict. “Later” counts at its worst until you answer it: if one in twenty is left, two in five proofs are lost."));
  draw();
}

function labelled(at, found) {
  show(h("h1", {}, found.proved ? "Proved" : "Nothing is left to label"), h("p", { class: "dim" }, found.progress),
    found.said.map((sentence) => h("p", {}, sentence)), h("p", {}, h("a", { href: runHash(at) }, "The run")));
  say("");
}

// --- two candidates ------------------------------------------------------------------------------

function compareHash(at, a, b) {
  return runHash(at, "/compare", new URLSearchParams({ a, b }));
}

async function comparePage(at, query) {
  trail(["Runs", "#/"], [at.run, runHash(at)], ["Compare"]);
  const [a, b] = [query.get("a"), query.get("b")];
  show(h("p", { class: "dim" }, "Reading the run..."));
  const { candidates: names } = await ask(runApi(at, "candidates"));
  const other = query.get("other");
  show(h("h1", {}, other ? "Compare two runs" : "Compare two candidates"), other ? null : choose(at, names, a, b));
  if (!other && !(a && b)) return;
  const waits = main.appendChild(h("p", { class: "dim" }, "Comparing..."));
  const found = await ask(runApi(at, "compare", query));
  waits.remove();
  const cell = (number) => h("td", { class: "n" }, count(number));
  const square = table([[""], ["B right", "n"], ["B wrong", "n"]], [
    h("tr", {}, h("th", { scope: "row" }, "A right"), cell(found.both), cell(found.only_a)),
    h("tr", {}, h("th", { scope: "row" }, "A wrong"), cell(found.only_b), cell(found.neither))]);
  const [named_a, named_b] = found.names;
  main.append(
    h("p", {}, `A = ${named_a}`, h("br", {}), `B = ${named_b}`),
    ...found.lines.map((line) => h("p", {}, `${capital(line.trim())}.`)),
    h("div", { class: "square" }, square),
    h("p", {}, `Mean of A ${Math.round(100 * found.mean_a)} %, of B ${Math.round(100 * found.mean_b)} %. ${capital(found.here)}. `, h("strong", {}, capital(found.said) + ".")),
    h("h2", {}, found.n_flips ? `They differ on ${count(found.n_flips)} ${found.n_flips === 1 ? "example" : "examples"}` : "They score alike on all of these"),
    ...found.flips.map((pair) => flip(at, other ? { store: at.store, run: other } : at, pair)));
  if (found.n_flips > found.flips.length) main.append(h("p", { class: "dim" }, `The first ${found.flips.length} are shown; bestarm-agent compare --all prints all.`));
}

function choose(at, names, a, b) {
  const submit = (event) => {
    event.preventDefault();
    const chosen = new FormData(event.target);
    location.hash = compareHash(at, chosen.get("a"), chosen.get("b"));
  };
  return h("form", { onsubmit: submit }, chooser("A", names, a), chooser("B", names, b), h("button", {}, "Compare"));
}

// Part two texts into their common start, what differs, which is marked, and their common end.
function marked(a, b) {
  const least = Math.min(a.length, b.length);
  let start = 0, end = 0;
  while (start < least && a[start] === b[start]) start++;
  while (end < least - start && a.at(-1 - end) === b.at(-1 - end)) end++;
  return [a, b].map((one) => [one.slice(0, start), h("mark", {}, one.slice(start, one.length - end)), one.slice(one.length - end)]);
}

function flip(atA, atB, [a, b]) {
  const said = (pair) => pair.failure ? `${pair.failure}: ${pair.message}` : pair.reply || "";
  let [textA, textB] = marked(said(a), said(b));
  // where most of a text differs, the target is marked instead
  if ([textA, textB].some(([before, inside, after]) => before.length + after.length < inside.textContent.length))
    [textA, textB] = [found(said(a), a.target), found(said(b), b.target)];
  const side = (at, pair, text) => h("div", {},
    h("h3", {}, h("a", { href: pairHash(at, pair.seq, "") }, pair.candidate), " ", h("span", { class: mark(pair.score) }, `${mark(pair.score)} (${scoreText(pair.score)})`)),
    h("pre", { tabindex: "0" }, text));
  return h("section", {}, h("h3", {}, a.example), h("p", {}, ending(questionOf(a), 400)), a.target ? h("p", { class: "dim" }, "Target: " + shorten(a.target, 200)) : null,
    h("div", { class: "sides" }, side(atA, a, textA), side(atB, b, textB)));
}

// --- routing and keys ----------------------------------------------------------------------------

async function route() {
  latest += 1;
  const at = read(location.hash);
  leave();
  leave = () => {};
  keys = {};
  problem("");
  if (!["pair", "label"].includes(at.what)) say("");
  try {
    if (!at.run) await runsPage();
    else if (at.what === "pairs") await pairsPage(at, at.query);
    else if (at.what === "pair") await pairPage(at, at.seq, at.query);
    else if (at.what === "label") await labellingPage(at, at.query);
    else if (at.what === "compare") await comparePage(at, at.query);
    else runPage(at);
  } catch (error) {
    complain(error);
  }
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select, textarea");
  const action = keys[event.key];
  if (!action || typing || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  Promise.resolve(action()).catch(complain);
});

window.addEventListener("hashchange", () => {
  window.scrollTo(0, 0);
  main.focus({ preventScroll: true });
  route();
});
route();
