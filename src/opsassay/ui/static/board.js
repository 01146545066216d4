// A leaderboard: its rows are searched by solver and its columns are chosen. Both stand in the address, which can be sent on.
(() => {
  "use strict";
  const kept = new URLSearchParams(location.hash.slice(1));

  function keep(name, value) {
    if (value) kept.set(name, value);
    else kept.delete(name);
    history.replaceState(null, "", kept.size ? `#${kept}` : location.pathname + location.search);
  }

  function show(controls) {
    const table = controls.parentElement.querySelector("table.board"), rows = [...table.tBodies[0].rows];
    const name = controls.dataset.board, search = controls.querySelector("input"), said = controls.querySelector("output");
    const hidden = new Set((kept.get(`${name}.without`) ?? "").split("|"));

    function find() {
      const wanted = search.value.trim().toLowerCase();
      for (const row of rows) row.hidden = !row.dataset.names.toLowerCase().includes(wanted);
      said.textContent = wanted ? `${rows.filter((row) => !row.hidden).length} of ${rows.length} solvers` : "";
      keep(`${name}.solver`, wanted);
    }

    function choose(column, shown, title) {
      hidden[shown ? "delete" : "add"](title);
      for (const row of table.rows) row.cells[column].hidden = !shown;
      keep(`${name}.without`, [...hidden].filter(Boolean).join("|"));
    }

    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (column < 3) return;
      const title = head.textContent, label = document.createElement("label"), tick = document.createElement("input");
      Object.assign(tick, { type: "checkbox", checked: !hidden.has(title) });
      tick.addEventListener("change", () => choose(column, tick.checked, title));
      label.className = "choice";
      label.append(tick, title);
      controls.querySelector(".choices").append(label);
      if (!tick.checked) choose(column, false, title);
    });
    search.value = kept.get(`${name}.solver`) ?? "";
    search.addEventListener("input", find);
    controls.hidden = false;
    find();
  }

  document.querySelectorAll("[data-board]").forEach(show);
})();
