"use strict";
// What the report and the live page share. Texts of models enter a document as text nodes, never as markup.

// --- elements -----------------------------------------------------------------------------------

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return made;
}

const h = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const pictures = (urls) => urls.map((url) => h("img", { class: "picture", src: url, alt: "image of the prompt" }));
const count = (value) => value.toLocaleString("en");

// --- tables -------------------------------------------------------------------------------------

function valueOf(cell) {
  const text = cell.dataset.value ?? cell.textContent.trim();
  const number = Number(text.replace(/[$,%]/g, ""));
  return text !== "" && Number.isFinite(number) ? number : text.toLowerCase();
}

function compareValues(a, b) {
  if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
  return typeof a === "number" ? -1 : 1;
}

function sortBy(table, column, heading) {
  const descending = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [valueOf(row.cells[column]), row]);
  rows.sort((a, b) => (descending ? -1 : 1) * compareValues(a[0], b[0]));
  body.append(...rows.map(([, row]) => row));
}

function enhance(table) {
  const rows = () => [...table.tBodies[0].rows];
  const limit = Number(table.dataset.limit ?? Infinity);
  const tools = h("div", { class: "tools" });
  let all = rows().length <= limit;
  let wanted = "";
  const more = h("button", {
    type: "button",
    onclick: () => { all = !all; show(); },
  });
  function show() {
    let shown = 0;
    for (const row of rows()) {
      const fits = row.textContent.toLowerCase().includes(wanted);
      row.hidden = !fits || (!all && !wanted && shown >= limit);
      shown += row.hidden ? 0 : 1;
    }
    more.textContent = all ? "show fewer" : `show all ${count(rows().length)}`;
    more.hidden = rows().length <= limit || wanted !== "";
  }
  if (table.dataset.filter && rows().length > 8) {
    const label = `filter ${table.dataset.filter}`;
    tools.append(h("input", {
      type: "search", size: label.length + 2, placeholder: label, "aria-label": label,
      oninput: (event) => { wanted = event.target.value.toLowerCase(); show(); },
    }));
  }
  if (rows().length > 1)
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      if (heading.tagName !== "TH" || heading.classList.contains("plain")) return;
      const button = h("button", {
        type: "button", onclick: () => { sortBy(table, column, heading); show(); },
      }, ...heading.childNodes);
      heading.replaceChildren(button);
    });
  if (limit < Infinity) tools.append(more);
  if (tools.children.length) table.parentElement.before(tools);
  show();
}
