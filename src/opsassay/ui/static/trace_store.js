"use strict";
// The traces of the page: the index is there at once, the contents of steps are parsed a hundred at a time, when asked for.

class TraceStore {
  constructor(payload) {
    this.traces = payload.traces;
    this.size = payload.size;
    this.form = payload.form;
    this.chunks = new Map();
    this.texts = new Map();
    this.whole = document.readyState !== "loading" ? Promise.resolve() : new Promise((done) => document.addEventListener("DOMContentLoaded", done, { once: true }));
  }

  // The content of the step at a position, once the browser has read so far.
  async content(trace, position) {
    const number = Math.floor(position / this.size), id = `chunk-${trace}-${number}`;
    if (!this.chunks.has(id)) {
      if (!document.getElementById(id)?.nextElementSibling) await this.whole;
      this.chunks.set(id, JSON.parse(document.getElementById(id).textContent));
    }
    return this.chunks.get(id)[position - number * this.size];
  }

  // The lower-case text of every step of a trace, for the search.
  async text(trace) {
    if (this.texts.has(trace)) return this.texts.get(trace);
    const steps = this.traces[trace].steps, found = [];
    for (let position = 0; position < steps.length; position += 1) {
      const content = await this.content(trace, position);
      found.push([this.traces[trace].agents[steps[position][1]], content.input, content.output, content.error, ...content.tools.flat()].join("\n").toLowerCase());
    }
    this.texts.set(trace, found);
    return found;
  }
}
