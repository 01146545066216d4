"use strict";
// The service graph: calls from the traces below, the true cascade or one answer above. Every mark differs in shape or
// line style as well as in colour, and says its meaning in the label, so that it reads in black and white.

const MARK_WORDS = {
  root: "◆ root cause",
  affected: "affected",
  alarm: "alarm",
  agrees: "✓ root, right",
  missing: "○ root, missing",
  wrong: "✗ root, wrong",
  claimed: "? root, claimed",
};

const LARGEST_ZOOM = 1.1;
const BENDS = [28, -28, 60, -60, 100, -100, 150, -150, 220, -220];

const LEGENDS = {
  truth: [["node root", "root cause"], ["node affected", "affected"], ["node alarm", "alarm (double border)"], ["node none", "not affected"], ["line cascade", "cause → effect"]],
  judgedRoots: [["node agrees", "right root"], ["node wrong", "wrong root"], ["node missing", "missing root"]],
  judgedEdges: [["line agrees", "right edge"], ["line wrong", "wrong edge"], ["line missing", "missing edge"]],
  claimedRoots: [["node claimed", "claimed root, not judged"]],
  claimedEdges: [["line claimed", "claimed edge, not judged"]],
  calls: [["alerted", "an alert fired here"], ["line call", "call, caller → callee"]],
};

function legendOf(layer) {
  if (!layer) return LEGENDS.calls;
  if (layer.answer === null) return [...LEGENDS.truth, ...LEGENDS.calls];
  const roots = layer.judgedRoots ? LEGENDS.judgedRoots : LEGENDS.claimedRoots;
  const edges = layer.judgedEdges ? LEGENDS.judgedEdges : LEGENDS.claimedEdges;
  return [...roots, ...edges, ...LEGENDS.calls];
}

function legend(layer) {
  return el("ul", { class: "legend", "aria-label": "Legend" },
    legendOf(layer).map(([kind, words]) => el("li", {}, el("span", { class: `key ${kind}`, "aria-hidden": "true" }), words)));
}

function graphStyle() {
  const ink = colour("ink"), line = colour("line-strong"), surface = colour("surface");
  const node = (mark, style) => ({ selector: `node.${mark}`, style });
  const edge = (mark, style) => ({ selector: `edge.${mark}`, style: { width: 3.2, opacity: 1, "z-index": 9, ...style } });
  return [
    { selector: "node", style: {
      label: "data(label)", shape: "round-rectangle", width: "data(width)", height: "data(height)", "text-valign": "center",
      "text-halign": "center", "text-wrap": "wrap", "font-size": 12, "font-family": "system-ui, sans-serif", "line-height": 1.25,
      color: colour("muted"), "background-color": surface, "border-width": 1, "border-color": line } },
    { selector: "node.unknown", style: { "border-style": "dotted" } },
    node("affected", { color: colour("on-affected"), "background-color": colour("affected"), "border-width": 1.5, "border-color": colour("affected-line") }),
    node("root", { shape: "cut-rectangle", color: colour("on-strong"), "background-color": colour("root"), "border-color": ink, "border-width": 2, "font-weight": 700 }),
    node("agrees", { shape: "cut-rectangle", color: colour("on-strong"), "background-color": colour("agrees"), "border-color": ink, "border-width": 2, "font-weight": 700 }),
    node("missing", { shape: "cut-rectangle", color: colour("missing"), "border-color": colour("missing"), "border-width": 2.5, "border-style": "dotted", "font-weight": 700 }),
    node("wrong", { color: colour("wrong"), "border-color": colour("wrong"), "border-width": 3, "border-style": "dashed", "font-weight": 700 }),
    node("claimed", { color: colour("claimed"), "border-color": colour("claimed"), "border-width": 3, "font-weight": 700 }),
    node("alarm", { "border-style": "double", "border-width": 5 }),
    { selector: "edge", style: {
      width: 1, "line-color": line, "target-arrow-color": line, "target-arrow-shape": "vee", "arrow-scale": 0.7, "curve-style": "bezier", opacity: 0.75 } },
    { selector: "edge.over", style: { "curve-style": "unbundled-bezier", "control-point-distances": 26, "control-point-weights": 0.5, "target-arrow-shape": "triangle", "arrow-scale": 1.2 } },
    edge("cascade", { "line-color": colour("root"), "target-arrow-color": colour("root") }),
    edge("agrees", { "line-color": colour("agrees"), "target-arrow-color": colour("agrees") }),
    edge("missing", { "line-color": colour("missing"), "target-arrow-color": colour("missing"), "line-style": "dotted", "target-arrow-fill": "hollow" }),
    edge("wrong", { "line-color": colour("wrong"), "target-arrow-color": colour("wrong"), "line-style": "dashed", "line-dash-pattern": [9, 5] }),
    edge("claimed", { "line-color": colour("claimed"), "target-arrow-color": colour("claimed"), "line-style": "dashed", "line-dash-pattern": [3, 3] }),
    { selector: ":selected", style: { "overlay-color": colour("accent"), "overlay-opacity": 0.18, "overlay-padding": 5 } },
  ];
}

const ruler = document.createElement("canvas").getContext("2d");

function textWidth(text, weight) {
  ruler.font = `${weight} 12px system-ui, sans-serif`;
  return Math.ceil(ruler.measureText(text).width);
}

function nodeData(service, index, mark) {
  const lines = [clipped(service.name, 30) + (service.alerts ? " ▼" : "")];
  if (mark) lines.push([MARK_WORDS[mark.mark], mark.onset].filter(Boolean).join(" · "));
  if (mark && mark.alarm && mark.mark !== "alarm") lines[1] += " · alarm";
  if (mark && mark.states) lines.push(clipped(mark.states, 34));
  const width = Math.max(...lines.map((text) => textWidth(text, mark ? 700 : 400)));
  return { id: `s${index}`, label: lines.join("\n"), width: Math.max(64, width + 24), height: 12 + 16 * lines.length };
}

// What a large system is reduced to: services that any layer or alert speaks of, and those on a shortest way of calls
// from the entry service to them.
function involvedServices(view) {
  const core = new Set(view.alerts.map((alert) => alert.service));
  for (const layer of view.layers) {
    layer.nodes.forEach((node) => core.add(node.service));
    layer.edges.forEach((edge) => core.add(edge.source).add(edge.target));
  }
  if (view.charts.entry === null) return core;
  const cameFrom = callersOnTheWay(view, view.charts.entry);
  for (const service of [...core]) {
    for (let at = service; at !== undefined; at = cameFrom.get(at)) core.add(at);
  }
  return core.add(view.charts.entry);
}

function callersOnTheWay(view, entry) {
  const cameFrom = new Map([[entry, undefined]]), queue = [entry];
  for (const caller of queue) {
    for (const call of view.calls.filter((candidate) => candidate.source === caller && !cameFrom.has(candidate.target))) {
      cameFrom.set(call.target, caller);
      queue.push(call.target);
    }
  }
  return cameFrom;
}

// The double border of an alarm is part of the truth only: in an answer the border tells right from wrong.
function markClasses(mark, layer) {
  if (!mark) return [];
  const kind = mark.mark === "alarm" ? "affected" : mark.mark;
  return [kind, layer.answer === null && mark.alarm ? "alarm" : ""];
}

function graphElements(view, layer, shown) {
  const marks = new Map((layer ? layer.nodes : []).map((node) => [node.service, node]));
  const over = layer ? layer.edges : [];
  const nodes = [...shown].map((index) => {
    const service = view.services[index], mark = marks.get(index);
    const classes = [...markClasses(mark, layer), service.known ? "" : "unknown"];
    return { group: "nodes", data: nodeData(service, index, mark), classes: classes.filter(Boolean).join(" ") };
  });
  const calls = view.calls.filter((call) => shown.has(call.source) && shown.has(call.target))
    .map((call, i) => ({ group: "edges", data: { id: `c${i}`, source: `s${call.source}`, target: `s${call.target}`, call }, classes: "call" }));
  const marked = over.filter((edge) => shown.has(edge.source) && shown.has(edge.target))
    .map((edge, i) => ({ group: "edges", data: { id: `o${i}`, source: `s${edge.source}`, target: `s${edge.target}`, over: edge }, classes: `over ${edge.mark}` }));
  return [...nodes, ...calls, ...marked];
}

function layoutOptions(container) {
  const narrow = container.clientWidth < 640;
  return { name: "dagre", rankDir: narrow ? "TB" : "LR", nodeSep: narrow ? 14 : 22, rankSep: narrow ? 44 : 70, fit: true, padding: 16, animate: false };
}

// Cascade edges bend around services that they do not touch: the smallest bend that is clear of them.
function bendAround(cy) {
  for (const edge of cy.edges(".over")) {
    const others = cy.nodes().difference(edge.connectedNodes()).map((node) => node.boundingBox({ includeOverlays: false }));
    const bend = BENDS.find((distance) => !others.some((box) => curveHits(edge, distance, box))) ?? BENDS[0];
    edge.style("control-point-distances", bend);
  }
}

function curveHits(edge, bend, box) {
  const from = edge.source().position(), to = edge.target().position();
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const control = { x: (from.x + to.x) / 2 - (bend * (to.y - from.y)) / length, y: (from.y + to.y) / 2 + (bend * (to.x - from.x)) / length };
  for (let t = 0.04; t < 1; t += 0.04) {
    const x = (1 - t) ** 2 * from.x + 2 * t * (1 - t) * control.x + t ** 2 * to.x;
    const y = (1 - t) ** 2 * from.y + 2 * t * (1 - t) * control.y + t ** 2 * to.y;
    if (x > box.x1 - 4 && x < box.x2 + 4 && y > box.y1 - 4 && y < box.y2 + 4) return true;
  }
  return false;
}

class ServiceGraph {
  constructor(container, details, view) {
    Object.assign(this, { container, details, view, layer: null, all: view.services.length <= 14 });
    this.cy = cytoscape({
      container, elements: [], style: graphStyle(), layout: { name: "preset" }, minZoom: 0.2, maxZoom: 2.5, autoungrabify: true, boxSelectionEnabled: false,
      userZoomingEnabled: matchMedia("(pointer: coarse)").matches,
    });
    this.cy.on("select unselect", () => this.describe());
  }

  show(layer) {
    this.layer = layer;
    const shown = this.all ? new Set(this.view.services.keys()) : involvedServices(this.view);
    this.cy.elements().remove();
    this.cy.add(graphElements(this.view, layer, shown));
    const base = this.cy.elements("node, edge.call");
    const extra = this.cy.edges(".call").empty() ? this.cy.edges() : this.cy.collection();
    base.union(extra).layout(layoutOptions(this.container)).run();
    bendAround(this.cy);
    this.fit();
    this.describe();
  }

  // The box is as high as the graph needs at its width, within reason.
  fit() {
    const box = this.cy.elements().boundingBox();
    const zoom = Math.min(LARGEST_ZOOM, (this.container.clientWidth - 40) / Math.max(1, box.w));
    this.container.style.height = `${Math.round(Math.min(620, Math.max(220, box.h * zoom + 72)))}px`;
    this.cy.resize();
    this.cy.fit(undefined, 20);
    if (this.cy.zoom() > LARGEST_ZOOM) {
      this.cy.zoom(LARGEST_ZOOM);
      this.cy.center();
    }
  }

  zoom(factor) {
    const middle = { x: this.container.clientWidth / 2, y: this.container.clientHeight / 2 };
    this.cy.zoom({ level: this.cy.zoom() * factor, renderedPosition: middle });
  }

  restyle() {
    this.cy.style(graphStyle());
  }

  describe() {
    const chosen = this.cy.elements(":selected");
    const words = chosen.empty() ? "Choose a service or an arrow for its details." : chosen.map((item) => this.words(item)).join("\n");
    this.details.textContent = words;
  }

  words(item) {
    if (item.isNode()) return this.serviceWords(Number(item.id().slice(1)));
    const { call, over } = item.data();
    const ends = (edge) => `${this.view.services[edge.source].name} → ${this.view.services[edge.target].name}`;
    if (call) return `${ends(call)}: ${call.normal} calls in the normal window, ${call.abnormal} in the abnormal window.`;
    return `${ends(over)}: ${over.mark === "cascade" ? "verified cause → effect" : `${over.mark} edge`}${over.rules ? `, by rule ${over.rules}` : ""}.`;
  }

  serviceWords(index) {
    const service = this.view.services[index];
    const mark = this.layer && this.layer.nodes.find((node) => node.service === index);
    return [
      service.name + (service.entry ? " (entry service)" : "") + (service.known ? "" : " (not in the telemetry)"),
      mark ? MARK_WORDS[mark.mark] : "not marked in this layer",
      mark && mark.states ? `states: ${mark.states}` : "",
      mark && mark.onset ? `onset ${mark.onset} from the fault` : "",
      service.alerts ? `${service.alerts} alert(s)` : "no alert",
    ].filter(Boolean).join("; ") + ".";
  }

  destroy() {
    this.cy.destroy();
  }
}
