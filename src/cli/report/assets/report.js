"use strict";
// The curves: a figure at a time, with a linear or a logarithmic scale, in the colours of the page.
(() => {
  const place = document.getElementById("chart");
  if (!place || typeof uPlot === "undefined") return;
  const figures = JSON.parse(document.getElementById("curves").textContent);
  const choice = document.getElementById("figure");
  const log = document.getElementById("log");
  const readout = document.getElementById("told");
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const shown = (v) => (v == null ? "–" : Math.abs(v) >= 1e-3 && Math.abs(v) < 1e6 || v === 0 ? String(+v.toPrecision(5)) : v.toExponential(3));
  let plot = null;
  let at = null;

  const width = () => Math.max(200, place.clientWidth - 18);
  const height = () => (width() < 500 ? 260 : 380);

  function draw() {
    const figure = figures[choice.selectedIndex];
    const scaled = log.checked;
    const value = (v) => (v == null || (scaled && !(v > 0)) ? null : v);
    const tables = figure.curves.map((c) => [c.points.map((p) => p[0]), c.points.map((p) => value(p[1]))]);
    const data = uPlot.join(tables);
    // Of several runs each has a colour, and what it trains on is dashed; of one run each figure has one.
    const several = new Set(figure.curves.map((c) => c.run)).size > 1;
    const both = figure.curves.some((c) => c.train) && figure.curves.some((c) => !c.train);
    const dash = (c, i) => (several && both && c.train ? [6, 4] : (several ? c.run : i) >= 6 ? [2, 3] : undefined);
    const axis = { stroke: () => color("--soft"), grid: { stroke: () => color("--line"), width: 1 }, ticks: { stroke: () => color("--line"), width: 1 } };
    if (plot) plot.destroy();
    at = null;
    plot = new uPlot({
      width: width(), height: height(),
      legend: { markers: { dash: (u, i) => (u.series[i].dash ? "dashed" : "solid") } },
      scales: { x: { time: false }, y: { distr: scaled ? 3 : 1 } },
      axes: [
        { ...axis, label: "updates", labelSize: 20 },
        { ...axis, size: 72, values: (_, ticks) => ticks.map((v) => (v == null ? "" : shown(v))) },
      ],
      series: [
        { label: "update", value: (_, v) => (v == null ? "–" : String(v)) },
        ...figure.curves.map((c, i) => ({
          label: c.name, stroke: () => color("--c" + ((several ? c.run : i) % 6)), dash: dash(c, i), width: 1.75, spanGaps: true,
          points: { show: c.points.length < 60, size: 6, fill: () => color("--panel") }, value: (_, v) => shown(v),
        })),
      ],
    }, data, place);
    place.setAttribute("aria-label", "Curves of " + figure.name + ", " + figure.curves.length + " in all. Left and right arrow keys move through the updates.");
  }

  function move(index) {
    const last = plot.data[0].length - 1;
    if (last < 0) return;
    at = Math.min(Math.max(index, 0), last);
    plot.setCursor({ left: plot.valToPos(plot.data[0][at], "x"), top: 10 });
    const values = plot.series.slice(1).map((s, i) => [s.label, plot.data[i + 1][at]]).filter((v) => v[1] != null);
    readout.textContent = "update " + plot.data[0][at] + ": " + values.map((v) => v[0] + " " + shown(v[1])).join(", ");
  }

  place.addEventListener("keydown", (e) => {
    const step = Math.max(1, Math.round(plot.data[0].length / 50));
    const to = { ArrowRight: (at ?? -1) + 1, ArrowLeft: (at ?? 1) - 1, PageDown: (at ?? 0) + step, PageUp: (at ?? 0) - step, Home: 0, End: Infinity }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    move(to);
  });
  choice.addEventListener("change", draw);
  log.addEventListener("change", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plot.redraw());
  const fit = () => { if (plot && Math.abs(plot.width - width()) > 1) plot.setSize({ width: width(), height: height() }); };
  // Not while the page is being laid out, which the new size changes.
  new ResizeObserver(() => requestAnimationFrame(fit)).observe(place);
  draw();
})();
