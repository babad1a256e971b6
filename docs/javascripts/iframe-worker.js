/* The search runs in a worker, which browsers refuse to pages that are opened as files. There, a hidden frame takes its
   place: its window gives the script what a worker would. */
class FrameWorker extends EventTarget {
  constructor(address) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    this.ready = new Promise((resolve) => {
      frame.addEventListener("load", () => resolve(this.start(frame.contentWindow, address)), { once: true });
    });
    document.body.append(frame);
    this.frame = frame;
  }

  /* The window, once the script has run in it. */
  start(inside, address) {
    inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    const script = inside.document.createElement("script");
    script.src = address;
    return new Promise((resolve) => {
      script.addEventListener("load", () => resolve(inside));
      inside.document.body.append(script);
    });
  }

  postMessage(data) {
    this.ready.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") {
  window.Worker = FrameWorker;
}
