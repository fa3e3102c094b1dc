// As server.py: java Server.java PORT LOG, with eight worker threads.

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executors;

public class Server {
    static final ConcurrentLinkedQueue<String> NOTES = new ConcurrentLinkedQueue<>();
    static final Object LOCK = new Object();

    static long note(String number, String what, int ms, long begin) {
        long now = System.nanoTime(); // CLOCK_MONOTONIC
        NOTES.add(number + "," + what + "," + ms + "," + begin + "," + now);
        return now;
    }

    static void burn(int ms) {
        long end = System.nanoTime() + ms * 1_000_000L;
        while (System.nanoTime() < end) {}
    }

    static void handle(HttpExchange exchange) throws IOException {
        String[] parts = exchange.getRequestURI().getPath().split("/");
        try {
            for (String one : parts[3].split(",")) {
                String step = one.split("=")[0];
                int ms = Integer.parseInt(one.split("=")[1]);
                long begin = System.nanoTime();
                if (step.equals("burn")) {
                    burn(ms);
                } else if (step.equals("sleep")) {
                    Thread.sleep(ms);
                } else {
                    synchronized (LOCK) {
                        begin = note(parts[2], "lockwait", 0, begin);
                        Thread.sleep(ms);
                    }
                }
                note(parts[2], step, ms, begin);
            }
        } catch (InterruptedException ended) {
            return;
        }
        exchange.sendResponseHeaders(200, 2);
        exchange.getResponseBody().write("ok".getBytes());
        exchange.close();
    }

    public static void main(String[] args) throws IOException {
        InetSocketAddress at = new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0]));
        HttpServer server = HttpServer.create(at, 1024);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.createContext("/w/", Server::handle);
        Thread end = new Thread(() -> {
            try {
                Files.write(Path.of(args[1]), NOTES);
            } catch (IOException failed) {
                failed.printStackTrace();
            }
        });
        Runtime.getRuntime().addShutdownHook(end);
        server.start();
    }
}
