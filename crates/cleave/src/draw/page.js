const pane = document.getElementById("drawing"), svg = pane.querySelector("svg");
const whole = { x: 0, y: 0, w: svg.viewBox.baseVal.width, h: svg.viewBox.baseVal.height };
let view;
const show = v => { view = v; svg.setAttribute("viewBox", `${v.x} ${v.y} ${v.w} ${v.h}`); };
const fit = () => {
  // As wide as the pane admits, from the top.
  const h = whole.w * pane.clientHeight / Math.max(pane.clientWidth, 1);
  show({ x: 0, y: 0, w: whole.w, h: Math.max(h, 1) });
};
svg.setAttribute("preserveAspectRatio", "xMidYMin");
addEventListener("resize", fit);
document.getElementById("fit").onclick = fit;
fit();
pane.addEventListener("wheel", e => {
  e.preventDefault();
  const box = pane.getBoundingClientRect(), k = Math.exp(e.deltaY * 0.0015);
  const u = (e.clientX - box.left) / box.width, v = (e.clientY - box.top) / box.height;
  show({ x: view.x + view.w * u * (1 - k), y: view.y + view.h * v * (1 - k), w: view.w * k, h: view.h * k });
}, { passive: false });
pane.addEventListener("pointerdown", e => pane.setPointerCapture(e.pointerId));
pane.addEventListener("pointermove", e => {
  if (e.buttons) show({ ...view, x: view.x - e.movementX * view.w / pane.clientWidth, y: view.y - e.movementY * view.h / pane.clientHeight });
});
const field = document.getElementById("search"), nodes = [...svg.querySelectorAll(".node[data-name]")];
const rows = [...document.querySelectorAll("tbody tr")];
field.oninput = () => {
  const text = field.value.trim().toLowerCase();
  let n = 0;
  for (const node of nodes) {
    const hit = text && `${node.dataset.name} ${node.dataset.op}`.toLowerCase().includes(text);
    node.classList.toggle("found", Boolean(hit));
    n += hit ? 1 : 0;
  }
  svg.classList.toggle("searching", Boolean(text));
  // A node's name may be no op's: the table stays then.
  const hits = rows.filter(row => row.textContent.toLowerCase().includes(text));
  for (const row of rows) row.classList.toggle("off", hits.length > 0 && !hits.includes(row));
  document.getElementById("found").textContent = text ? `${n} found` : "";
};
for (const row of rows) row.onclick = () => { field.value = row.dataset.op; field.oninput(); };
