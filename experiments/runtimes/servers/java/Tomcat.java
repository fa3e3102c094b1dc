// Tomcat with eight threads: java Tomcat PORT LOG BACKEND, until SIGTERM. See Steps.java.

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.catalina.connector.Connector;

class Tomcat {
    static class Answers extends HttpServlet {
        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response)
                throws IOException {
            Steps.carryOut(request.getRequestURI());
            response.setContentLength(Steps.ANSWER.length);
            response.getOutputStream().write(Steps.ANSWER);
        }
    }

    public static void main(String[] args) throws Exception {
        Logger.getLogger("").setLevel(Level.WARNING);
        var server = new org.apache.catalina.startup.Tomcat();
        server.setBaseDir(System.getProperty("java.io.tmpdir"));
        Connector connector = new Connector();
        connector.setPort(Steps.begin(args));
        connector.setProperty("address", "127.0.0.1");
        connector.setProperty("maxThreads", "8");
        connector.setProperty("acceptCount", "1024");
        connector.setProperty("maxKeepAliveRequests", "-1");
        server.setConnector(connector);
        server.addContext("", null);
        server.addServlet("", "answers", new Answers()).addMapping("/*");
        server.start();
    }
}
