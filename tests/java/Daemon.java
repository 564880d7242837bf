// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A stockaded on a port and a store of its own, and how tests wait for things. */
final class Daemon implements AutoCloseable {
    static final Path BUILD = Path.of(System.getProperty("stockade.build", "build"))
                                  .toAbsolutePath();
    private static final Pattern READY = Pattern.compile("listen=127\\.0\\.0\\.1:\\d+");
    /** A wait ends by what it is for; only a hang takes longer, on a busy machine, too. */
    private static final long HANG_MILLIS = 60_000;
    /** Programs under a sanitizer are slower. */
    private static final double PATIENCE =
        Double.parseDouble(System.getProperty("stockade.patience", "1"));

    final Path folder;
    private final List<String> options;
    private Process process;
    /** Bound to the daemon's port, also while it is down: nobody else is given it. */
    private final Socket holder = new Socket();
    private final int port;

    Daemon(String... options) {
        try {
            folder = Files.createTempDirectory("stockade-java");
            holder.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
            holder.setReuseAddress(true); // so that the daemon can listen there
            port = holder.getLocalPort();
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
            if (!process.waitFor(millis(HANG_MILLIS), TimeUnit.MILLISECONDS)) {
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
        try (holder; var files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    /** What took too long, in words from which the runner tells whether the machine stood still. */
    static AssertionError late(String what, long begun, long allowedMillis) {
        return new AssertionError(String.format(Locale.ROOT,
                                                "%s: late from %.3f to %.3f, allowed %.3f", what,
                                                begun / 1e9, System.nanoTime() / 1e9,
                                                millis(allowedMillis) / 1e3));
    }

    /** It took no longer than that, and no less. */
    static void took(String what, long begun, long leastMillis, long mostMillis) {
        long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begun);
        if (took < leastMillis) {
            throw new AssertionError(what + ": after " + took + " ms");
        }
        if (took > millis(mostMillis)) {
            throw late(what, begun, mostMillis);
        }
    }

    /** Wait for it. */
    static void await(String what, CountDownLatch latch) {
        await(what, () -> latch.getCount() == 0);
    }

    /** Wait for a thread's end. */
    static void join(Thread thread) {
        long begun = System.nanoTime();
        try {
            thread.join(millis(HANG_MILLIS));
        } catch (InterruptedException stop) {
            throw new AssertionError(stop);
        }
        if (thread.isAlive()) {
            throw late("a thread ends", begun, HANG_MILLIS);
        }
    }

    /** What a thread's work comes to. */
    static <T> T result(FutureTask<T> task) throws ExecutionException {
        long begun = System.nanoTime();
        try {
            return task.get(millis(HANG_MILLIS), TimeUnit.MILLISECONDS);
        } catch (TimeoutException tooLong) {
            throw late("a thread's work ends", begun, HANG_MILLIS);
        } catch (InterruptedException stop) {
            throw new AssertionError(stop);
        }
    }

    /** So many milliseconds, more where programs are slower. */
    static long millis(long millis) {
        return (long) (millis * PATIENCE);
    }

    /** Wait for it. */
    static void await(String what, BooleanSupplier isSo) {
        long begun = System.nanoTime();
        while (!isSo.getAsBoolean()) {
            if (System.nanoTime() - begun > TimeUnit.MILLISECONDS.toNanos(millis(HANG_MILLIS))) {
                throw late(what, begun, HANG_MILLIS);
            }
            try {
                Thread.sleep(3);
            } catch (InterruptedException stop) {
                throw new AssertionError(stop);
            }
        }
    }

    /** Wait until it has more time left than it had. */
    static void awaitRenewal(Lease lease) {
        AtomicLong least = new AtomicLong(lease.leftMillis());
        await("it is renewed", () -> {
            long left = lease.leftMillis();
            return left > least.getAndAccumulate(left, Math::min) + 20;
        });
    }

    /** How many wait for the lease. */
    static long waiters(Stockade shop, String resource) {
        return (Long) ((java.util.Map<?, ?>) shop.command("LEASE", resource)).get("waiters");
    }
}
