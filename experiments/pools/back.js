// A back end that answers after 8 ms. Arguments: its port.
const http = require("http");

http.createServer((asked, answer) => setTimeout(() => answer.end("ok"), 8))
  .listen(Number(process.argv[2]), "127.0.0.1");
