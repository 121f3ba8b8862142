"use strict";
// Reads the charts at the pointer, or by the arrow keys: a line in each of them, and in the legends what was measured there.
(() => {
  const numbers = JSON.parse(document.getElementById("numbers").textContent);
  const charts = [...document.querySelectorAll(".chart[data-unit]")].map((figure, index) => ({
    figure,
    plot: figure.querySelector(".plot"),
    cursor: figure.querySelector(".cursor"),
    when: figure.querySelector(".when"),
    values: [...figure.querySelectorAll(".key b")],
    most: [...figure.querySelectorAll(".key b")].map((value) => value.textContent),
    lines: numbers.charts[index],
  }));

  const digits = (value) => {
    const size = Math.abs(value);
    return size >= 99.95 ? value.toFixed(0) : String(Number(value.toFixed(size >= 9.995 ? 1 : 2)));
  };
  const scaled = (value, step, names) => {
    let unit = 0;
    for (; unit + 1 < names.length && value >= step * 0.9995; unit++) value /= step;
    return digits(value) + names[unit];
  };
  const units = {
    count: (value) => scaled(value, 1000, ["", "k", "M", "G"]),
    rate: (value) => scaled(value, 1000, ["/s", "k/s", "M/s", "G/s"]),
    time: (value) => value > 0 && value < 0.9995 ? digits(value * 1000) + " ns" : scaled(value, 1000, [" µs", " ms", " s"]),
    bytes: (value) => scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]),
    bits: (value) => scaled(value, 1000, [" bit/s", " kbit/s", " Mbit/s", " Gbit/s"]),
    cpus: digits,
  };
  const two = (value) => String(value).padStart(2, "0");
  const moment = (seconds) => {
    if (seconds < 99.95) return digits(Math.round(seconds * 10) / 10) + " s";
    const whole = Math.round(seconds);
    const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
    return (hours ? hours + ":" + two(minutes) : minutes) + ":" + two(whole % 60);
  };
  const words = (unit, value) => {
    if (value === null) return "–";
    if (!Array.isArray(value)) return units[unit](value);
    const [low, high] = value.map(units[unit]);
    return low === high ? low : low + " to " + high;
  };

  let shown = null;
  const show = (point) => {
    shown = point;
    for (const chart of charts) {
      chart.cursor.hidden = point === null;
      chart.when.textContent = point === null ? "peak" : moment(numbers.at[point]);
      chart.values.forEach((value, line) => {
        value.textContent = point === null ? chart.most[line] : words(chart.figure.dataset.unit, chart.lines[line][point]);
      });
      if (point !== null) chart.cursor.style.left = (100 * numbers.at[point]) / numbers.end + "%";
    }
  };
  const nearest = (at) => {
    let [low, high] = [0, numbers.at.length - 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (numbers.at[middle] < at) low = middle; else high = middle;
    }
    return at - numbers.at[low] < numbers.at[high] - at ? low : high;
  };
  for (const { figure, plot } of charts) {
    const point = (event) => {
      const place = plot.getBoundingClientRect();
      show(nearest((numbers.end * (event.clientX - place.left)) / place.width));
    };
    plot.addEventListener("pointerdown", point);
    plot.addEventListener("pointermove", point);
    plot.addEventListener("pointerleave", () => show(null));
    figure.addEventListener("keydown", (event) => {
      const last = numbers.at.length - 1;
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
      if (event.key === "Escape") show(null);
      if (step === undefined || event.target !== figure) return;
      event.preventDefault();
      show(Math.min(last, Math.max(0, shown === null ? (step < 0 ? last : 0) : shown + step)));
    });
    figure.addEventListener("blur", () => show(null));
  }
  document.documentElement.dataset.charts = String(charts.length);
})();
