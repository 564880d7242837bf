// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.io.EOFException;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads RESP3 values. Integers become {@code Long}, strings {@code String} or, where they are no
 * UTF-8, {@code byte[]}, arrays and sets {@code List}, maps {@code Map}, nulls null.
 *
 * <p>Where its source has nothing just now, {@link #next} returns {@link #NOTHING}, and starts with
 * the same value when it is called again. A reply that makes no sense, or is larger than any that a
 * daemon sends, is an IOException.
 */
final class Decoder {
    /** Where the bytes come from. */
    interface Source {
        /** Read some bytes: how many there were, 0 where there are none now, -1 at the end. */
        int read(byte[] into, int at, int room) throws IOException;
    }

    /** An error reply. */
    record ErrorReply(String text) {
        /** Does it begin with this word? */
        boolean is(String code) {
            return text.startsWith(code) && (text.length() == code.length()
                                             || text.charAt(code.length()) == ' ');
        }
    }

    /** What the daemon tells unasked. */
    record Push(List<Object> words) {
    }

    /** No value is complete. */
    static final Object NOTHING = new Object();

    private static final int BUFFER_BYTES = 8 * 1024;
    private static final int VALUE_BYTES_MAX = 512 * 1024 * 1024;
    private static final int DEPTH_MAX = 16;

    /** Thrown within, to get out of a value that is not complete. */
    private static final class Starved extends IOException {
        private static final long serialVersionUID = 1;

        @Override
        public Throwable fillInStackTrace() {
            return this;
        }
    }

    private static final Starved STARVED = new Starved();

    private final Source source;
    private final CharsetDecoder utf8 = StandardCharsets.UTF_8.newDecoder();
    private byte[] buffer = new byte[BUFFER_BYTES];
    private int start; /* of the value that is being read */
    private int at;
    private int end;

    Decoder(Source source) {
        this.source = source;
    }

    /** The next value, or NOTHING. */
    Object next() throws IOException {
        at = start;
        Object value;
        try {
            value = value(0);
        } catch (Starved starved) {
            return NOTHING;
        }
        start = at;
        if (start == end) {
            start = 0;
            at = 0;
            end = 0;
            if (buffer.length > 64 * 1024) {
                buffer = new byte[BUFFER_BYTES];
            }
        }
        return value;
    }

    private Object value(int depth) throws IOException {
        if (depth > DEPTH_MAX) {
            throw new IOException("a reply is nested too deeply");
        }
        need(1);
        byte type = buffer[at++];
        switch (type) {
            case '+':
                return line();
            case '-':
                return new ErrorReply(line());
            case ':':
                return number(line());
            case '_':
                line();
                return null;
            case ',':
                return real(line());
            case '#':
                return line().equals("t");
            case '(':
                return bigNumber(line());
            case '$':
                return text(bulk());
            case '=':
                byte[] verbatim = bulk();
                return verbatim == null ? null
                                        : text(Arrays.copyOfRange(verbatim, 4, verbatim.length));
            case '!':
                return new ErrorReply(new String(bulk(), StandardCharsets.UTF_8));
            case '*':
            case '~':
                return list(count(), depth);
            case '>':
                return new Push(list(count(), depth));
            case '%':
                return map(count(), depth);
            case '|':
                map(count(), depth);
                return value(depth);
            default:
                throw new IOException("a reply begins with byte " + type + "; is it a Stockade?");
        }
    }

    private List<Object> list(int count, int depth) throws IOException {
        if (count < 0) {
            return null;
        }
        List<Object> list = new ArrayList<>(Math.min(count, 1024));
        for (int i = 0; i < count; i++) {
            list.add(value(depth + 1));
        }
        return list;
    }

    private Map<Object, Object> map(int count, int depth) throws IOException {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < count; i++) {
            Object key = value(depth + 1);
            map.put(key, value(depth + 1));
        }
        return map;
    }

    private byte[] bulk() throws IOException {
        int length = count();
        if (length < 0) {
            return null;
        }
        need(length + 2);
        byte[] bytes = Arrays.copyOfRange(buffer, at, at + length);
        at += length + 2;
        return bytes;
    }

    private Object text(byte[] bytes) {
        if (bytes == null) {
            return null;
        }
        try {
            return utf8.decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException notUtf8) {
            return bytes;
        }
    }

    private int count() throws IOException {
        long count = number(line());
        if (count < -1 || count > VALUE_BYTES_MAX) {
            throw new IOException("a reply of " + count);
        }
        return (int) count;
    }

    private static long number(String line) throws IOException {
        try {
            return Long.parseLong(line);
        } catch (NumberFormatException bad) {
            throw new IOException("no integer: " + line);
        }
    }

    private static double real(String line) throws IOException {
        switch (line) {
            case "inf":
                return Double.POSITIVE_INFINITY;
            case "-inf":
                return Double.NEGATIVE_INFINITY;
            case "nan":
                return Double.NaN;
            default:
                try {
                    return Double.parseDouble(line);
                } catch (NumberFormatException bad) {
                    throw new IOException("no number: " + line);
                }
        }
    }

    private static BigInteger bigNumber(String line) throws IOException {
        try {
            return new BigInteger(line);
        } catch (NumberFormatException bad) {
            throw new IOException("no integer: " + line);
        }
    }

    /** Up to the end of the line, which is skipped. */
    private String line() throws IOException {
        int from = at;
        for (int i = 0;; i++) {
            need(i + 2);
            from = at;
            if (buffer[from + i] == '\r' && buffer[from + i + 1] == '\n') {
                at = from + i + 2;
                return new String(buffer, from, i, StandardCharsets.UTF_8);
            }
        }
    }

    /** Have that many bytes behind `at`. */
    private void need(int count) throws IOException {
        while (end - at < count) {
            if (buffer.length - start < at - start + count) {
                room(at - start + count);
            }
            int got = source.read(buffer, end, buffer.length - end);
            if (got < 0) {
                throw new EOFException("the daemon closed the connection");
            }
            if (got == 0) {
                throw STARVED;
            }
            end += got;
        }
    }

    /** Have room for so many bytes from `start` on. */
    private void room(int count) {
        byte[] into = count <= buffer.length ? buffer
                                             : new byte[Math.max(count, buffer.length * 2)];
        System.arraycopy(buffer, start, into, 0, end - start);
        buffer = into;
        at -= start;
        end -= start;
        start = 0;
    }
}
