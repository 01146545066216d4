"use strict";
// A list of any length of which only the visible rows are in the page.

const ROW = 38;

class StepList {
  constructor(trace, onselect) {
    this.trace = trace;
    this.onselect = onselect;
    this.positions = trace.steps.map((_, position) => position);
    this.selected = 0;
    this.room = el("div", { class: "steps-room" });
    this.box = el("div", { class: "steps", tabindex: "0", role: "listbox", "aria-label": "Steps", onscroll: () => this.draw(), onkeydown: (event) => this.key(event) }, this.room);
  }

  show(positions) {
    this.positions = positions;
    this.room.style.height = `${positions.length * ROW}px`;
    this.box.scrollTop = 0;
    this.draw();
  }

  // Selects the step at a position of the trace, and brings it into view.
  select(position) {
    this.selected = position;
    const at = this.positions.indexOf(position);
    if (at >= 0) {
      const top = at * ROW, height = this.box.clientHeight;
      if (top < this.box.scrollTop || top + ROW > this.box.scrollTop + height) this.box.scrollTop = top - height / 2;
    }
    this.draw();
    this.onselect(position);
  }

  move(by) {
    const at = this.positions.indexOf(this.selected);
    const next = this.positions[Math.min(this.positions.length - 1, Math.max(0, at + by))];
    if (next !== undefined) this.select(next);
  }

  key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -this.positions.length, End: this.positions.length }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    this.move(by);
  }

  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - 5);
    const last = Math.min(this.positions.length, first + Math.ceil((this.box.clientHeight || 600) / ROW) + 10);
    const rows = [];
    for (let at = first; at < last; at += 1) rows.push(this.row(at));
    this.room.replaceChildren(...rows);
    const active = rows.find((row) => row.getAttribute("aria-selected") === "true");
    if (active) this.box.setAttribute("aria-activedescendant", active.id);
    else this.box.removeAttribute("aria-activedescendant");
  }

  row(at) {
    const position = this.positions[at], [id, agent, flags, line] = this.trace.steps[position];
    const suggested = this.trace.suggestion?.step === id, found = this.trace.findings.some((finding) => finding.step === id);
    const node = el("div", {
      class: `step${suggested ? " suggested" : ""}${found ? " found" : ""}${/[fe]/.test(flags) ? " failed" : ""}`, id: `row-${position}`, role: "option",
      "aria-selected": String(position === this.selected), "aria-setsize": String(this.positions.length), "aria-posinset": String(at + 1), onclick: () => this.select(position),
    },
      el("span", { class: "number" }, String(id)),
      el("span", { class: `agent tone-${agent % 6}` }, name(this.trace.agents[agent])),
      el("span", { class: "signs" }, [suggested ? "◆" : "", found ? "▲" : "", flags.includes("t") ? "⚒" : "", /[fe]/.test(flags) ? "✕" : ""].join("")),
      el("span", { class: "line", dir: "auto" }, line));
    node.style.top = `${at * ROW}px`;
    return node;
  }
}
