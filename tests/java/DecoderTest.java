// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.EOFException;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class DecoderTest {
    /** Gives its bytes in pieces, and nothing between two of them. */
    private static final class Pieces implements Decoder.Source {
        private final byte[] bytes;
        private final int piece;
        private int at;
        private boolean pause;

        Pieces(String text, int piece) {
            this.bytes = text.getBytes(StandardCharsets.ISO_8859_1);
            this.piece = piece;
        }

        @Override
        public int read(byte[] into, int at, int room) {
            pause = !pause;
            if (pause) {
                return 0;
            }
            int count = Math.min(Math.min(piece, room), bytes.length - this.at);
            System.arraycopy(bytes, this.at, into, at, count);
            this.at += count;
            return count == 0 ? -1 : count;
        }
    }

    private static Object next(Decoder decoder) throws IOException {
        Object value;
        do {
            value = decoder.next();
        } while (value == Decoder.NOTHING);
        return value;
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 7, 100_000})
    void valuesAreTheSameHoweverTheyAreCut(int piece) throws IOException {
        String large = "x".repeat(40_000);
        Decoder decoder = new Decoder(new Pieces(
            "+OK\r\n:-7\r\n$2\r\nab\r\n$-1\r\n_\r\n,1.5\r\n,inf\r\n#t\r\n(12345678901234567890\r\n"
                + "*2\r\n:1\r\n*0\r\n%1\r\n$1\r\na\r\n:1\r\n~1\r\n:2\r\n=5\r\ntxt:b\r\n*-1\r\n"
                + "|1\r\n+k\r\n+v\r\n:5\r\n-STALE old\r\n!4\r\nBUSY\r\n$0\r\n\r\n"
                + ">2\r\n$1\r\na\r\n:1\r\n$40000\r\n" + large
                + "\r\n$2\r\n\u00ff\u00fe\r\n", piece));
        List<Object> values = Arrays.asList(
            "OK", -7L, "ab", null, null, 1.5, Double.POSITIVE_INFINITY, true,
            new BigInteger("12345678901234567890"), List.of(1L, List.of()), Map.of("a", 1L),
            List.of(2L), "b", null, 5L, new Decoder.ErrorReply("STALE old"),
            new Decoder.ErrorReply("BUSY"), "", new Decoder.Push(List.of("a", 1L)), large);
        for (Object value : values) {
            assertEquals(value, next(decoder));
        }
        assertArrayEquals(new byte[] {(byte) 0xff, (byte) 0xfe}, (byte[]) next(decoder));
        assertThrows(EOFException.class, () -> next(decoder));
    }

    @Test
    void aSourceWithoutBytesIsAskedAgainLater() throws IOException {
        assertSame(Decoder.NOTHING, new Decoder(new Pieces(":1\r\n", 9)).next());
    }

    @ParameterizedTest
    @ValueSource(strings = {"HTTP/1.1 400\r\n", ":x\r\n", "$99999999999\r\n", "*-2\r\n", ",x\r\n"})
    void whatMakesNoSenseIsRefused(String text) {
        Decoder decoder = new Decoder(new Pieces(text, 100));
        assertThrows(IOException.class, () -> next(decoder));
    }

    @Test
    void aReplyThatNestsForEverIsRefused() {
        Decoder decoder = new Decoder(new Pieces("*1\r\n".repeat(100_000), 100));
        assertThrows(IOException.class, () -> next(decoder));
    }

    @Test
    void anAddressIsReadAndItsPasswordIsNotShown() {
        assertEquals(new Address("shop", 7379, null, null, Address.CLIENT_NAME),
                     Address.parse("stockade://shop"));
        assertEquals(new Address("::1", 7, "a@b", "c:+d", Address.CLIENT_NAME),
                     Address.parse("stockade://a%40b:c%3A+d@[::1]:7"));
        assertEquals("default", Address.parse("stockade://:secret@shop").user());
        assertNull(Address.parse("stockade://shop:1/").password());
        for (String bad : new String[] {"redis://shop", "stockade://", "stockade://u:secret@",
                                        "stockade://u:secret@shop:99999", "stockade://shop/x"}) {
            String why = assertThrows(IllegalArgumentException.class, () -> Address.parse(bad))
                             .getMessage();
            assertEquals(-1, why.indexOf("secret"), why);
        }
    }

    @Test
    void anAddressForOtherClientsIsToldWhatToDo() {
        for (String other : new String[] {"stockade+unix:/run/stockade", "sqlite:shop.db"}) {
            String why = assertThrows(IllegalArgumentException.class, () -> Address.parse(other))
                             .getMessage();
            assertTrue(why.contains("connect to stockade://127.0.0.1:7379"), why);
        }
    }
}
