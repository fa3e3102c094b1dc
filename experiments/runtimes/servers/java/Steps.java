// As steps.py, for servers in Java.

import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

class Steps {
    static final byte[] ANSWER = "ok".getBytes();
    static final ConcurrentLinkedQueue<String> NOTES = new ConcurrentLinkedQueue<>();
    static final Object LOCK = new Object();
    static final ExecutorService WORKER = Executors.newSingleThreadExecutor();
    static final int[][] KEPT = new int[100_000][1];
    static String backend;

    static long note(String number, String what, int amount, long begin) {
        long now = System.nanoTime(); // CLOCK_MONOTONIC
        NOTES.add(number + "," + what + "," + amount + "," + begin + "," + now);
        return now;
    }

    static void burn(int ms) {
        long end = System.nanoTime() + ms * 1_000_000L;
        while (System.nanoTime() < end) {}
    }

    static void collect(int times) {
        for (; times > 0; times--) System.gc();
    }

    static void work(String number, int amount, long begin) {
        begin = note(number, "handwait", 0, begin);
        burn(amount);
        note(number, "hand", amount, begin);
    }

    static void call(String number, int ms) throws IOException {
        try (InputStream answer = URI.create(backend + number + "/" + ms).toURL().openStream()) {
            answer.readAllBytes();
        }
    }

    /** Runs the steps in the thread that calls. */
    static void carryOut(String path) throws IOException {
        String[] parts = path.split("/");
        try {
            for (String one : parts[3].split(",")) {
                String step = one.split("=")[0];
                int amount = Integer.parseInt(one.split("=")[1]);
                long begin = System.nanoTime();
                switch (step) {
                    case "burn" -> burn(amount);
                    case "collect" -> collect(amount);
                    case "sleep" -> Thread.sleep(amount);
                    case "call" -> call(parts[2], amount);
                    case "hand" -> {
                        long handed = begin;
                        WORKER.submit(() -> work(parts[2], amount, handed)).get();
                        continue;
                    }
                    default -> {
                        synchronized (LOCK) {
                            begin = note(parts[2], "lockwait", 0, begin);
                            Thread.sleep(amount);
                        }
                    }
                }
                note(parts[2], step, amount, begin);
            }
        } catch (InterruptedException | ExecutionException ended) {
            throw new IOException(ended);
        }
    }

    /** To be called first; returns the port. */
    static int begin(String[] args) {
        backend = "http://127.0.0.1:" + args[2] + "/b/";
        for (int number = 0; number < KEPT.length; number++) KEPT[number] = new int[] {number};
        Thread end = new Thread(() -> {
            try {
                Files.write(Path.of(args[1]), NOTES);
            } catch (IOException failed) {
                failed.printStackTrace();
            }
        });
        Runtime.getRuntime().addShutdownHook(end);
        return Integer.parseInt(args[0]);
    }
}
