"use strict";
// The written parts of a case: summary, alerts, grades, answers, footer.

function summarySection(view) {
  return section("summary", "What happened",
    el("div", { class: "headline", dir: "auto" }, prose(view.headline)),
    definitions(view.facts),
    view.alerts.length ? alertTable(view) : el("p", { class: "quiet" }, "No alert fired."));
}

function alertTable(view) {
  const rows = view.alerts.map((alert) => [
    `${alert.x >= 0 ? "+" : ""}${alert.x.toFixed(1)} s`, name(clipped(view.services[alert.service].name, 60)), alert.signal, alert.value, alert.threshold, alert.message, alert.at]);
  return el("details", { open: view.alerts.length <= 6 },
    el("summary", {}, `${view.alerts.length} alert${view.alerts.length === 1 ? "" : "s"} fired`),
    table("Alerts", ["From boundary", "Service", "Signal", "Value", "Threshold", "Message", "Time"], rows));
}

function gradesSection(view) {
  const { columns, rows, notes, sortedBy } = view.grades;
  if (!rows.length) return section("grades", "Grades", el("p", { class: "quiet" }, "No solver has answered yet: run `opsassay run diagnose` on this incident."));
  const reason = el("p", { class: "reason", role: "status", "aria-live": "polite" }, "Point at or tab to an n/a or failed for its reason.");
  const titles = columns.length ? columns.map(headCell) : [el("th", { scope: "col" }, "Outcome")];
  const head = [el("th", { scope: "col" }, "Solver"), ...titles];
  const grid = table("Grades", head, rows.map((row) => gradeRow(row, columns, reason)));
  grid.classList.add("grades");
  return section("grades", "Grades",
    el("p", { class: "quiet" }, `Ordered by ${sortedBy || "name"}; baselines show what no skill looks like, and what is not ranked is last. A column title orders by it.`),
    grid, notes.length ? reason : null, notes.length ? el("ol", { class: "footnotes" }, notes.map((note) => el("li", { dir: "auto" }, prose(note)))) : null);
}

function headCell(column, index) {
  const sort = (event) => sortRows(event.currentTarget.closest("table"), index + 1, event.currentTarget.closest("th"));
  const unit = column.unit === "share" ? "%" : column.unit;
  return el("th", { scope: "col", title: column.about, class: "number" },
    el("button", { type: "button", class: "sort", onclick: sort, "data-metric": column.name }, column.title, unit ? el("small", {}, unit) : null));
}

function gradeRow(row, columns, reason) {
  const cells = row.problem && row.cells.every((cell) => cell.status === "absent")
    ? [el("td", { class: "problem", colspan: Math.max(1, columns.length), dir: "auto" }, prose(row.problem))]
    : row.cells.map((cell) => gradeCell(cell, reason));
  return el("tr", { class: row.baseline ? "baseline" : "" },
    el("th", { scope: "row" }, name(row.solver), row.baseline ? el("span", { class: "tag" }, "baseline") : null,
      row.kind === "agent" ? el("span", { class: "tag" }, "agent") : null, unrankedTag(row.unranked)), cells);
}

function unrankedTag(reason) {
  return reason ? el("span", { class: "tag unranked", title: `Not ranked: ${reason}` }, "not ranked") : null;
}

function gradeCell(cell, reason) {
  const sort = cell.sort === null ? "" : cell.sort;
  if (cell.status === "scored" || cell.status === "absent") return el("td", { class: `number ${cell.status}`, "data-sort": sort }, cell.text.replace(" %", ""));
  const tell = () => { reason.textContent = `${cell.text}: ${cell.reason}`; };
  return el("td", { class: `number ${cell.status}`, "data-sort": sort },
    el("span", { tabindex: "0", title: cell.reason, "aria-label": `${cell.text}: ${cell.reason}`, onfocus: tell, onmouseenter: tell }, cell.text, el("sup", {}, String(cell.note))));
}

// Rows without a number stay last in either order.
function sortRows(grid, column, header) {
  const down = header.getAttribute("aria-sort") !== "descending";
  grid.querySelectorAll("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
  const value = (row) => (row.children[column] && row.children[column].dataset.sort ? Number(row.children[column].dataset.sort) : null);
  const order = (a, b) => (value(a) === null) - (value(b) === null) || (down ? value(b) - value(a) : value(a) - value(b));
  grid.tBodies[0].append(...[...grid.tBodies[0].rows].sort(order));
}

function answersSection(view) {
  const answers = view.answers.length ? view.answers.map((answer) => answerDetails(answer)) : [el("p", { class: "quiet" }, "There are no answers.")];
  return section("answers", "Answers in detail", answers);
}

function answerDetails(answer) {
  const short = answer.problem && !answer.said ? answer.problem : answer.claims.map((claim) => claim.service).join(", ") || "nothing is wrong";
  return el("details", { class: "answer" },
    el("summary", {}, el("strong", {}, name(answer.solver)), answer.baseline ? el("span", { class: "tag" }, "baseline") : null, unrankedTag(answer.unranked), el("span", { class: "said" }, name(clipped(short, 90)))),
    el("p", { class: "quiet" }, answer.ran, answer.unranked ? `; not ranked: ${answer.unranked}` : ""),
    answer.problem ? el("div", { class: "problem", dir: "auto" }, prose(answer.problem)) : null,
    answer.said ? answerBody(answer) : null);
}

function answerBody(answer) {
  return [
    el("h3", {}, "Claimed root causes"),
    answer.claims.length ? answer.claims.map(claimBlock) : el("p", {}, "None: the answer is “nothing is wrong”."),
    answer.edges.length ? [el("h3", {}, "Claimed propagation"), answer.edges.map(edgeBlock)] : null,
    answer.ranking.length ? [el("h3", {}, `Ranking, first ${answer.ranking.length} of ${answer.rankedInAll}`), rankingList(answer.ranking)] : null,
    answer.notes.length ? [el("h3", {}, "Notes"), el("ul", {}, answer.notes.map((note) => el("li", { dir: "auto" }, prose(note))))] : null,
    answer.protocol.length ? [el("h3", {}, "Protocol of the solver"), definitions(answer.protocol)] : null,
  ].flat(2);
}

function claimBlock(claim) {
  return el("div", { class: "claim" }, el("p", {}, el("strong", {}, name(claim.service)), ` — ${claim.kind} (`, name(claim.where), ")"), claim.evidence.map(evidenceBlock));
}

function edgeBlock(edge) {
  return el("div", { class: "claim" }, el("p", {}, name(edge.source), " → ", name(edge.target)), edge.evidence.map(evidenceBlock));
}

function evidenceBlock(evidence) {
  return el("div", { class: "evidence" },
    el("div", {}, el("span", { class: `tag status-${evidence.status.replace(" ", "-")}` }, `${evidence.kind} · ${evidence.status}`), el("span", { dir: "auto" }, prose(evidence.claim))),
    code(evidence.sql),
    evidence.message ? el("div", { class: "problem", dir: "auto" }, prose(evidence.message)) : null,
    evidence.judged ? el("p", { class: "quiet" }, `Judged ${evidence.judged}`) : null,
    evidence.rows.length ? table("Rows of this statement", evidence.columns, evidence.rows) : null,
    evidence.more ? el("p", { class: "quiet" }, evidence.more) : null);
}

function rankingList(ranking) {
  return el("ol", { class: "ranking" }, ranking.map((rank) =>
    el("li", {}, name(rank.service), el("meter", { min: 0, max: 1, value: rank.share.toFixed(4), "aria-hidden": "true" }), el("span", { class: "number" }, rank.score))));
}

function footerSection(view) {
  return section("reproduce", "How to reproduce",
    code(view.commands.join("\n")),
    el("details", {}, el("summary", {}, "Versions, hashes and thresholds"), definitions(view.footer)));
}

function explainSection(view) {
  if (!view.why) return null;
  const { summary, accepted, rejected, more } = view.why;
  const counted = (paths, word) => `${paths.length} path${paths.length === 1 ? "" : "s"} ${word}`;
  return section("why", "Why this is the truth",
    summary.map((line) => el("p", { dir: "auto" }, prose(line))),
    accepted.length ? el("details", {}, el("summary", {}, counted(accepted, "accepted")),
      accepted.map(([path, hops]) => el("div", {}, el("p", { dir: "auto" }, el("strong", {}, name(path))), el("ol", {}, hops.map((hop) => el("li", { dir: "auto" }, hop)))))) : null,
    rejected.length ? el("details", {}, el("summary", {}, counted(rejected, "rejected")),
      table("Rejected paths", ["Path", "First gate failed", "Which means", "Here"], rejected)) : null,
    more ? el("p", { class: "quiet" }, `${more} more are in annotation.json.`) : null);
}
