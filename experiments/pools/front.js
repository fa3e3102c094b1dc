// A front end that asks the back end on few connections (maxSockets). Notes how long each request waited for one: its
// path and nanoseconds. Arguments: its port, the back end's, number of connections, file.
const fs = require("fs");
const http = require("http");

const [port, behind, maxSockets] = process.argv.slice(2, 5).map(Number);
const notes = fs.createWriteStream(process.argv[5]);
const agent = new http.Agent({ keepAlive: true, maxSockets });

http.createServer((asked, answer) => {
  const begun = process.hrtime.bigint();
  const passed = http.request({ port: behind, host: "127.0.0.1", path: asked.url, agent }, (heard) => {
    heard.resume();
    heard.on("end", () => answer.end("ok"));
  });
  passed.on("socket", () => notes.write(`${asked.url} ${process.hrtime.bigint() - begun}\n`));
  passed.end();
}).listen(port, "127.0.0.1");
