// The `ws` of node, as its README has an echo and a broadcast: server.js echo|room PORT plain|tls CHAIN KEY
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { WebSocket, WebSocketServer } from "ws";

const [what, port, layer, chain, key] = process.argv.slice(2);
const server = layer === "tls" ? https.createServer({ cert: readFileSync(chain), key: readFileSync(key) }) : http.createServer();
const sockets = new WebSocketServer({ server });

sockets.on("connection", (socket) => {
  socket.on("error", () => {});
  socket.on("message", (data, isBinary) => {
    if (what === "echo") {
      socket.send(data, { binary: isBinary });
      return;
    }
    for (const client of sockets.clients) {
      if (client.readyState === WebSocket.OPEN) {
        client.send(data, { binary: isBinary });
      }
    }
  });
});
server.listen({ port: Number(port), host: "127.0.0.1", backlog: 4096 });
