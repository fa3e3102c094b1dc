// As steps.py: node --expose-gc server.js PORT LOG BACKEND. `lock` is a chain of promises.
const fs = require("fs");
const http = require("http");

const [, , port, log, backend] = process.argv;
const kept = Array.from({ length: 40000 }, (_, number) => ({ number }));
const agent = new http.Agent({ keepAlive: true });
const notes = [];
const now = () => process.hrtime.bigint();
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

function burn(ms) {
  const end = now() + BigInt(ms) * 1000000n;
  while (now() < end);
}

function collect(times) {
  for (let done = 0; done < times && kept; done++) global.gc();
}

function call(number, ms) {
  return new Promise((done, failed) => {
    const path = `/b/${number}/${ms}`;
    const answered = (response) => response.on("end", done).resume();
    http.get({ host: "127.0.0.1", port: backend, path, agent }, answered).on("error", failed);
  });
}

function note(number, what, amount, begin) {
  const end = now();
  notes.push(`${number},${what},${amount},${begin},${end}\n`);
  return end;
}

let free = Promise.resolve();

async function locked(number, ms, begin) {
  const before = free;
  let release;
  free = new Promise((done) => (release = done));
  await before;
  const had = note(number, "lockwait", 0, begin);
  await sleep(ms);
  release();
  return had;
}

http
  .createServer(async (request, response) => {
    const [, , number, steps] = request.url.split("/");
    for (const one of steps.split(",")) {
      const [step, text] = one.split("=");
      const amount = Number(text);
      let begin = now();
      if (step === "burn") burn(amount);
      else if (step === "collect") collect(amount);
      else if (step === "sleep") await sleep(amount);
      else if (step === "call") await call(number, amount);
      else begin = await locked(number, amount, begin);
      note(number, step, amount, begin);
    }
    response.setHeader("Content-Length", 2);
    response.end("ok");
  })
  .listen({ host: "127.0.0.1", port: Number(port), backlog: 1024 });

process.on("SIGTERM", () => {
  fs.writeFileSync(log, notes.join(""));
  process.exit(0);
});
