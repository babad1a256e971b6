// A share between 0 and 1 against the angle, a curve for each network, which fills in as angles are seen.

const SPACE = "http://www.w3.org/2000/svg";
const RADIUS = 100;
const RINGS = [0.25, 0.5, 0.75, 1];

function element(name, attributes, text) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

// 0 degrees at the right, counter-clockwise, as images rotate.
function point(share, degrees) {
  const angle = (degrees * Math.PI) / 180;
  return [RADIUS * share * Math.cos(angle), -RADIUS * share * Math.sin(angle)].map((value) => value.toFixed(2));
}

export class PolarPlot {
  constructor(svg, count) {
    this.svg = svg;
    for (const ring of RINGS) svg.append(element("circle", { class: "ring", r: RADIUS * ring }));
    for (let degrees = 0; degrees < 360; degrees += 45) {
      const [x2, y2] = point(1, degrees);
      svg.append(element("line", { class: "ring", x2, y2 }));
      const [x, y] = point(1.16, degrees);
      svg.append(element("text", { x, y, class: "tick" }, `${degrees}°`));
    }
    const paths = (kind) =>
      Array.from({ length: count }, (_, i) => element("path", { class: `${kind} network-${i}` }));
    this.curves = paths("curve");
    this.dots = paths("dots");
    svg.append(...this.curves, ...this.dots);
    this.ray = element("line", { class: "ray" });
    svg.append(this.ray);
    for (const ring of [0.5, 1]) {
      const [x, y] = point(ring - 0.08, 67.5);
      svg.append(element("text", { x, y, class: "tick" }, `${100 * ring}%`));
    }
  }

  // shares: an array for each network with a share for each of evenly spaced angles, or null.
  draw(shares, angle) {
    this.curves.forEach((curve, i) => curve.setAttribute("d", outline(shares[i])));
    this.dots.forEach((dots, i) => dots.setAttribute("d", lonely(shares[i])));
    const [x2, y2] = point(1.05, angle ?? 0);
    this.ray.setAttribute("x2", x2);
    this.ray.setAttribute("y2", y2);
    this.ray.toggleAttribute("hidden", angle === null);
  }
}

const place = (shares, i) => point(shares[i], (i * 360) / shares.length).join(" ");

// Lines between neighbours that have both been seen.
function outline(shares) {
  return shares
    .map((share, i) => [share, i, (i + 1) % shares.length])
    .filter(([share, , next]) => share !== null && shares[next] !== null)
    .map(([, i, next]) => `M${place(shares, i)}L${place(shares, next)}`)
    .join("");
}

// Dots where no neighbour has been seen.
function lonely(shares) {
  return shares
    .map((share, i) => [share, i, shares.at(i - 1) ?? shares[(i + 1) % shares.length]])
    .filter(([share, , neighbour]) => share !== null && neighbour === null)
    .map(([, i]) => `M${place(shares, i)}h0`)
    .join("");
}
