// Browsers start no worker from a page that was opened as a file. There, the site's search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<!doctype html>";
      this.frame.onload = () => this.start(String(url));
      document.documentElement.append(this.frame);
    }
    start(url) {
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.pass(data, (event) => this.onmessage?.(event));
      const script = inside.document.createElement("script");
      script.src = url;
      script.onerror = () => this.onerror?.(new ErrorEvent("error"));
      script.onload = () => {
        this.ready = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      };
      inside.document.body.append(script);
    }
    postMessage(data) {
      if (this.ready) {
        this.pass(data, (event) => this.frame.contentWindow?.dispatchEvent(event));
      } else {
        this.waiting.push(data);
      }
    }
    pass(data, receive) {
      // A copy, and later, as between threads: both sides change what they get.
      const event = new MessageEvent("message", { data: structuredClone(data) });
      setTimeout(() => receive(event));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
