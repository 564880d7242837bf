// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** Stands between a client and a daemon, and loses replies: it was applied, and nobody knows. */
final class Relay implements AutoCloseable {
    private final ServerSocket server;
    private final int port;
    private final Set<Socket> sockets = ConcurrentHashMap.newKeySet();
    private final AtomicInteger toLose = new AtomicInteger();
    private volatile String word = "";

    Relay(Daemon daemon) {
        port = daemon.port();
        try {
            server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
        run(this::accept);
    }

    String uri() {
        return "stockade://127.0.0.1:" + server.getLocalPort();
    }

    /** Lose the replies to the next so many requests that have this word in them. */
    void lose(String word, int times) {
        this.word = word;
        toLose.set(times);
    }

    /** How many are still to be lost. */
    int left() {
        return toLose.get();
    }

    /** Cut all connections. */
    void cut() {
        sockets.forEach(Relay::close);
    }

    private static void run(Runnable work) {
        Thread thread = new Thread(work, "relay");
        thread.setDaemon(true);
        thread.start();
    }

    private void accept() {
        try {
            for (;;) {
                Socket client = server.accept();
                Socket daemon = new Socket(InetAddress.getLoopbackAddress(), port);
                sockets.add(client);
                sockets.add(daemon);
                run(() -> copy(client, daemon, true));
                run(() -> copy(daemon, client, false));
            }
        } catch (IOException closed) {
            cut();
        }
    }

    private void copy(Socket from, Socket to, boolean isRequest) {
        byte[] bytes = new byte[65536];
        try {
            for (int got; (got = from.getInputStream().read(bytes)) > 0;) {
                String text = new String(bytes, 0, got, StandardCharsets.ISO_8859_1);
                boolean loses = isRequest && !word.isEmpty() && text.contains(word)
                                && toLose.getAndUpdate(n -> Math.max(0, n - 1)) > 0;
                if (loses) { /* the daemon will answer, and nobody will be there */
                    close(from);
                }
                to.getOutputStream().write(bytes, 0, got);
                if (loses) {
                    return;
                }
            }
        } catch (IOException broken) {
            // the other end hears of it, too
        }
        close(from);
        close(to);
    }

    private static void close(Socket socket) {
        try {
            socket.close();
        } catch (IOException alreadyGone) {
            // that is what was wanted
        }
    }

    @Override
    public void close() {
        try {
            server.close();
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
        cut();
    }
}
