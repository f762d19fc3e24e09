// SPDX-License-Identifier: MIT OR Apache-2.0
// A loop of Node.js that answers its own requests, and does one more thing: libuv_loop.js WHAT SECONDS DIRECTORY.
'use strict';
const dns = require('dns');
const fs = require('fs');
const http = require('http');
const crypto = require('crypto');
const zlib = require('zlib');
const path = require('path');
const { execSync, spawnSync, spawn } = require('child_process');
const { promisify } = require('util');
const { Worker } = require('worker_threads');

const [what, seconds, directory] = process.argv.slice(2);
const end = Date.now() + Number(seconds) * 1000;
const file = path.join(directory, 'saved');
const pause = () => new Promise((resolve) => setTimeout(resolve, 10));
const page = Buffer.alloc(4096, 'x');

function save() {
	const descriptor = fs.openSync(file, 'w');
	fs.writeSync(descriptor, page);
	fs.fsyncSync(descriptor);
	fs.closeSync(descriptor);
}

async function saveInThePool() {
	const handle = await fs.promises.open(file, 'w');
	await handle.write(page);
	await handle.sync();
	await handle.close();
}

// Enough that the collector has to run, and some of it stays for a while.
const kept = [];
async function makeGarbage() {
	for (let round = 0; round < 20; round++) {
		kept.push(Array.from({ length: 5000 }, (_, number) => ({ number, text: 'x' + number })));
		if (kept.length > 60) kept.shift();
		await new Promise(setImmediate);
	}
}

// Another thread has the lock most of the time.
function heldLock() {
	const lock = new Int32Array(new SharedArrayBuffer(4));
	const code = `
		const { workerData: lock } = require('worker_threads');
		const rest = new Int32Array(new SharedArrayBuffer(4));
		for (;;) {
			while (Atomics.compareExchange(lock, 0, 0, 1) !== 0) Atomics.wait(lock, 0, 1);
			Atomics.wait(rest, 0, 0, 4);
			Atomics.store(lock, 0, 0);
			Atomics.notify(lock, 0);
			Atomics.wait(rest, 0, 0, 1);
		}`;
	const worker = new Worker(code, { eval: true, workerData: lock });
	worker.unref();
	return () => {
		while (Atomics.compareExchange(lock, 0, 0, 1) !== 0) Atomics.wait(lock, 0, 1);
		Atomics.store(lock, 0, 0);
		Atomics.notify(lock, 0);
	};
}

// A process at the other end of a named pipe that answers late.
function slowPipe() {
	const pipe = path.join(directory, 'pipe');
	execSync(`mkfifo ${pipe}`);
	const writer = spawn('sh', ['-c', `exec >${pipe}; while sleep 0.004; do echo line; done`], { stdio: 'ignore' });
	writer.unref();
	const descriptor = fs.openSync(pipe, 'r');
	const line = Buffer.alloc(64);
	// The first takes all that is there.
	const reads = () => [1, 2].forEach(() => fs.readSync(descriptor, line));
	return { does: reads, ends: () => writer.kill() };
}

const pbkdf2 = promisify(crypto.pbkdf2);
const gzip = promisify(zlib.gzip);
const things = {
	talks: () => ({ does: async () => {} }),
	'saves-in-the-pool': () => ({ does: saveInThePool }),
	'hashes-in-the-pool': () => ({ does: () => pbkdf2('word', 'salt', 5000, 32, 'sha256') }),
	'compresses-in-the-pool': () => ({ does: () => gzip(Buffer.alloc(200000, 'text')) }),
	'makes-garbage': () => ({ does: makeGarbage }),
	'resolves-names': () => ({ does: () => dns.promises.lookup('localhost') }),
	saves: () => ({ does: save }),
	'waits-for-a-shell': () => ({ does: () => execSync('sleep 0.003') }),
	'waits-for-processes': () => ({ does: () => spawnSync('sleep', ['0.003']) }),
	sleeps: () => ({ does: () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3) }),
	'takes-a-lock': () => ({ does: heldLock() }),
	'reads-a-slow-pipe': slowPipe,
};

async function main() {
	const thing = things[what]();
	const server = http.createServer((request, response) => response.end('yes'));
	await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
	const ask = () =>
		new Promise((resolve, reject) => {
			const asked = http.get({ port: server.address().port, agent: false }, (response) => response.resume().on('end', resolve));
			asked.on('error', reject);
		});
	while (Date.now() < end) {
		await ask();
		await thing.does();
		await pause();
	}
	if (thing.ends) thing.ends();
	process.exit();
}
main();
