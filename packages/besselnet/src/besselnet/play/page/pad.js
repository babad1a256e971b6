// The drawing area, and the digits that it gives: as large, and as centred, as those of MNIST.

const SIZE = 28;
const BOX = 20;
const PEN = 22;

export class Pad {
  // changed() is called when a stroke ends, or another picture was put on the pad.
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { willReadFrequently: true });
    this.changed = changed;
    this.pen = null;
    canvas.addEventListener("pointerdown", (event) => this.#start(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => this.#end());
    this.clear();
  }

  clear() {
    this.context.fillStyle = "#000";
    this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
  }

  // Show an image of 28 x 28 pixels, to look at or to draw on.
  show(image) {
    const small = new OffscreenCanvas(SIZE, SIZE);
    const context = small.getContext("2d");
    const picture = context.createImageData(SIZE, SIZE);
    image.data.forEach((value, i) => picture.data.set([255 * value, 255 * value, 255 * value, 255], 4 * i));
    context.putImageData(picture, 0, 0);
    this.context.imageSmoothingEnabled = true;
    this.context.drawImage(small, 0, 0, this.canvas.width, this.canvas.height);
  }

  // A picture from a file: light ink on dark paper, which is what the networks have learned.
  async open(file) {
    const picture = await createImageBitmap(file);
    const { width, height } = this.canvas;
    const scale = Math.min(width / picture.width, height / picture.height);
    const [w, h] = [picture.width * scale, picture.height * scale];
    this.clear();
    this.context.drawImage(picture, (width - w) / 2, (height - h) / 2, w, h);
    const pixels = this.context.getImageData(0, 0, width, height);
    const luma = (i) => 0.299 * pixels.data[i] + 0.587 * pixels.data[i + 1] + 0.114 * pixels.data[i + 2];
    const [left, top] = [Math.ceil((width - w) / 2), Math.ceil((height - h) / 2)];
    const [right, bottom] = [Math.floor(left + w) - 1, Math.floor(top + h) - 1];
    const corners = [[left, top], [right, top], [left, bottom], [right, bottom]];
    const paper = corners.reduce((sum, [x, y]) => sum + luma(4 * (y * width + x)) / 4, 0);
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const i = 4 * (y * width + x);
        const inside = x >= left && x <= right && y >= top && y <= bottom;
        const value = inside ? Math.max(0, paper > 127 ? paper - luma(i) : luma(i) - paper) : 0;
        pixels.data.set([value, value, value, 255], i);
      }
    }
    this.context.putImageData(pixels, 0, 0);
    this.changed();
  }

  // The drawing as {data, channels, size}: its longer side 20 pixels, its centre of mass in the middle; null
  // if there is none.
  digit() {
    const { width, height } = this.canvas;
    const pixels = this.context.getImageData(0, 0, width, height).data;
    const ink = (x, y) => (x < 0 || y < 0 || x >= width || y >= height ? 0 : pixels[4 * (y * width + x)] / 255);
    let [left, top, right, bottom] = [width, height, -1, -1];
    let [mass, sumX, sumY, most] = [0, 0, 0, 0];
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const value = ink(x, y);
        if (value > 0.15) {
          [left, right] = [Math.min(left, x), Math.max(right, x)];
          [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
          mass += value;
          sumX += value * x;
          sumY += value * y;
          most = Math.max(most, value);
        }
      }
    }
    if (mass === 0) return null;
    const step = Math.max(right - left + 1, bottom - top + 1) / BOX;
    const [centreX, centreY] = [sumX / mass, sumY / mass];
    const data = new Float32Array(SIZE * SIZE);
    const parts = 6;
    for (let row = 0; row < SIZE; row++) {
      for (let column = 0; column < SIZE; column++) {
        let sum = 0;
        for (let i = 0; i < parts * parts; i++) {
          const x = centreX + step * (column - SIZE / 2 + ((i % parts) + 0.5) / parts);
          const y = centreY + step * (row - SIZE / 2 + (Math.floor(i / parts) + 0.5) / parts);
          sum += ink(Math.round(x), Math.round(y));
        }
        data[row * SIZE + column] = sum / (parts * parts * most);
      }
    }
    return { data, channels: 1, size: SIZE };
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    const scale = this.canvas.width / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  }

  #start(event) {
    event.preventDefault();
    this.canvas.setPointerCapture(event.pointerId);
    this.pen = this.#place(event);
    this.#line(this.pen);
  }

  #move(event) {
    if (!this.pen) return;
    const to = this.#place(event);
    this.#line(to);
    this.pen = to;
  }

  #end() {
    if (!this.pen) return;
    this.pen = null;
    this.changed();
  }

  #line(to) {
    Object.assign(this.context, { strokeStyle: "#fff", lineWidth: PEN, lineCap: "round" });
    this.context.beginPath();
    this.context.moveTo(...this.pen);
    this.context.lineTo(...to);
    this.context.stroke();
  }
}
