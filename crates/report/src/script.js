"use strict";
// Interactive features of the page: values under the pointer, series that can be switched off,
// data that can be saved, a light and a dark theme. The page is readable without it.
(function () {
  const root = document.documentElement;
  const tip = document.getElementById("tip");
  // Maximum distance of the pointer from a mark, in CSS pixels.
  const REACH = 14;

  // ---- light and dark ----
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");

  // In some browsers a file has no storage: access throws an exception.
  function stored(value) {
    try {
      if (value) localStorage.setItem("weir-theme", value);
      return localStorage.getItem("weir-theme");
    } catch (_) {
      return null;
    }
  }

  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  }

  function dress(theme) {
    if (theme === "dark" || theme === "light") root.dataset.theme = theme;
    const dark = isDark();
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-label", dark ? "Switch to light colours" : "Switch to dark colours");
  }

  const asked = location.hash.slice(1);
  dress(asked === "dark" || asked === "light" ? asked : stored());
  button.hidden = false;
  button.addEventListener("click", function () {
    const theme = isDark() ? "light" : "dark";
    dress(theme);
    stored(theme);
  });
  system.addEventListener("change", function () { dress(); });

  // ---- values ----
  let shown = null;

  function hide() {
    if (shown) shown.classList.remove("near");
    shown = null;
    tip.hidden = true;
  }

  function show(mark, x, y) {
    if (mark !== shown) {
      hide();
      shown = mark;
      if (mark.tagName !== "rect" && mark.tagName !== "polygon") mark.classList.add("near");
      tip.textContent = mark.dataset.tip;
    }
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(Math.max(4, x + 14), innerWidth - box.width - 4);
    const above = y - box.height - 12;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = (above > 4 ? above : y + 20) + "px";
  }

  // The mark under the pointer, or one near by: dots are smaller than fingers.
  function markAt(x, y) {
    for (const reach of [0, REACH / 2, REACH]) {
      const places = reach === 0 ? [[0, 0]] :
        [[-1, 0], [1, 0], [0, -1], [0, 1], [-0.7, -0.7], [0.7, -0.7], [-0.7, 0.7], [0.7, 0.7]];
      for (const place of places) {
        const found = document.elementFromPoint(x + place[0] * reach, y + place[1] * reach);
        const mark = found && found.closest("[data-tip]");
        if (mark) return mark;
      }
    }
    return null;
  }

  function point(event) {
    if (!event.target.closest || !event.target.closest("svg")) return hide();
    const mark = markAt(event.clientX, event.clientY);
    if (mark) show(mark, event.clientX, event.clientY);
    else hide();
  }

  document.addEventListener("pointermove", point, { passive: true });
  document.addEventListener("pointerdown", point, { passive: true });
  document.addEventListener("scroll", function () {
    if (!document.activeElement || document.activeElement.tagName !== "svg") hide();
  }, { passive: true, capture: true });

  // With the keyboard: a drawing takes the focus, arrows go from mark to mark.
  function marksOf(svg) {
    return Array.from(svg.querySelectorAll("[data-tip]")).filter(function (mark) {
      return mark.style.display !== "none";
    });
  }

  function step(svg, by) {
    const marks = marksOf(svg);
    if (marks.length === 0) return;
    const at = marks.indexOf(shown);
    const next = at < 0 ? (by > 0 ? 0 : marks.length - 1) : (at + by + marks.length) % marks.length;
    const box = marks[next].getBoundingClientRect();
    show(marks[next], box.left + box.width / 2, box.top + box.height / 2);
  }

  document.querySelectorAll("svg").forEach(function (svg) {
    if (!svg.querySelector("[data-tip]")) return;
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("focus", function () { if (!shown && svg.matches(":focus-visible")) step(svg, 1); });
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", function (event) {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (by) {
        event.preventDefault();
        step(svg, by);
      } else if (event.key === "Escape") {
        hide();
      }
    });
  });

  // ---- series ----
  document.querySelectorAll("[data-toggle]").forEach(function (toggle) {
    toggle.addEventListener("click", function () {
      const on = toggle.getAttribute("aria-pressed") !== "true";
      toggle.setAttribute("aria-pressed", String(on));
      const series = toggle.dataset.toggle;
      toggle.closest("figure").querySelectorAll('svg [data-series="' + series + '"]').forEach(function (mark) {
        mark.style.display = on ? "" : "none";
      });
      hide();
    });
  });

  // ---- data ----
  document.querySelectorAll(".save").forEach(function (save) {
    save.hidden = false;
    save.addEventListener("click", function () {
      const text = save.parentElement.querySelector("pre").textContent;
      const table = save.dataset.file.endsWith(".csv");
      const blob = new Blob([table ? text.replace(/\n/g, "\r\n") : text], {
        type: table ? "text/csv;charset=utf-8" : "text/plain;charset=utf-8",
      });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = save.dataset.file;
      link.click();
      setTimeout(function () { URL.revokeObjectURL(link.href); }, 10000);
    });
  });
})();
