"use strict";

// Searches the sections of all pages. A section must contain every word. Words in its title count more.
(function () {
  const root = document.body.dataset.root;
  const input = document.getElementById("search");
  const results = document.getElementById("results");
  const limit = 20;

  function find(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [];
    for (const entry of window.searchIndex) {
      const title = entry.title.toLowerCase();
      const text = entry.text.toLowerCase();
      let score = 0;
      for (const word of words) {
        const inTitle = title.includes(word);
        if (!inTitle && !text.includes(word)) {
          score = 0;
          break;
        }
        score += inTitle ? 10 : 1;
      }
      if (score > 0) {
        found.push({ entry, score });
      }
    }
    return found.sort((a, b) => b.score - a.score).slice(0, limit).map((f) => f.entry);
  }

  input.addEventListener("input", function () {
    results.replaceChildren();
    const query = input.value.trim();
    results.hidden = query === "";
    if (query === "") {
      return;
    }
    const found = find(query);
    for (const entry of found) {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = root + entry.path;
      link.textContent = entry.title;
      item.append(link);
      results.append(item);
    }
    if (found.length === 0) {
      const item = document.createElement("li");
      item.textContent = "Nothing found";
      results.append(item);
    }
  });
})();
