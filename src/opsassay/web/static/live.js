// Follows what begins and ends, and puts the new parts of this page in place of the old ones.
(() => {
  "use strict";
  const said = document.getElementById("said");
  let waiting = null;

  async function renew() {
    waiting = null;
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) throw new Error(`answer ${answer.status}`);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const focused = document.activeElement?.getAttribute("href");
    for (const old of document.querySelectorAll("[data-live]")) {
      const part = fresh.getElementById(old.id);
      if (part && part.outerHTML !== old.outerHTML) old.replaceWith(document.adoptNode(part));
    }
    if (focused && document.activeElement === document.body) {
      document.querySelector(`main a[href="${CSS.escape(focused)}"]`)?.focus();
    }
  }

  const every = document.querySelector("[data-every]")?.dataset.every;
  if (every) {  // what is read anew with every look has no events
    const again = () => renew().then(() => said && (said.textContent = ""), () => said && (said.textContent = "The server does not answer; this page shows what was last seen."))
      .finally(() => setTimeout(again, Number(every)));
    setTimeout(again, Number(every));
    return;
  }

  const events = new EventSource(`${document.querySelector("nav.ways a").getAttribute("href").replace("index.html", "")}events`);
  events.addEventListener("message", (message) => {
    const run = JSON.parse(message.data);
    said.textContent = `${run.solver} ${run.event === "begun" ? "has begun" : `has ended as ${run.status}`}: ${run.task}`;
    waiting ??= setTimeout(() => renew().catch(() => {}), 200);
  });
  events.addEventListener("error", () => {
    said.textContent = "The server does not answer; this page shows what was last seen.";
  });
  events.addEventListener("open", () => {
    if (said.textContent.startsWith("The server")) {
      said.textContent = "";
      waiting ??= setTimeout(() => renew().catch(() => {}), 200);
    }
  });
})();
