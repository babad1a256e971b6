// Networks that `besselnet export` wrote, run by onnxruntime-web.

let runtime = null;

// onnxruntime-web lies beside the page; a site that was built without a connection has none.
async function loadRuntime() {
  if (!runtime) {
    try {
      runtime = await import("./runtime/ort.wasm.bundle.min.mjs");
    } catch {
      throw new Error("onnxruntime-web is not part of this page: build the documentation again with a connection.");
    }
    runtime.env.wasm.numThreads = 1;
    const program = new URL("runtime/ort-wasm-simd-threaded.wasm", import.meta.url).href;
    runtime.env.wasm.wasmPaths = { wasm: program };
  }
  return runtime;
}

export async function fetchBytes(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address}: ${answer.status} ${answer.statusText}`);
  return new Uint8Array(await answer.arrayBuffer());
}

export class Network {
  // bytes: of an .onnx file; about: {name, parameters, kernels}, shown beside the answers.
  static async open(bytes, about) {
    const facts = readFacts(bytes);
    if (!facts) throw new Error("This file does not say what it takes: write it with `besselnet export`.");
    if (facts.answers !== "image") throw new Error("This network answers for pixels; the playground shows classes.");
    const { InferenceSession } = await loadRuntime();
    const session = await InferenceSession.create(bytes);
    return new Network(session, facts, about);
  }

  constructor(session, facts, about) {
    Object.assign(this, { session, facts, ...about });
    this.classes = facts.classes ?? [];
    this.size = facts.image_size;
    this.channels = facts.in_channels;
    this.queue = Promise.resolve();
  }

  // data: count images, Float32Array. maps: whether the feature maps are wanted, too.
  // Gives {logits, probabilities, maps}; the first two are an array for each image.
  run(data, { count = 1, maps = false } = {}) {
    // One after the other: a session does not take a second batch before it has answered.
    const answer = this.queue.then(() => this.#run(data, count, maps));
    this.queue = answer.catch(() => {});
    return answer;
  }

  async #run(data, count, maps) {
    const { Tensor } = runtime;
    const input = new Tensor("float32", data, [count, this.channels, this.size, this.size]);
    const names = this.session.outputNames.filter((name) => maps || name === "logits");
    const outputs = await this.session.run({ images: input }, names);
    const values = outputs.logits.data;
    const classes = values.length / count;
    const logits = Array.from({ length: count }, (_, i) => values.slice(i * classes, (i + 1) * classes));
    return {
      logits,
      probabilities: logits.map(softmax),
      maps: names.filter((name) => name !== "logits").map((name) => {
        const [, channels, height, width] = outputs[name].dims;
        return { data: outputs[name].data, channels, height, width };
      }),
    };
  }

  className(index) {
    return this.classes[index] ?? String(index);
  }
}

function softmax(logits) {
  const largest = Math.max(...logits);
  const raised = Array.from(logits, (value) => Math.exp(value - largest));
  const sum = raised.reduce((a, b) => a + b);
  return raised.map((value) => value / sum);
}

export function argmax(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

// What an .onnx file says about its network: the metadata "besselnet", as JSON. onnxruntime-web does not
// show it. An ONNX file is one protobuf message, whose field 14 holds the pairs of key and value.
function readFacts(bytes) {
  try {
    for (const entry of fieldsOf(bytes, 14)) {
      const [key] = fieldsOf(entry, 1);
      const [value] = fieldsOf(entry, 2);
      const text = (part) => new TextDecoder().decode(part);
      if (text(key) === "besselnet") return JSON.parse(text(value));
    }
  } catch {
    // Not such a message.
  }
  return null;
}

function fieldsOf(bytes, wanted) {
  const found = [];
  let place = 0;
  const varint = () => {
    let value = 0;
    for (let shift = 1; ; shift *= 128) {
      if (place >= bytes.length) throw new Error("the message ends early");
      const byte = bytes[place++];
      value += (byte & 127) * shift;
      if (byte < 128) return value;
    }
  };
  while (place < bytes.length) {
    const tag = varint();
    const kind = tag & 7;
    if (kind === 0) varint();
    else if (kind === 1) place += 8;
    else if (kind === 5) place += 4;
    else if (kind === 2) {
      const length = varint();
      if (tag >>> 3 === wanted) found.push(bytes.subarray(place, place + length));
      place += length;
    } else throw new Error("not a message");
  }
  return found;
}
