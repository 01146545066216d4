"use strict";
const LONG_TEXT = 500;
// Building blocks of the page. Text from telemetry, solvers and logs is hostile: it enters the page as text nodes only.

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

function setAttribute(node, name, value) {
  if (value === false || value === null || value === undefined) return;
  if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
  else node.setAttribute(name, value === true ? "" : String(value));
}

// A name that must not reorder the text beside it.
function name(text) {
  return el("bdi", {}, text);
}

// Text of any length: a long one scrolls in a box of its own.
function prose(text) {
  return text.length > LONG_TEXT ? el("div", { class: "bounded", tabindex: "0", dir: "auto" }, text) : text;
}

function code(text) {
  return el("pre", { class: "code", tabindex: "0" }, el("code", { dir: "ltr" }, text));
}

function section(id, title, ...children) {
  return el("section", { id: `section-${id}`, "aria-labelledby": `title-${id}` }, el("h2", { id: `title-${id}` }, title), ...children);
}

// Facts in columns; those of several lines come last and take the whole width.
function definitions(pairs) {
  const wide = ([, text]) => text.includes("\n") || text.length > 240;
  const entry = (pair) => el("div", { class: wide(pair) ? "wide" : null }, el("dt", {}, pair[0]), el("dd", { dir: "auto" }, prose(pair[1])));
  return el("dl", { class: "facts" }, [...pairs.filter((pair) => !wide(pair)), ...pairs.filter(wide)].map(entry));
}

// A table in a box of its own that scrolls sideways, reachable by keyboard.
function table(label, head, rows) {
  const header = el("tr", {}, head.map((cell) => (cell instanceof Node ? cell : el("th", { scope: "col" }, cell))));
  const body = rows.map((row) => (row instanceof Node ? row : el("tr", {}, row.map(tableCell))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, el("table", {}, el("thead", {}, header), el("tbody", {}, body)));
}

function tableCell(cell) {
  const long = typeof cell === "string" && cell.length > 48;
  return el("td", { dir: "auto", class: long ? "long" : null }, long ? prose(cell) : cell);
}

function radios(group, legend, options, chosen, onchange) {
  const choices = options.map(([value, label]) =>
    el("label", { class: "choice" },
      el("input", { type: "radio", name: group, value, checked: value === chosen, onchange: () => onchange(value) }),
      el("span", {}, name(label))));
  return el("fieldset", { class: "switch" }, el("legend", {}, legend), el("div", { class: "choices" }, choices));
}

function colour(variable) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${variable}`).trim();
}

function clipped(text, longest) {
  const line = text.replace(/\s+/g, " ");
  return line.length > longest ? `${line.slice(0, longest - 1)}…` : line;
}
