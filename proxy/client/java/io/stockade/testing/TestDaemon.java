// SPDX-License-Identifier: Apache-2.0
package io.stockade.testing;

import io.stockade.Stockade;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * For tests of programs that use Stockade: a daemon of the test's own, on a free port of the
 * loopback address, with a store in memory. It ends, store and all, when it is closed.
 *
 * <pre>{@code
 * try (TestDaemon daemon = TestDaemon.start(); Stockade shop = daemon.connect()) {
 *     ...
 * }
 * }</pre>
 *
 * <p>{@code stockaded} is found in PATH, or where the environment variable {@code STOCKADED} says.
 */
public final class TestDaemon implements AutoCloseable {
    private static final long START_SECONDS = 30;
    private static final long END_SECONDS = 10;
    private static final Pattern READY = Pattern.compile("listen=(127\\.0\\.0\\.1:\\d+)");

    private final Path folder;
    private final Process process;
    private final Thread atExit;
    private final String uri;

    private TestDaemon(List<String> options) throws IOException {
        folder = Files.createTempDirectory("stockade-test-");
        String program = System.getenv().getOrDefault("STOCKADED", "stockaded");
        List<String> command = new ArrayList<>(
            List.of(program, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store",
                    ":memory:"));
        command.addAll(options);
        try {
            process = new ProcessBuilder(command).redirectError(logFile()).start();
        } catch (IOException failed) {
            removeFolder();
            throw failed;
        }
        atExit = new Thread(process::destroyForcibly);
        Runtime.getRuntime().addShutdownHook(atExit);
        String said = firstLine();
        Matcher ready = READY.matcher(said);
        if (!ready.find()) {
            String log = log();
            close();
            throw new IOException("stockaded did not start: " + said + "\n" + log);
        }
        uri = "stockade://" + ready.group(1);
    }

    /**
     * Start a daemon.
     *
     * @param options of stockaded's, such as {@code "--unfenced-writes", "allow"}
     * @return the daemon, to be closed
     * @throws UncheckedIOException it did not start; the message says what it logged
     */
    public static TestDaemon start(String... options) {
        try {
            return new TestDaemon(List.of(options));
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    /** It says where it listens, once it does. */
    private String firstLine() {
        CompletableFuture<String> line = CompletableFuture.supplyAsync(() -> {
            try {
                BufferedReader out = process.inputReader();
                return String.valueOf(out.readLine());
            } catch (IOException ended) {
                return "";
            }
        });
        try {
            return line.get(START_SECONDS, TimeUnit.SECONDS);
        } catch (InterruptedException now) {
            Thread.currentThread().interrupt();
            return "interrupted";
        } catch (ExecutionException | TimeoutException silent) {
            return "it says nothing";
        }
    }

    private File logFile() {
        return folder.resolve("log").toFile();
    }

    /**
     * Where it is.
     *
     * @return for {@link Stockade#connect}
     */
    public String uri() {
        return uri;
    }

    /**
     * Connect to it.
     *
     * @return the way to it
     */
    public Stockade connect() {
        return Stockade.connect(uri);
    }

    /**
     * What it has logged.
     *
     * @return lines
     */
    public String log() {
        try {
            return Files.readString(logFile().toPath());
        } catch (IOException failed) {
            return failed.toString();
        }
    }

    private void removeFolder() {
        File[] files = folder.toFile().listFiles();
        for (File file : files == null ? new File[0] : files) {
            file.delete();
        }
        folder.toFile().delete();
    }

    /** End it, and remove its folder. */
    @Override
    public void close() {
        process.destroy();
        try {
            if (!process.waitFor(END_SECONDS, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (InterruptedException now) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
        try {
            Runtime.getRuntime().removeShutdownHook(atExit);
        } catch (IllegalStateException exiting) {
            // the program ends, and the hook runs
        }
        removeFolder();
    }
}
