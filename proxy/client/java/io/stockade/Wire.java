// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * One connection, used by one thread at a time: it sends commands and reads their replies. Once an
 * exchange has failed nobody knows which reply comes next, and it is only good to be closed.
 *
 * <p>Nothing here ends by itself where the daemon is silent: who uses it has it closed at a
 * deadline (see {@link Calls}). That costs less than a timeout for each read, and holds for writes,
 * too.
 */
final class Wire implements Decoder.Source {
    private final Socket socket;
    private final InputStream in;
    private final OutputStream out;
    private final Decoder decoder = new Decoder(this);
    private boolean used;

    private Wire(Socket socket) throws IOException {
        this.socket = socket;
        this.in = socket.getInputStream();
        this.out = socket.getOutputStream();
    }

    /** Connect, and say hello, until the deadline, one of System.nanoTime(). */
    static Wire open(InetSocketAddress where, Request hello, long deadline) throws IOException {
        Socket socket = new Socket();
        try {
            socket.setTcpNoDelay(true);
            socket.connect(where, millisLeft(deadline));
            socket.setSoTimeout(millisLeft(deadline));
            Wire wire = new Wire(socket);
            Object reply = wire.exchange(hello).get(0);
            if (reply instanceof Decoder.ErrorReply error) {
                throw StockadeException.of(error.text());
            }
            socket.setSoTimeout(0);
            wire.used = false;
            return wire;
        } catch (IOException | RuntimeException failed) {
            socket.close();
            throw failed;
        }
    }

    /** Was it used before? Then it may have ended since without a sign. */
    boolean used() {
        return used;
    }

    /** Send a request and return its replies. What is told unasked is not for this thread. */
    List<Object> exchange(Request request) throws IOException {
        used = true;
        out.write(request.bytes(), 0, request.length());
        List<Object> replies = new ArrayList<>(request.commands());
        while (replies.size() < request.commands()) {
            Object value = decoder.next();
            if (!(value instanceof Decoder.Push)) {
                replies.add(value);
            }
        }
        return replies;
    }

    @Override
    public int read(byte[] into, int at, int room) throws IOException {
        return in.read(into, at, room);
    }

    void close() {
        try {
            socket.close();
        } catch (IOException alreadyGone) {
            // is of no more use either way
        }
    }

    /** At least 1; past the deadline it is too late. */
    private static int millisLeft(long deadline) throws SocketTimeoutException {
        long left = deadline - System.nanoTime();
        if (left <= 0) {
            throw new SocketTimeoutException();
        }
        return (int) Math.min(Integer.MAX_VALUE, TimeUnit.NANOSECONDS.toMillis(left) + 1);
    }
}
