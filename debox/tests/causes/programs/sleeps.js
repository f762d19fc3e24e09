// SPDX-License-Identifier: MIT OR Apache-2.0
// Does a little every 50 ms.
console.log('ready');
const end = Date.now() + Number(process.argv[2]) * 1000;
let done = 0;
const timer = setInterval(() => {
	done += Math.sqrt(Date.now());
	if (Date.now() > end) clearInterval(timer);
}, 50);
