import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintWriter;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.Executors;

/**
 * A front end with a pool of threads that asks the back end on few connections, which lie in a queue. Notes how long
 * each request waited for one: its path and nanoseconds. Arguments: its port, the back end's, number of connections,
 * file.
 */
public class Front {
    private static ArrayBlockingQueue<Socket> pool;
    private static PrintWriter notes;

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        int behind = Integer.parseInt(arguments[1]);
        int size = Integer.parseInt(arguments[2]);
        notes = new PrintWriter(arguments[3]);
        pool = new ArrayBlockingQueue<>(size);
        for (int made = 0; made < size; made++) {
            Socket socket = new Socket("127.0.0.1", behind);
            socket.setTcpNoDelay(true);
            pool.put(socket);
        }
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 1024);
        server.setExecutor(Executors.newFixedThreadPool(256));
        server.createContext("/", Front::answer);
        server.start();
    }

    private static void answer(HttpExchange exchange) throws IOException {
        String path = exchange.getRequestURI().getPath();
        long begun = System.nanoTime();
        Socket socket;
        try {
            socket = pool.take();
        } catch (InterruptedException interrupted) {
            throw new IOException(interrupted);
        }
        long waited = System.nanoTime() - begun;
        try {
            String asked = "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n";
            socket.getOutputStream().write(asked.getBytes(StandardCharsets.US_ASCII));
            hear(socket.getInputStream());
        } finally {
            pool.add(socket);
        }
        synchronized (notes) {
            notes.println(path + " " + waited);
            notes.flush();
        }
        exchange.sendResponseHeaders(200, 2);
        exchange.getResponseBody().write("ok".getBytes(StandardCharsets.US_ASCII));
        exchange.close();
    }

    /** Reads an answer up to its last two bytes, "ok", which Node sends as a chunk. */
    private static void hear(InputStream answer) throws IOException {
        StringBuilder heard = new StringBuilder();
        byte[] piece = new byte[4096];
        while (!heard.toString().endsWith("\r\n\r\nok") && !heard.toString().endsWith("0\r\n\r\n")) {
            int read = answer.read(piece);
            if (read < 0) {
                throw new IOException("the back end has closed the connection");
            }
            heard.append(new String(piece, 0, read, StandardCharsets.US_ASCII));
        }
    }
}
