"use strict";
// What shows progress is fetched again when something happened, at most once a second.
{
  const parts = document.querySelectorAll("[data-live]");
  let due = 0;
  const refresh = async () => {
    due = 0;
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelectorAll("[data-live]");
    parts.forEach((part, i) => { if (fresh[i]) part.replaceChildren(...fresh[i].childNodes); });
  };
  if (parts.length) {
    const news = new EventSource("/api/live");
    news.onmessage = () => { due ||= setTimeout(refresh, 1000); };
  }
}
