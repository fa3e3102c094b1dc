// A server whose requests wait for different things, as goroutines.go: it says its port, and serves until its standard input ends.
const http = require("http");

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
let free = Promise.resolve();

// What a handler hands on.
function work() {
  const end = process.hrtime.bigint() + 1000000n;
  while (process.hrtime.bigint() < end);
}

async function locked(ms) {
  const before = free;
  let release;
  free = new Promise((done) => (release = done));
  await before;
  await sleep(ms);
  release();
}

const server = http.createServer(async (request, response) => {
  response.sendDate = false;
  const answer = () => response.writeHead(200, { "Content-Length": 3 }).end("ok\n");
  // Half of the sleeps end in the timer's callback, the others where the handler goes on with the promise.
  if (request.url === "/sleep" && request.socket.remotePort % 2) setTimeout(answer, 3);
  else {
    if (request.url === "/sleep") await sleep(3);
    else if (request.url === "/lock") await locked(1);
    else await Promise.resolve().then(work);
    answer();
  }
});

server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.resume().on("end", () => process.exit(0));
