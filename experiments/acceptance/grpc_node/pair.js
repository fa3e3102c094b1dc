// A gRPC server and its client: pair.js serve PORT | pair.js ask PORT STREAMS REQUESTS
//
// The client has one connection and so many requests in flight on it; each of them asks REQUESTS
// times. It prints how many answers it got.
const grpc = require("@grpc/grpc-js");
const [what, port, streams, requests] = process.argv.slice(2);

const bytes = (value) => value;
const service = {
  Ask: {
    path: "/pair.Pair/Ask",
    requestStream: false,
    responseStream: false,
    requestSerialize: bytes,
    requestDeserialize: bytes,
    responseSerialize: bytes,
    responseDeserialize: bytes,
  },
};

if (what === "serve") {
  const server = new grpc.Server();
  server.addService(service, { Ask: (call, back) => back(null, Buffer.alloc(100)) });
  server.bindAsync(`127.0.0.1:${port}`, grpc.ServerCredentials.createInsecure(), (error) => {
    if (error) throw error;
  });
  process.on("SIGTERM", () => server.forceShutdown());
} else {
  const Client = grpc.makeGenericClientConstructor(service, "Pair");
  const client = new Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
  let answers = 0;
  let open = Number(streams);
  const ask = (left) => {
    client.Ask(Buffer.alloc(64), (error) => {
      if (error) throw error;
      answers++;
      if (left > 1) return ask(left - 1);
      if (--open > 0) return;
      client.close();
      console.log(answers);
    });
  };
  for (let i = 0; i < Number(streams); i++) ask(Number(requests));
}
