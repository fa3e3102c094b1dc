// The JDK's own HTTP server with eight threads: java Jdk PORT LOG BACKEND, until SIGTERM. See Steps.java.

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

class Jdk {
    static void handle(HttpExchange exchange) throws IOException {
        Steps.carryOut(exchange.getRequestURI().getPath());
        exchange.sendResponseHeaders(200, Steps.ANSWER.length);
        exchange.getResponseBody().write(Steps.ANSWER);
        exchange.close();
    }

    public static void main(String[] args) throws IOException {
        InetSocketAddress at = new InetSocketAddress("127.0.0.1", Steps.begin(args));
        HttpServer server = HttpServer.create(at, 1024);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.createContext("/w/", Jdk::handle);
        server.start();
    }
}
