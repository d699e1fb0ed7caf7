"use strict";
// Zoom, search and values of a flame graph in a file of its own. Without it the graph is a drawing.
(function () {
  const svg = document.documentElement;
  const { width, height } = svg.viewBox.baseVal;
  const CHAR_WIDTH = 6.8;

  function addText(x, y, classes) {
    const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
    text.setAttribute("x", x);
    text.setAttribute("y", y);
    text.setAttribute("class", classes);
    svg.appendChild(text);
    return text;
  }

  function addButton(x, label, action) {
    const button = addText(x, 20, "label end button");
    button.textContent = label;
    button.addEventListener("click", action);
    return button;
  }

  svg.querySelectorAll("text.frame").forEach((text) => text.remove());
  const frames = Array.from(svg.querySelectorAll("rect[data-tip]"), function (rect) {
    const [name, ...values] = rect.dataset.tip.split("\n");
    const [left, size] = [rect.dataset.left, rect.dataset.width].map(Number);
    return { rect, name, values, left, size, top: Number(rect.getAttribute("y")), text: null };
  });
  const root = frames.reduce((lowest, frame) => (frame.top > lowest.top ? frame : lowest));
  const details = addText(0, height - 12, "label");
  const matched = addText(width, height - 12, "label end");
  const reset = addButton(width - 80, "Reset zoom", () => zoom(root));
  addButton(width, "Search", search);

  // Places the frames so that one of them has the complete width.
  function zoom(target) {
    const scale = width / target.size;
    reset.style.display = target === root ? "none" : "";
    for (const frame of frames) {
      const isBelow = frame.top > target.top;
      const left = isBelow ? 0 : (frame.left - target.left) * scale;
      const size = isBelow ? width : frame.size * scale;
      const overlaps = frame.left < target.left + target.size && frame.left + frame.size > target.left;
      const isShown = overlaps && (!isBelow || frame.size >= target.size) && size > 0.2 && left > -0.1;
      frame.rect.style.display = isShown ? "" : "none";
      frame.rect.setAttribute("x", left);
      frame.rect.setAttribute("width", Math.max(size - 0.6, 0.2));
      frame.rect.style.opacity = isBelow ? 0.6 : 1;
      const letters = Math.floor((size - 6) / CHAR_WIDTH);
      if (isShown && letters > 4 && !frame.text) frame.text = addText(0, frame.top + 12.5, "frame");
      if (!frame.text) continue;
      frame.text.style.display = isShown && letters > 4 ? "" : "none";
      frame.text.setAttribute("x", left + 3);
      frame.text.textContent = frame.name.length > letters ? frame.name.slice(0, letters - 1) + "…" : frame.name;
    }
  }

  // Marks the functions that match, and adds up the outermost ones.
  function search() {
    const words = prompt("Regular expression to search for:", "");
    if (words === null) return;
    let pattern;
    try {
      pattern = new RegExp(words);
    } catch (error) {
      return alert(error.message);
    }
    const hits = frames.filter((frame) => words !== "" && pattern.test(frame.name));
    frames.forEach((frame) => frame.rect.classList.toggle("hit", hits.includes(frame)));
    let [end, sum] = [-1, 0];
    for (const hit of hits.sort((a, b) => a.left - b.left || b.size - a.size)) {
      if (hit.left < end - 1e-9) continue;
      sum += hit.size;
      end = hit.left + hit.size;
    }
    matched.textContent = words === "" ? "" : "Matched: " + ((100 * sum) / root.size).toFixed(1) + " %";
  }

  for (const frame of frames) {
    frame.rect.addEventListener("click", () => zoom(frame));
    frame.rect.addEventListener("pointerenter", function () {
      details.textContent = [frame.name, ...frame.values].join(" · ");
    });
    frame.rect.addEventListener("pointerleave", () => { details.textContent = ""; });
  }
  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape") zoom(root);
    if (event.key !== "f" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    search();
  });
  zoom(root);
})();
