// Jetty with eight threads: java Jetty PORT LOG BACKEND, until SIGTERM. See Steps.java.

import java.io.IOException;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.handler.AbstractHandler;
import org.eclipse.jetty.util.thread.QueuedThreadPool;

class Jetty {
    static class Answers extends AbstractHandler {
        @Override
        public void handle(
                String path, Request base, HttpServletRequest request, HttpServletResponse response)
                throws IOException {
            Steps.carryOut(path);
            base.setHandled(true);
            response.setContentLength(Steps.ANSWER.length);
            response.getOutputStream().write(Steps.ANSWER);
        }
    }

    public static void main(String[] args) throws Exception {
        Server server = new Server(new QueuedThreadPool(8));
        ServerConnector connector = new ServerConnector(server, 1, 1);
        connector.setHost("127.0.0.1");
        connector.setPort(Steps.begin(args));
        connector.setAcceptQueueSize(1024);
        server.addConnector(connector);
        server.setHandler(new Answers());
        server.start();
    }
}
