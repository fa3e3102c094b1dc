// node timers.js PORT: answers HTTP requests with a few bytes, each after a timer of a millisecond.
const http = require("http");

http
  .createServer((request, response) => setTimeout(() => response.end("ok\n"), 1))
  .listen({ host: "127.0.0.1", port: Number(process.argv[2]), backlog: 1024 });
