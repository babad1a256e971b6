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
    this.curves = Array.from({ length: count }, (_, i) => {
      const curve = element("path", { class: `curve network-${i}` });
      svg.append(curve);
      return curve;
    });
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
    const [x2, y2] = point(1.05, angle ?? 0);
    this.ray.setAttribute("x2", x2);
    this.ray.setAttribute("y2", y2);
    this.ray.toggleAttribute("hidden", angle === null);
  }
}

// Lines between neighbours; an angle without one is a dot.
function outline(shares) {
  const step = 360 / shares.length;
  const at = (i) => point(shares[i], i * step).join(" ");
  const steps = [];
  shares.forEach((share, i) => {
    if (share === null) return;
    const next = (i + 1) % shares.length;
    steps.push(`M${at(i)}L${shares[next] === null ? at(i) : at(next)}`);
  });
  return steps.join("");
}
