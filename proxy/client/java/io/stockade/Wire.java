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
 * <p>Reading ends at the deadline by itself. Writing may not: the keeper closes a connection that
 * takes too long to write (see {@link Calls}).
 */
final class Wire implements Decoder.Source {
    /** Small enough for the socket's buffer, so that writing it does not block. */
    static final int SMALL_BYTES = 32 * 1024;

    private final Socket socket;
    private final InputStream in;
    private final OutputStream out;
    private final Decoder decoder = new Decoder(this);
    private long deadline;
    private boolean used;

    private Wire(Socket socket) throws IOException {
        this.socket = socket;
        this.in = socket.getInputStream();
        this.out = socket.getOutputStream();
    }

    /** Connect and say hello. The deadline is one of System.nanoTime(). */
    static Wire open(InetSocketAddress where, Request hello, long deadline) throws IOException {
        Socket socket = new Socket();
        try {
            socket.setTcpNoDelay(true);
            socket.connect(where, millisLeft(deadline));
            Wire wire = new Wire(socket);
            Object reply = wire.exchange(hello, deadline).get(0);
            if (reply instanceof Decoder.ErrorReply error) {
                throw StockadeException.of(error.text());
            }
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
    List<Object> exchange(Request request, long deadline) throws IOException {
        this.deadline = deadline;
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
        socket.setSoTimeout(millisLeft(deadline));
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
