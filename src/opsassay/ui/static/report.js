"use strict";
// Puts one case on the page at a time; the case is in the address after the #.

const payload = JSON.parse(document.getElementById("payload").textContent);
const shown = { view: null, graph: null, charts: null };
window.opsassayReport = { payload, shown };

function graphSection(view) {
  const canvas = el("div", { class: "graph", id: "graph", role: "img", "aria-label": "Service graph; its content is also listed below it" });
  const details = el("p", { class: "details", role: "status", "aria-live": "polite" });
  const key = el("div", {}), words = el("p", { class: "layer-words" });
  const graph = new ServiceGraph(canvas, details, view);
  const show = (value) => {
    const layer = view.layers[Number(value)] ?? null;
    graph.show(layer);
    key.replaceChildren(legend(layer));
    words.textContent = layer ? layer.summary : "There is neither truth nor an answer to lay over the graph.";
  };
  const layers = view.layers.map((layer, i) => [String(i), layer.name]);
  const controls = el("div", { class: "controls" },
    layers.length ? radios("layer", "Lay over the graph", layers, "0", show) : null,
    view.services.length > 14 ? radios("extent", "Services", [["involved", "involved"], ["all", "all"]], "involved", (value) => { graph.all = value === "all"; graph.show(graph.layer); }) : null);
  const zoom = el("div", { class: "zoom" },
    [["+", 1.25, "Zoom in"], ["−", 0.8, "Zoom out"]].map(([sign, factor, label]) => el("button", { type: "button", "aria-label": label, onclick: () => graph.zoom(factor) }, sign)),
    el("button", { type: "button", onclick: () => graph.fit() }, "Fit"));
  shown.graph = graph;
  const start = () => show("0");
  return [section("graph", "How it spread", controls, el("div", { class: "above" }, words, zoom), el("div", { class: "canvas-box" }, canvas), key, details, cascadeList(view)), start];
}

function cascadeList(view) {
  if (!view.cascade.length) return null;
  return el("details", {}, el("summary", {}, `The true cascade as a list, ${view.cascade.length} edge${view.cascade.length === 1 ? "" : "s"}`),
    table("True cascade", ["Cause", "Effect", "Onset of effect", "Rule", "Evidence"], view.cascade));
}

function chartsSection(view) {
  const box = el("div", { class: "charts" }), readout = el("div", {});
  if (!view.charts.series.length) return [section("signals", "Golden signals", el("p", { class: "quiet" }, "The recording has no spans to compute signals from.")), () => {}];
  const charts = new SignalCharts(box, readout, view);
  shown.charts = charts;
  const silent = view.charts.roots.filter((service) => !charts.byService.has(service)).map((service) => view.services[service].name);
  const notes = [
    `Buckets of ${view.charts.bucket} s. Dashed line: boundary between the normal and the abnormal window. Shaded: the fault was active. ▼: an alert fired.`,
    view.charts.gap,
    silent.length ? `No spans of the root ${clipped(silent.join(", "), 120)} are in the recording.` : "",
  ];
  const block = section("signals", "Golden signals", el("p", { class: "quiet", dir: "auto" }, notes.filter(Boolean).join(" ")), serviceChooser(charts, view.services), box,
    el("h3", {}, "Normal → abnormal (means of rate and errors, medians of latency)"), readout);
  return [block, () => charts.draw()];
}

function showCase(view) {
  if (shown.graph) shown.graph.destroy();
  if (shown.charts) shown.charts.destroy();
  Object.assign(shown, { view, graph: null, charts: null });
  const [graphBlock, startGraph] = graphSection(view);
  const [chartBlock, startCharts] = chartsSection(view);
  const title = payload.cases.length > 1 ? [el("h2", { class: "case-title" }, name(clipped(`Case ${view.id}`, 80)))] : [];
  document.getElementById("case").replaceChildren(...title, ...[summarySection(view), graphBlock, explainSection(view), chartBlock].filter(Boolean), ...(payload.withheld ? [] : [gradesSection(view), answersSection(view), footerSection(view)]));
  startGraph();
  startCharts();
  document.querySelectorAll("#cases tr[data-case]").forEach((row) => row.toggleAttribute("aria-current", row.dataset.case === view.id));
}

function caseList() {
  const nav = document.getElementById("cases");
  nav.hidden = !payload.solvers && payload.cases.length < 2;
  nav.append(solversTable());
  if (payload.cases.length < 2) return;
  const rows = payload.cases.map((view) => el("tr", { "data-case": view.id },
    [el("a", { href: `#${encodeURIComponent(view.id)}` }, name(clipped(view.id, 40))), view.system, clipped(view.fault, 80), view.label, view.solved].map((cell) => el("td", {}, cell))));
  const count = el("span", { class: "quiet", role: "status" }, `${rows.length} cases`);
  const filter = (event) => {
    const wanted = event.target.value.toLowerCase();
    rows.forEach((row) => { row.hidden = !row.textContent.toLowerCase().includes(wanted); });
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} cases`;
  };
  nav.append(
    el("div", { class: "filter" }, el("label", {}, "Filter cases ", el("input", { type: "search", oninput: filter, placeholder: "system, fault, label" })), count),
    table("Cases", ["Case", "System", "Fault", "Label", "Solvers right"], rows));
}

// What each solver did over all cases; one case that was solved once has its table of grades instead.
function solversTable() {
  if (!payload.solvers) return "";
  return el("details", { open: true, id: "solvers" }, el("summary", {}, "Solvers over all cases"),
    table("Solvers", payload.solvers.columns, payload.solvers.rows),
    ...calmTable(payload.solvers.calm));
}

function calmTable(calm) {
  return calm ? [el("h3", {}, "Cases in which nothing was broken"), table("Cases without a fault", calm.columns, calm.rows)] : [];
}

function fromAddress() {
  let wanted = "";
  try { wanted = decodeURIComponent(location.hash.slice(1)); } catch { wanted = ""; }
  const view = payload.cases.find((candidate) => candidate.id === wanted) ?? (shown.view || payload.cases[0]);
  if (view && view !== shown.view) showCase(view);
}

function redraw() {
  if (shown.graph) shown.graph.restyle();
  if (shown.charts) shown.charts.draw();
}

// Paper gets light colours, one narrow column that canvases are redrawn for, and every detail open.
function followPrinting() {
  let opened = [];
  const lay = (printing) => {
    document.documentElement.toggleAttribute("data-printing", printing);
    opened.forEach((details) => { details.open = printing; });
    redraw();
    if (shown.graph) shown.graph.show(shown.graph.layer);
  };
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    lay(true);
  });
  addEventListener("afterprint", () => lay(false));
}

function followSize() {
  let width = innerWidth, waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (shown.charts) shown.charts.resize();
      if (shown.graph) shown.graph.show(shown.graph.layer);
    }, 120);
  });
}

caseList();
if (payload.cases.length) fromAddress();
else document.getElementById("case").replaceChildren(el("p", { class: "quiet" }, "This report has no cases."));
addEventListener("hashchange", fromAddress);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
followPrinting();
followSize();
