// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A stockaded on a port and a store of its own, and how tests wait for things. */
final class Daemon implements AutoCloseable {
    static final Path BUILD = Path.of(System.getProperty("stockade.build", "build"))
                                  .toAbsolutePath();
    private static final Pattern READY = Pattern.compile("listen=127\\.0\\.0\\.1:(\\d+)");
    /** Programs under a sanitizer are slower. */
    private static final double PATIENCE =
        Double.parseDouble(System.getProperty("stockade.patience", "1"));

    final Path folder;
    private final List<String> options;
    private Process process;
    private int port;

    Daemon(String... options) {
        try {
            folder = Files.createTempDirectory("stockade-java");
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
        this.options = List.of(options);
        start();
    }

    void start() {
        List<String> command = new ArrayList<>(
            List.of(BUILD.resolve("stockaded").toString(), "--listen", "127.0.0.1:" + port,
                    "--admin", "127.0.0.1:0", "--store", "sqlite:" + store()));
        command.addAll(options);
        try {
            process = new ProcessBuilder(command)
                          .redirectError(ProcessBuilder.Redirect.appendTo(
                              folder.resolve("log").toFile()))
                          .start();
            BufferedReader out = process.inputReader();
            Matcher ready = READY.matcher(String.valueOf(out.readLine()));
            if (!ready.find()) {
                throw new AssertionError("no ready line:\n"
                                         + Files.readString(folder.resolve("log")));
            }
            port = Integer.parseInt(ready.group(1));
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    Path store() {
        return folder.resolve("shop.db");
    }

    int port() {
        return port;
    }

    String uri() {
        return "stockade://127.0.0.1:" + port;
    }

    Stockade connect() {
        return Stockade.connect(uri());
    }

    void signal(String name) {
        try {
            new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).inheritIO().start()
                .waitFor();
        } catch (IOException | InterruptedException failed) {
            throw new AssertionError(failed);
        }
    }

    /** SIGTERM, and an exit status of 0. */
    void stop() {
        signal("CONT");
        process.destroy();
        try {
            if (!process.waitFor(millis(15_000), TimeUnit.MILLISECONDS)) {
                process.destroyForcibly();
                throw new AssertionError("it does not end");
            }
        } catch (InterruptedException failed) {
            throw new AssertionError(failed);
        }
        if (process.exitValue() != 0) {
            throw new AssertionError("exit status " + process.exitValue());
        }
    }

    void kill() {
        process.destroyForcibly().onExit().join();
    }

    @Override
    public void close() {
        try {
            stop();
        } finally {
            process.destroyForcibly();
        }
        try (var files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    /** So many milliseconds, more where programs are slower. */
    static long millis(long millis) {
        return (long) (millis * PATIENCE);
    }

    /** Wait for it, at most 5 seconds. */
    static void await(String what, BooleanSupplier isSo) {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis(5000));
        while (!isSo.getAsBoolean()) {
            if (System.nanoTime() - deadline > 0) {
                throw new AssertionError("not in time: " + what);
            }
            try {
                Thread.sleep(3);
            } catch (InterruptedException stop) {
                throw new AssertionError(stop);
            }
        }
    }

    /** How many wait for the lease. */
    static long waiters(Stockade shop, String resource) {
        return (Long) ((java.util.Map<?, ?>) shop.command("LEASE", resource)).get("waiters");
    }
}
