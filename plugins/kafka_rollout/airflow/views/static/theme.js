"use strict";
// Airflow keeps the color mode of its pages in the browser's storage, which all pages of its address share.
{
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    let mode = null;
    try {
      mode = localStorage.getItem("theme");
    } catch {
      // The storage is blocked: the system decides.
    }
    const isDark = mode === "dark" || (mode !== "light" && dark.matches);
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
  };
  apply();
  addEventListener("storage", (event) => event.key === "theme" && apply());
  dark.addEventListener("change", apply);
}
