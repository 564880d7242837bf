// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;

/** Commands as they are sent: RESP arrays of bulk strings, one behind the other. */
final class Request {
    private static final String ID_PREFIX = UUID.randomUUID() + "-";
    private static final AtomicLong IDS = new AtomicLong();

    private byte[] bytes = new byte[256];
    private int length;
    private int commands;
    private String id;

    /** A request of one command. */
    static Request of(Object... words) {
        return new Request().add(words);
    }

    /** Add a command: strings (as UTF-8), numbers and byte arrays. */
    Request add(Object... words) {
        if (words.length == 0) {
            throw new IllegalArgumentException("a command has at least one word");
        }
        header('*', words.length);
        for (Object word : words) {
            byte[] data = bytesOf(word);
            header('$', data.length);
            put(data);
            end();
        }
        commands++;
        return this;
    }

    /** Remember the ID that one of its commands carries. */
    Request withId(String id) {
        this.id = id;
        return this;
    }

    /** The ID, or null. */
    String id() {
        return id;
    }

    /** How many commands these are, and so how many replies there will be. */
    int commands() {
        return commands;
    }

    byte[] bytes() {
        return bytes;
    }

    int length() {
        return length;
    }

    /** Forget what was added. */
    void clear() {
        length = 0;
        commands = 0;
        if (bytes.length > 64 * 1024) {
            bytes = new byte[256];
        }
    }

    /** An ID that nobody else has: chance for the program, a number within it. */
    static String newId() {
        return ID_PREFIX + IDS.incrementAndGet();
    }

    static byte[] bytesOf(Object word) {
        if (word instanceof byte[] bytes) {
            return bytes;
        }
        if (word instanceof CharSequence || word instanceof Number) {
            String text = word.toString();
            checkWhole(text);
            return text.getBytes(StandardCharsets.UTF_8);
        }
        throw new IllegalArgumentException("a word is a string, a number or a byte[], not "
                                           + (word == null ? "null" : word.getClass()));
    }

    /** Half a character (of two chars) cannot be sent: getBytes() puts another in its place. */
    private static void checkWhole(String text) {
        for (int i = 0; i < text.length(); i++) {
            if (!Character.isSurrogate(text.charAt(i))) {
                continue;
            }
            if (i + 1 == text.length()
                || !Character.isSurrogatePair(text.charAt(i), text.charAt(i + 1))) {
                throw new IllegalArgumentException("half a character at " + i);
            }
            i++;
        }
    }

    private void header(char type, int count) {
        room(16);
        bytes[length++] = (byte) type;
        put(Integer.toString(count).getBytes(StandardCharsets.US_ASCII));
        end();
    }

    private void end() {
        room(2);
        bytes[length++] = '\r';
        bytes[length++] = '\n';
    }

    private void put(byte[] data) {
        room(data.length);
        System.arraycopy(data, 0, bytes, length, data.length);
        length += data.length;
    }

    private void room(int count) {
        if (length + count > bytes.length) {
            bytes = Arrays.copyOf(bytes, Math.max(length + count, bytes.length * 2));
        }
    }
}
