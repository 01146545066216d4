"use strict";
// Golden signals: three charts that share one time axis, seconds from the normal/abnormal boundary.

const SIGNALS = [
  { key: "rate", title: "Request rate", unit: "requests/s" },
  { key: "errors", title: "Error share", unit: "%" },
  { key: "p99", title: "Latency, 99th percentile", unit: "ms" },
];
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [5, 2], [1, 4]];
const MOST_SERIES = DASHES.length;

const CHART_HEIGHT_PX = 210;

// Shaded fault, boundary and alerts are drawn below and above the series.
function drawMarks(chart, view) {
  const { ctx, bbox } = chart;
  const at = (x) => chart.valToPos(x, "x", true);
  ctx.save();
  ctx.fillStyle = colour("fault-shade");
  for (const [from, to] of view.charts.faults) ctx.fillRect(at(from), bbox.top, Math.max(1, at(to) - at(from)), bbox.height);
  ctx.restore();
}

function drawBoundary(chart, view) {
  const { ctx, bbox } = chart;
  const ratio = devicePixelRatio, x = chart.valToPos(0, "x", true);
  ctx.save();
  ctx.strokeStyle = colour("ink");
  ctx.lineWidth = ratio;
  ctx.setLineDash([4 * ratio, 3 * ratio]);
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.fillStyle = colour("alert");
  for (const alert of view.alerts) drawTriangle(ctx, chart.valToPos(alert.x, "x", true), bbox.top, 5 * ratio);
  ctx.restore();
}

function drawTriangle(ctx, x, top, size) {
  ctx.beginPath();
  ctx.moveTo(x - size, top);
  ctx.lineTo(x + size, top);
  ctx.lineTo(x, top + 1.7 * size);
  ctx.fill();
}

function axis(label, extra = {}) {
  return { label, labelSize: 18, labelFont: "12px system-ui, sans-serif", font: "11px system-ui, sans-serif", stroke: colour("muted"),
    grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1 }, ...extra };
}

function niceNumber(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

function mean(values, weights = values.map(() => 1)) {
  const total = values.reduce((sum, value, i) => sum + (value === null ? 0 : weights[i]), 0);
  return total ? values.reduce((sum, value, i) => sum + (value ?? 0) * weights[i], 0) / total : null;
}

// A bucket between two silent ones has no line to be seen on.
function lonePoints(chart, series) {
  const values = chart.data[series];
  const silent = (i) => values[i] === null || values[i] === undefined;
  return [...values.keys()].filter((i) => !silent(i) && silent(i - 1) && silent(i + 1));
}

function median(values) {
  const known = values.filter((value) => value !== null).sort((a, b) => a - b);
  return known.length ? known[known.length >> 1] : null;
}

class SignalCharts {
  constructor(box, readout, view) {
    Object.assign(this, { box, readout, view, plots: [] });
    this.byService = new Map(view.charts.series.map((series) => [series.service, series]));
    this.chosen = this.firstChoice();
    this.sync = uPlot.sync(`case-${view.id}`);
  }

  firstChoice() {
    const { roots, entry } = this.view.charts;
    const wanted = [...new Set([...roots, ...(entry === null ? [] : [entry])])].filter((service) => this.byService.has(service));
    return (wanted.length ? wanted : [...this.byService.keys()]).slice(0, MOST_SERIES - 1);
  }

  toggle(service) {
    this.chosen = this.chosen.includes(service) ? this.chosen.filter((other) => other !== service) : [...this.chosen, service].slice(-MOST_SERIES);
    this.draw();
  }

  roleOf(service) {
    const { roots, entry } = this.view.charts;
    return [roots.includes(service) ? "root" : "", service === entry ? "entry" : ""].filter(Boolean).join(", ");
  }

  draw() {
    this.plots.forEach((plot) => plot.destroy());
    const holders = SIGNALS.map((signal) =>
      el("figure", { class: "chart" }, el("figcaption", {}, `${signal.title} (${signal.unit})`), el("output", { class: "cursor" }, " ")));
    this.box.replaceChildren(...holders); // all in place before the first is measured
    this.plots = SIGNALS.map((signal, i) => this.plot(signal, holders[i]));
    this.readout.replaceChildren(this.legendTable());
  }

  plot(signal, holder) {
    const data = [this.view.charts.x, ...this.chosen.map((service) => this.byService.get(service)[signal.key])];
    return new uPlot(this.options(signal, holder), data, holder);
  }

  options(signal, holder) {
    const series = this.chosen.map((service, i) => ({
      label: clipped(this.view.services[service].name, 40), stroke: colour(`series-${i}`), width: 2, dash: DASHES[i], spanGaps: false,
      points: { size: 4, show: () => false, filter: lonePoints } }));
    return {
      width: Math.max(200, holder.clientWidth), height: CHART_HEIGHT_PX, legend: { show: false },
      cursor: { sync: { key: this.sync.key }, drag: { x: true, y: false } },
      scales: {
        x: { time: false, range: (_, low, high) => [low ?? this.view.charts.start, high ?? this.view.charts.end] },
        y: { range: (_, low, high) => [0, Math.max(high * 1.12, signal.key === "errors" ? 5 : 1)] },
      },
      axes: [axis("seconds from the boundary", { size: 32 }), axis(signal.unit, { size: 52, values: (_, ticks) => ticks.map(niceNumber) })],
      series: [{}, ...series],
      hooks: {
        drawClear: [(chart) => drawMarks(chart, this.view)],
        draw: [(chart) => drawBoundary(chart, this.view)],
        setCursor: [(chart) => this.readCursor(chart, signal, holder)],
      },
    };
  }

  readCursor(chart, signal, holder) {
    const at = chart.cursor.idx;
    const words = at === null || at === undefined ? " " : `${niceNumber(this.view.charts.x[at])} s: ` +
      this.chosen.map((service) => `${clipped(this.view.services[service].name, 24)} ${niceNumber(this.byService.get(service)[signal.key][at])}`).join(", ");
    holder.querySelector("output").textContent = words;
  }

  legendTable() {
    const boundary = this.view.charts.x.filter((x) => x < 0).length;
    const halves = (values) => [values.slice(0, boundary), values.slice(boundary)];
    const change = (sum, values, weights) => halves(values).map((half, i) => niceNumber(sum(half, weights && halves(weights)[i]))).join(" → ");
    const rows = this.chosen.map((service, i) => {
      const series = this.byService.get(service);
      return [
        el("span", { class: "service-key" }, this.swatch(i), name(clipped(this.view.services[service].name, 60))),
        this.roleOf(service) || "chosen", change(mean, series.rate), change(mean, series.errors, series.rate), change(median, series.p50), change(median, series.p99),
      ];
    });
    return table("The shown services before and after", ["Service", "Role", "Rate, requests/s", "Errors, %", "p50, ms", "p99, ms"], rows);
  }

  swatch(i) {
    const canvas = el("canvas", { width: 56, height: 12, class: "swatch", "aria-hidden": "true" });
    const ctx = canvas.getContext("2d");
    ctx.strokeStyle = colour(`series-${i}`);
    ctx.lineWidth = 4;
    ctx.setLineDash(DASHES[i].map((length) => 2 * length));
    ctx.beginPath();
    ctx.moveTo(0, 6);
    ctx.lineTo(56, 6);
    ctx.stroke();
    return canvas;
  }

  resize() {
    this.plots.forEach((plot) => plot.setSize({ width: Math.max(200, plot.root.parentElement.clientWidth), height: CHART_HEIGHT_PX }));
  }

  destroy() {
    this.plots.forEach((plot) => plot.destroy());
  }
}

function serviceChooser(charts, services) {
  const boxes = el("div", { class: "choices" });
  const render = () => {
    boxes.replaceChildren(...[...charts.byService.keys()].map((service) =>
      el("label", { class: "choice" },
        el("input", { type: "checkbox", checked: charts.chosen.includes(service), onchange: () => { charts.toggle(service); refresh(); } }),
        el("span", {}, name(clipped(services[service].name, 40))))));
  };
  const refresh = () => [...boxes.querySelectorAll("input")].forEach((input, i) => { input.checked = charts.chosen.includes([...charts.byService.keys()][i]); });
  render();
  return el("details", { class: "chooser" }, el("summary", {}, `Choose services (up to ${MOST_SERIES})`), boxes);
}
