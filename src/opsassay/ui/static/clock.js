// The moment that is read off the lanes: moved by the slider, by arrow keys on a lane, and by a link to a step or a change.
(() => {
  "use strict";

  class Moment {
    constructor(clock) {
      this.seconds = Number(clock.dataset.seconds);
      this.slider = clock.querySelector("input");
      this.output = clock.querySelector("output");
      this.readings = clock.querySelector(".readings");
      this.lanes = [...clock.querySelectorAll(".lane:not(.heads, .axis)")].map((lane) => this.lane(lane));
      clock.querySelector(".moment").hidden = false;
      this.slider.addEventListener("input", () => this.move(Number(this.slider.value)));
    }

    lane(lane) {
      const track = lane.querySelector("svg"), line = document.createElementNS("http://www.w3.org/2000/svg", "line");
      line.setAttribute("class", "now");
      line.setAttribute("y1", "0");
      line.setAttribute("y2", "40");
      line.setAttribute("x1", "-1");
      line.setAttribute("x2", "-1");
      track.append(line);
      const boxes = [...track.querySelectorAll("rect:not(.shade)")].map((box) => {
        const from = Number.parseFloat(box.getAttribute("x")), wide = Number.parseFloat(box.getAttribute("width"));
        return { from, to: from + wide, words: box.textContent };
      });
      track.addEventListener("keydown", (event) => this.step(event, boxes));
      track.addEventListener("click", (event) => {
        const place = track.getBoundingClientRect();
        this.move((this.seconds * (event.clientX - place.left)) / place.width);
      });
      return { name: lane.querySelector("b").textContent, line, boxes };
    }

    step(event, boxes) {
      if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
      event.preventDefault();
      const now = (100 * this.now) / this.seconds;
      const next = event.key === "ArrowRight" ? boxes.find((box) => box.from > now + 0.02) : boxes.findLast((box) => box.from < now - 0.02);
      if (next) this.move((next.from * this.seconds) / 100);
    }

    move(seconds) {
      this.now = Math.min(Math.max(seconds, 0), this.seconds);
      this.slider.value = this.now;
      this.output.textContent = `${this.now.toFixed(1)} s`;
      this.slider.setAttribute("aria-valuetext", this.output.textContent);
      const x = (100 * this.now) / this.seconds;
      const rows = [];
      for (const { name, line, boxes } of this.lanes) {
        line.setAttribute("x1", `${x}%`);
        line.setAttribute("x2", `${x}%`);
        const here = boxes.filter((box) => box.from <= x + 0.02 && x < box.to + 0.02).at(-1);
        if (here) rows.push([name, here.words]);
      }
      this.readings.replaceChildren(...rows.map(([name, words]) => {
        const row = document.createElement("li"), head = document.createElement("b");
        head.textContent = `${name}: `;
        row.append(head, words);
        return row;
      }));
      this.mark();
    }

    mark() {
      const dated = [...document.querySelectorAll("[data-at]")];
      for (const lists of new Set(dated.map((one) => one.parentElement))) {
        const of = dated.filter((one) => one.parentElement === lists);
        const last = of.findLast((one) => Number(one.dataset.at) <= this.now + 0.05);
        for (const one of of) one.classList.toggle("now", one === last);
      }
    }

    follow(hash) {
      const at = /^#at-([\d.]+)$/.exec(hash)?.[1] ?? document.getElementById(hash.slice(1))?.dataset.at;
      if (at !== undefined) this.move(Number(at));
    }
  }

  const moments = [...document.querySelectorAll(".clock")].map((clock) => new Moment(clock));
  for (const moment of moments) {
    moment.now = 0;
    moment.slider.addEventListener("input", () => moments.forEach((other) => other !== moment && other.move(moment.now)));
  }
  const follow = () => moments.forEach((moment) => moment.follow(location.hash));
  addEventListener("hashchange", follow);
  follow();
})();
