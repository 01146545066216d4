"use strict";
// The page of one or more traces: facts, suggestion, clock, steps with search, and the open step.

const store = new TraceStore(JSON.parse(document.getElementById("payload").textContent));
const open_ = { trace: 0, position: 0 };
window.opsassayTrace = { store, open: open_, list: null, ready: false };

const detail = el("section", { id: "detail", class: "detail", tabindex: "-1", "aria-label": "Step" });
const status = el("span", { class: "quiet", role: "status", "aria-live": "polite" });
const search = el("input", { id: "search", type: "search", placeholder: "Search inputs, outputs, tools", "aria-label": "Search steps", oninput: () => later(filter) });
const who = el("select", { id: "who", "aria-label": "Agent", onchange: () => filter() });
const flow = el("section", { id: "flow", "aria-labelledby": "title-flow" });
const form = store.form ? new AnnotationForm(store, () => open_) : null;
let list = null, waiting = 0;

function later(action) {
  clearTimeout(waiting);
  waiting = setTimeout(action, 150);
}

function suggestionBox(trace) {
  if (!trace.suggestion) return null;
  const { step, agent, reason } = trace.suggestion;
  return el("section", { class: "suggestion", "aria-label": "Suggested step" },
    el("p", {}, "◆ Suggested: ", el("a", { href: `#step-${step}`, onclick: (event) => go(event, step) }, `step ${step}`), " by ", name(agent), ": ", el("span", { dir: "auto" }, reason)));
}

function findingsBox(trace) {
  if (!trace.findings.length) return null;
  return section("findings", "Findings by rule", el("ul", {}, trace.findings.map((finding) => el("li", {}, "▲ ", el("b", {}, finding.name), ": ",
    finding.step ? el("a", { href: `#step-${finding.step}`, onclick: (event) => go(event, finding.step) }, `step ${finding.step}`) : "at no step", ", ", el("span", { dir: "auto" }, finding.evidence)))));
}

function go(event, step) {
  event.preventDefault();
  openStep(step);
}

function openStep(step) {
  const position = store.traces[open_.trace].steps.findIndex(([id]) => id === step);
  if (position < 0) return;
  if (!list.positions.includes(position)) clearFilter();
  list.select(position);
}

function clearFilter() {
  search.value = "";
  who.value = "";
  list.show(store.traces[open_.trace].steps.map((_, position) => position));
  status.textContent = "";
}

async function filter() {
  const trace = store.traces[open_.trace], wanted = search.value.trim().toLowerCase(), agent = who.value;
  const texts = wanted ? await store.text(open_.trace) : null;
  if (wanted !== search.value.trim().toLowerCase()) return; // a later search is under way
  const found = [];
  trace.steps.forEach(([, own], position) => {
    if ((agent === "" || own === Number(agent)) && (!texts || texts[position].includes(wanted))) found.push(position);
  });
  list.show(found);
  status.textContent = wanted || agent !== "" ? `${found.length} of ${trace.steps.length} steps` : "";
  if (found.length && !found.includes(open_.position)) list.select(found[0]);
}

async function showStep(position) {
  const trace = store.traces[open_.trace], [id, agent, flags] = trace.steps[position];
  open_.position = position;
  history.replaceState(null, "", `#step-${id}`);
  const content = await store.content(open_.trace, position);
  if (open_.position !== position) return;
  const suggested = trace.suggestion?.step === id ? el("p", { class: "suggested-here", dir: "auto" }, `◆ Suggested as decisive: ${trace.suggestion.reason}`) : null;
  const tools = content.tools.map(([tool, given, output, state]) => el("details", { open: true, class: `tool ${state}` },
    el("summary", {}, "⚒ ", name(tool), ` · ${state}`), code(given), code(output)));
  detail.replaceChildren(...[
    el("h2", {}, `Step ${id} · `, el("span", { class: `tone-${agent % 6}` }, name(trace.agents[agent]))),
    el("p", { class: "quiet", dir: "auto" }, content.about || (flags.includes("t") ? "tool-mediated" : "")), suggested,
    content.error ? el("p", { class: "error", dir: "auto" }, content.error) : null,
    el("details", { open: true }, el("summary", {}, "Input"), code(content.input || "not recorded")),
    el("h3", {}, "Output"), code(content.output || "–"), ...tools,
  ].filter(Boolean));
}

function clockBox(clock) {
  if (!clock) return null;
  const width = 1000, left = 120, at = (seconds) => left + (seconds / (clock.seconds || 1)) * (width - left - 30), high = 26;
  const mark = ([start, end, kind, text, step]) => {
    const shape = svg("rect", { x: at(start), width: Math.max(3, at(end) - at(start)), y: 5, height: 16, rx: 2, class: `mark ${kind}` });
    shape.append(svg("title", {}, `${text} (${start.toFixed(1)} to ${end.toFixed(1)} s)`));
    if (step) shape.addEventListener("click", () => openStep(step));
    return shape;
  };
  const lanes = clock.lanes.map((lane, number) => {
    const group = svg("g", { transform: `translate(0 ${number * high})` });
    group.append(svg("line", { x1: left, x2: width - 30, y1: 13, y2: 13, class: "rail" }), svg("text", { x: left - 8, y: 17, "text-anchor": "end" }, lane.name), ...lane.marks.map(mark));
    return group;
  });
  const bottom = clock.lanes.length * high;
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => svg("text", { x: at(part * clock.seconds), y: bottom + 14, "text-anchor": "middle" }, `${(part * clock.seconds).toFixed(clock.seconds < 10 ? 2 : 0)} s`));
  const chart = svg("svg", { viewBox: `0 0 ${width} ${bottom + 20}`, role: "img", "aria-label": "Steps, actions, probes, observations, faults and causes on one clock" });
  chart.append(...lanes, ...ticks);
  const listed = el("details", {}, el("summary", {}, "The same as a table"),
    table("Clock", ["Lane", "From, s", "To, s", "What"], clock.lanes.flatMap((lane) => lane.marks.map(([start, end, , text]) => [lane.name, start.toFixed(2), end.toFixed(2), text]))));
  return section("clock", "On one clock", el("p", { class: "quiet" }, `0 s is ${clock.begun}.`), el("div", { class: "scroll trace-clock", tabindex: "0" }, chart), listed);
}

function svg(tag, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, String(value));
  if (text) node.textContent = text;
  return node;
}

function chooser() {
  if (store.traces.length < 2) return null;
  const choice = el("select", { id: "which", "aria-label": "Trace", onchange: () => showTrace(Number(choice.value)) },
    store.traces.map((trace, i) => el("option", { value: String(i), selected: i === open_.trace }, trace.name)));
  return el("p", { class: "fields" }, el("label", {}, `Trace, one of ${store.traces.length}`, choice));
}

function showTrace(number) {
  open_.trace = number;
  open_.position = 0;
  const trace = store.traces[number];
  list = window.opsassayTrace.list = new StepList(trace, showStep);
  who.replaceChildren(el("option", { value: "" }, "all agents"), ...trace.agents.map((agent, i) => el("option", { value: String(i) }, agent)));
  search.value = "";
  status.textContent = "";
  const facts = section("facts", "Run", definitions([...trace.facts, ["Steps", `${trace.steps.length} by ${trace.agents.length} agent${trace.agents.length === 1 ? "" : "s"}`]]));
  const browse = el("section", { class: "browse", "aria-label": "Steps" }, el("div", { class: "left" }, el("div", { class: "filter" }, search, who, status), list.box,
    el("p", { class: "quiet keys" }, "j k step · ↑ ↓ in the list · / search · s suggested · ◆ suggested ▲ pattern ⚒ tool ✕ failed")), form ? el("div", { class: "right" }, form.box, detail) : detail);
  document.getElementById("main").replaceChildren(...[chooser(), suggestionBox(trace), form ? facts : null, findingsBox(trace), browse, clockBox(trace.clock), flow, form ? null : facts].filter(Boolean));
  form?.draw();
  window.opsassayTrace.drawFlow?.();
  list.show(list.positions);
  const asked = Number(location.hash.slice("#step-".length));
  const first = asked || trace.suggestion?.step || trace.steps[0]?.[0];
  if (first !== undefined) openStep(first);
  else detail.replaceChildren(el("p", { class: "quiet" }, "The trace has no steps."));
  window.opsassayTrace.ready = true;
}

document.addEventListener("keydown", (event) => {
  const typing = /^(?:INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === "Escape" && typing) event.target.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "j") list.move(1);
  else if (event.key === "k") list.move(-1);
  else if (event.key === "s" && store.traces[open_.trace].suggestion) openStep(store.traces[open_.trace].suggestion.step);
  else if (event.key === "/") { event.preventDefault(); search.focus(); }
});
window.addEventListener("hashchange", () => { if (/^#step-\d+$/.test(location.hash)) openStep(Number(location.hash.slice(6))); });
window.addEventListener("resize", () => list.draw());

showTrace(0);
