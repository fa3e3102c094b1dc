// As front.py: node front.js proxy|calls PORT BEHIND.
const http = require("http");

const [, , kind, port, behind] = process.argv;
const agent = new http.Agent({ keepAlive: true, maxSockets: 1024 });
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

function get(path, then) {
  http.get({ host: "127.0.0.1", port: behind, path, agent }, then);
}

const ask = (path) =>
  new Promise((done) => get(path, (answer) => answer.resume().on("end", done)));

async function calls(url) {
  const [, , number, steps] = url.split("/");
  let child = 0;
  for (const step of steps.split(",")) {
    if (step[0] === "s") await sleep(Number(step.slice(1)));
    else if (step[0] === "c") await ask(`/b/${number}/${child++}`);
    else await Promise.all([child++, child++].map((one) => ask(`/b/${number}/${one}`)));
  }
}

http
  .createServer(async (request, response) => {
    if (kind === "proxy") {
      get(request.url, (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
      });
      return;
    }
    await calls(request.url);
    response.setHeader("Content-Length", 2);
    response.end("ok");
  })
  .listen({ host: "127.0.0.1", port: Number(port), backlog: 1024 });
