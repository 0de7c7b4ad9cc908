// The theme that was chosen here before, set before the page is drawn. Without one the system's preference holds.
"use strict";
try {
  const chosen = localStorage.getItem("prood-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser that keeps nothing still shows the page.
}
