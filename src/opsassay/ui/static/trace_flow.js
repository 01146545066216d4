"use strict";
// Who acts after whom, as a graph and as a table; read last, because drawing graphs takes a large library.

window.opsassayTrace.drawFlow = () => {
  const { store, open } = window.opsassayTrace, trace = store.traces[open.trace], counts = trace.agents.map(() => 0);
  for (const [, agent] of trace.steps) counts[agent] += 1;
  const canvas = el("div", { class: "graph", id: "flow-graph", role: "img", "aria-label": "Flow between agents; the table below it says the same" });
  const rows = trace.flow.map(([from, to, times]) => [trace.agents[from], trace.agents[to], String(times)]);
  flow.replaceChildren(el("h2", { id: "title-flow" }, "Flow between agents"), el("div", { class: "canvas-box" }, canvas),
    el("details", {}, el("summary", {}, "As a table"), table("Flow between agents", ["From", "To", "Times"], rows)));
  const most = Math.max(1, ...trace.flow.map(([, , times]) => times));
  const blamed = trace.agents.indexOf(trace.suggestion?.agent);
  const nodes = trace.agents.map((agent, i) => ({ data: { id: String(i), label: `${clipped(agent, 26)}\n${counts[i]}` }, classes: i === blamed ? "blamed" : "" }));
  const edges = trace.flow.map(([from, to, times]) => ({ data: { source: String(from), target: String(to), label: String(times), width: 1 + 4 * (times / most) } }));
  const narrow = matchMedia("(max-width: 820px)").matches, across = { rankDir: "LR", nodeSep: 40, rankSep: 130 }, down = { rankDir: "TB", nodeSep: 30, rankSep: 60 };
  const ink = colour("ink"), line = colour("line-strong"), surface = colour("surface");
  const cy = cytoscape({
    container: canvas, elements: [...nodes, ...edges], userZoomingEnabled: false, maxZoom: 1.4, boxSelectionEnabled: false,
    layout: trace.agents.length > 40 ? { name: "grid" } : { name: "dagre", ...(narrow ? down : across) },
    style: [
      { selector: "node", style: { label: "data(label)", shape: "round-rectangle", width: 130, height: 46, "font-size": 13, color: ink, "background-color": surface, "border-width": 1, "border-color": line, "text-valign": "center", "text-halign": "center", "text-wrap": "wrap", "text-max-width": 124 } },
      { selector: ".blamed", style: { "border-width": 3, "border-color": colour("root") } },
      { selector: "edge", style: { label: "data(label)", width: "data(width)", "line-color": line, "target-arrow-color": line, "target-arrow-shape": "triangle", "curve-style": "bezier", "control-point-step-size": 60, "font-size": 12, color: ink, "text-background-color": surface, "text-background-opacity": 1, "text-background-padding": 2 } },
    ],
  });
  cy.on("tap", "node", (event) => { who.value = event.target.id(); filter(); });
  window.opsassayTrace.flow = cy;
};
window.opsassayTrace.drawFlow();
for (const query of ["(prefers-color-scheme: dark)", "(max-width: 820px)"]) matchMedia(query).addEventListener("change", () => window.opsassayTrace.drawFlow());
