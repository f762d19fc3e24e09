// SPDX-License-Identifier: MIT OR Apache-2.0
// Keeps a journal: each entry is on the disk before the next.
const fs = require('fs');
const path = require('path');

const file = fs.openSync(path.join(process.argv[3], 'journal'), 'a');
console.log('ready');
const end = Date.now() + Number(process.argv[2]) * 1000;
while (Date.now() < end) {
	fs.writeSync(file, JSON.stringify({ now: Date.now() }) + '\n');
	fs.fsyncSync(file);
}
