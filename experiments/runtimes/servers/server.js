// As server.py: node server.js PORT LOG. `lock` is a chain of promises.
const fs = require("fs");
const http = require("http");

const [, , port, log] = process.argv;
const notes = [];
const now = () => process.hrtime.bigint();
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

function burn(ms) {
  const end = now() + BigInt(ms) * 1000000n;
  while (now() < end);
}

function note(number, what, ms, begin) {
  const end = now();
  notes.push(`${number},${what},${ms},${begin},${end}\n`);
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
      const ms = Number(text);
      let begin = now();
      if (step === "burn") burn(ms);
      else if (step === "sleep") await sleep(ms);
      else begin = await locked(number, ms, begin);
      note(number, step, ms, begin);
    }
    response.setHeader("Content-Length", 2);
    response.end("ok");
  })
  .listen({ host: "127.0.0.1", port: Number(port), backlog: 1024 });

process.on("SIGTERM", () => {
  fs.writeFileSync(log, notes.join(""));
  process.exit(0);
});
