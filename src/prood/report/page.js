// Choosing a radius or an out-distribution hides the other figures. Without this script all of them are shown.
"use strict";
(() => {
  const form = document.querySelector(".choice");
  const selects = [...form.querySelectorAll("select")];
  const figures = [...document.querySelectorAll("[data-eps], [data-outside]")];

  function show() {
    for (const figure of figures) {
      figure.hidden = selects.some(({ dataset: { filter }, value }) => {
        const own = figure.dataset[filter];
        return value !== "" && own !== undefined && own !== value;
      });
    }
  }

  for (const select of selects) {
    select.addEventListener("change", show);
  }
  form.hidden = selects.length === 0;
  show();

  // The pictures of one out-distribution are enough to begin with.
  const folded = [...document.querySelectorAll("#gallery details")].slice(1);
  for (const details of folded) details.open = false;
  window.addEventListener("beforeprint", () => folded.forEach((details) => (details.open = true)));

  // Mark in the navigation what is being read.
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        links.forEach((link) => link.removeAttribute("aria-current"));
        links.get(target.id)?.setAttribute("aria-current", "true");
      }
    },
    { rootMargin: "-20% 0px -75% 0px" },
  );
  document.querySelectorAll("section").forEach((section) => seen.observe(section));
})();
