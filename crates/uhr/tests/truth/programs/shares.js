// Burns known shares in named JavaScript functions.
'use strict';

function half(n) { // LINE half
  let x = 1;
  for (let i = 0; i < n; i++) x = (Math.imul(x, 1664525) + 1013904223) | 0;
  return x;
}

function inner(n) {
  let x = 1;
  for (let i = 0; i < n; i++) x = (Math.imul(x, 22695477) + 1) | 0;
  return x;
}

function outer(n) {
  return inner(n) + 1;
}

class Worker {
  fifth(n) {
    let x = 1;
    for (let i = 0; i < n; i++) x = (Math.imul(x, 1103515245) + 12345) | 0;
    return x;
  }
}

function cpu() {
  const used = process.cpuUsage();
  return (used.user + used.system) * 1000;
}

let kept = 0;
function measured(sums, name, work, mean) {
  const before = cpu();
  kept += work(Math.floor(mean / 2 + Math.random() * mean));
  sums[name] += cpu() - before;
}

function main() {
  const sums = { half: 0, outer: 0, fifth: 0 };
  const worker = new Worker();
  while (cpu() < 2e9) {
    measured(sums, 'half', half, 3000000);
    measured(sums, 'outer', outer, 1800000);
    measured(sums, 'fifth', (n) => worker.fifth(n), 1200000);
  }
  console.log(JSON.stringify({ cpu_ns: cpu(), ...sums }));
}

main();
