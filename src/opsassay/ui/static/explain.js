"use strict";
// Why each path of the truth was accepted or rejected: every path with its hops, or with the first gate that it failed.

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
