"use strict";
// The annotation form: one answer per trace, kept in this browser until it is saved as a file.

class AnnotationForm {
  constructor(store, current) {
    this.store = store;
    this.current = current;
    this.key = `opsassay-annotations:${store.form.annotator}:${store.traces.map((trace) => trace.name).join("|")}`;
    this.answers = this.kept();
    this.box = el("section", { class: "annotate", "aria-label": "Your annotation" });
  }

  kept() {
    try { return JSON.parse(localStorage.getItem(this.key)) ?? {}; } catch { return {}; }
  }

  draw() {
    const trace = this.store.traces[this.current().trace], answer = this.answers[trace.name] ?? {};
    const agent = el("select", { id: "blamed-agent", onchange: () => this.keep() }, el("option", { value: "" }, "choose"),
      trace.agents.map((agent) => el("option", { value: agent, selected: agent === answer.agent_name }, agent)));
    const step = el("input", { id: "blamed-step", type: "number", min: "1", max: String(trace.steps.length), value: answer.step_id ?? "", onchange: () => this.keep() });
    const reason = el("textarea", { id: "blamed-reason", rows: "2", onchange: () => this.keep() }, answer.reason ?? "");
    const uncertain = el("input", { id: "blamed-uncertain", type: "checkbox", checked: Boolean(answer.uncertain), onchange: () => this.keep() });
    this.fields = { agent, step, reason, uncertain };
    const done = this.store.traces.filter(({ name: known }) => this.answers[known]?.step_id && this.answers[known]?.agent_name).length;
    this.box.replaceChildren(
      el("h2", {}, `Annotation by ${this.store.form.annotator}`),
      el("details", { open: true }, el("summary", {}, "What is asked"), el("p", { class: "quiet" }, this.store.form.definition)),
      el("div", { class: "fields" },
        el("label", {}, "Responsible agent", agent),
        el("label", {}, "Decisive step", step),
        el("button", { type: "button", id: "take-step", onclick: () => this.take() }, "Take the open step"),
        el("label", { class: "wide" }, "Reason", reason),
        el("label", { class: "tick" }, uncertain, "I am uncertain")),
      el("p", { class: "fields" }, el("button", { type: "button", id: "save", onclick: () => this.save() }, "Save as a file"),
        el("span", { class: "quiet", role: "status" }, `${done} of ${this.store.traces.length} annotated`)));
  }

  take() {
    const { trace, position } = this.current(), [id, agent] = this.store.traces[trace].steps[position];
    this.fields.step.value = id;
    this.fields.agent.value = this.store.traces[trace].agents[agent];
    this.keep();
  }

  keep() {
    const trace = this.store.traces[this.current().trace], step = Number.parseInt(this.fields.step.value, 10);
    this.answers[trace.name] = {
      agent_name: this.fields.agent.value || null, step_id: Number.isInteger(step) ? step : null,
      reason: this.fields.reason.value, uncertain: this.fields.uncertain.checked,
    };
    try { localStorage.setItem(this.key, JSON.stringify(this.answers)); } catch { /* a browser that keeps nothing still saves files */ }
    this.draw();
  }

  save() {
    const text = JSON.stringify({ schema_version: 1, annotator: this.store.form.annotator, attributions: this.answers }, null, 1);
    const link = el("a", { href: URL.createObjectURL(new Blob([`${text}\n`], { type: "application/json" })), download: `${this.store.form.annotator}.json` });
    document.body.append(link);
    link.click();
    link.remove();
  }
}
