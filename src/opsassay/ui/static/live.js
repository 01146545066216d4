// Puts the new parts of this page in place of the old ones: as runs begin and end, or every so often where the page says so.
// A tab that nobody sees asks for nothing: browsers keep few connections to a server, and a hundred tabs share them.
(() => {
  "use strict";
  const GONE = "The server does not answer; this page shows what was last seen.";
  const OFTEN_MS = 2000;
  const said = document.getElementById("said");
  const every = Number(document.querySelector("[data-every]")?.dataset.every ?? 0);
  let waiting = null, events = null, timer = null;

  function say(text) {
    if (said && said.textContent !== text) said.textContent = text;
  }

  async function renew() {
    waiting = null;
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (!answer.ok) throw new Error(`answer ${answer.status}`);
      replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      if (said?.textContent === GONE) say("");
    } catch {
      say(GONE);
    }
  }

  function replace(fresh) {
    const focused = document.activeElement?.getAttribute("href");
    for (const old of document.querySelectorAll("[data-live]")) {
      const part = fresh.getElementById(old.id);
      if (part && part.outerHTML !== old.outerHTML) old.replaceWith(document.adoptNode(part));
    }
    document.body.dataset.follow = fresh.body.dataset.follow;
    if (focused && document.activeElement === document.body) {
      document.querySelector(`main a[href="${CSS.escape(focused)}"]`)?.focus();
    }
  }

  function poll(after) {
    timer = setTimeout(() => renew().then(() => timer === null || poll(after)), after);
  }

  function follow() {
    events = new EventSource(document.body.dataset.follow);  // what this page does not show yet
    events.addEventListener("message", (message) => {
      const run = JSON.parse(message.data);
      if (run.solver) say(`${run.solver} ${run.event === "begun" ? "has begun" : `has ended as ${run.status}`}: ${run.task}`);
      waiting ??= setTimeout(renew, run.solver ? 200 : 1000);
    });
    events.addEventListener("error", () => {
      if (events?.readyState === EventSource.CLOSED && timer === null) poll(OFTEN_MS);  // too many follow: looked at by itself
      else say(GONE);
    });
    events.addEventListener("open", () => { if (said?.textContent === GONE) waiting ??= setTimeout(renew, 200); });
  }

  function stop() {
    events?.close();
    clearTimeout(timer);
    events = timer = null;
  }

  function start() {
    if (every) poll(every);
    else follow();
  }

  document.addEventListener("visibilitychange", () => {
    stop();
    if (document.visibilityState === "visible") renew().then(start);
  });
  if (document.visibilityState === "visible") start();
})();
