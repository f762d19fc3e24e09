// SPDX-License-Identifier: MIT OR Apache-2.0
// Runs Perfetto's trace processor as the page at ui.perfetto.dev does, as a worker with a WebAssembly
// module: requests come on standard input, answers go to standard output.
//
//   node trace_processor.js DIRECTORY     with engine_bundle.js and trace_processor*.wasm in it
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const directory = process.argv[2];
const { stdin, stdout, stderr } = process;
const exit = process.exit.bind(process);
const file = (name) => fs.readFileSync(path.join(directory, path.basename(String(name))));

// What such a worker finds in a browser.
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = function WorkerGlobalScope() {};
globalThis.importScripts = () => {};
globalThis.location = { href: "http://localhost/engine_bundle.js" };
globalThis.XMLHttpRequest = class {
  open(method, name) {
    this.name = name;
  }
  send() {
    this.response = new Uint8Array(file(this.name)).buffer;
  }
};
console.log = console.warn = console.error = (...words) => stderr.write(words.join(" ") + "\n");

// With a `process` it would take itself for a program of node.
delete globalThis.process;
vm.runInThisContext(file("engine_bundle.js").toString());

const port = { postMessage: (bytes) => stdout.write(Buffer.from(bytes)) };
globalThis.onmessage({ data: port });
// It takes requests when what waits for the module to be loaded has run.
setImmediate(() =>
  stdin.on("data", (chunk) => {
    try {
      port.onmessage({ data: new Uint8Array(chunk) });
    } catch (error) {
      stderr.write(error.stack + "\n");
      exit(1);
    }
  }),
);
