// A server and its clients: pair.js serve PORT | pair.js ask PORT CLIENTS REQUESTS
//
// Each request is 64 bytes, each answer 100. The clients print how many answers they got.
const net = require("net");
const [what, port, clients, requests] = process.argv.slice(2);

// Calls back once for each `bytes` that came.
function each(socket, bytes, back) {
  let have = 0;
  socket.on("data", (data) => {
    for (have += data.length; have >= bytes; have -= bytes) back();
  });
}

if (what === "serve") {
  const answer = Buffer.alloc(100);
  net.createServer({ noDelay: true }, (socket) => {
    socket.on("error", () => {});
    each(socket, 64, () => socket.write(answer));
  }).listen(Number(port), "127.0.0.1");
} else {
  const asked = Buffer.alloc(64);
  let answers = 0;
  let open = Number(clients);
  for (let i = 0; i < Number(clients); i++) {
    const socket = net.connect({ port: Number(port), host: "127.0.0.1", noDelay: true });
    let left = Number(requests);
    socket.on("connect", () => socket.write(asked));
    each(socket, 100, () => {
      answers++;
      if (--left > 0) return socket.write(asked);
      socket.end();
    });
    socket.on("close", () => {
      if (--open === 0) console.log(answers);
    });
  }
}
