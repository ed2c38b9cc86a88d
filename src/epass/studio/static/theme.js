// Before anything is drawn, so that a dark page never begins with a white flash.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    let chosen = null;
    try { chosen = localStorage.getItem("epass-theme"); } catch { /* a browser that keeps nothing */ }
    document.documentElement.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
    document.dispatchEvent(new Event("theme"));
  };
  dark.addEventListener("change", apply);
  document.addEventListener("choose-theme", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    const own = (dark.matches ? "dark" : "light") === next; // the machine's own choice needs no memory
    try {
      if (own) localStorage.removeItem("epass-theme");
      else localStorage.setItem("epass-theme", next);
      apply();
    } catch { document.documentElement.dataset.theme = next; }
  });
  apply();
})();
