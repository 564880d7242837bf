// SPDX-License-Identifier: Apache-2.0
// How fast is a lease cycle through the package, to the same three commands sent by hand over one
// socket? Rounds take turns, and the median of their ratios counts. Arguments: host, port, rounds,
// cycles in a round. Prints the ratio to commands with the IDs that the package sends, and to bare
// ones, and the package's microseconds for a cycle.
import io.stockade.Lease;
import io.stockade.Stockade;
import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.UUID;

public class CycleSpeed {
    private static final String KEY = "speed";

    private final Socket socket;
    private final InputStream in;
    private final OutputStream out;

    CycleSpeed(String host, int port) throws IOException {
        socket = new Socket(host, port);
        socket.setTcpNoDelay(true);
        in = new BufferedInputStream(socket.getInputStream());
        out = socket.getOutputStream();
    }

    private void send(String... words) throws IOException {
        StringBuilder text = new StringBuilder("*" + words.length + "\r\n");
        for (String word : words) {
            text.append('$').append(word.length()).append("\r\n").append(word).append("\r\n");
        }
        out.write(text.toString().getBytes(StandardCharsets.US_ASCII));
    }

    private long integer() throws IOException {
        StringBuilder line = new StringBuilder();
        for (int c; (c = in.read()) != '\n';) {
            line.append((char) c);
        }
        if (line.charAt(0) != ':' && line.charAt(0) != '*') {
            throw new IOException(line.toString());
        }
        return Long.parseLong(line.substring(1).trim());
    }

    private void byHand(int cycles, boolean ids) throws IOException {
        for (int i = 0; i < cycles; i++) {
            if (ids) {
                send("ACQUIRE", KEY, "30000", "ID", UUID.randomUUID().toString());
            } else {
                send("ACQUIRE", KEY, "30000");
            }
            integer();
            String token = Long.toString(integer());
            integer();
            if (ids) {
                send("FENCED", token, "ID", UUID.randomUUID().toString(), "DECRBY", KEY, "1", "MIN",
                     "0");
            } else {
                send("FENCED", token, "DECRBY", KEY, "1", "MIN", "0");
            }
            integer();
            if (ids) {
                send("RELEASE", KEY, token, "ID", UUID.randomUUID().toString());
            } else {
                send("RELEASE", KEY, token);
            }
            integer();
        }
    }

    private static void byPackage(Stockade shop, int cycles) {
        for (int i = 0; i < cycles; i++) {
            try (Lease lease = shop.lease(KEY)) {
                lease.take(1);
            }
        }
    }

    private interface Cycles {
        void run() throws IOException;
    }

    private static double seconds(Cycles cycles) throws IOException {
        long begun = System.nanoTime();
        cycles.run();
        return (System.nanoTime() - begun) / 1e9;
    }

    private static double median(double[] values) {
        Arrays.sort(values);
        return values[values.length / 2];
    }

    public static void main(String[] args) throws IOException {
        int rounds = Integer.parseInt(args[2]);
        int cycles = Integer.parseInt(args[3]);
        CycleSpeed hand = new CycleSpeed(args[0], Integer.parseInt(args[1]));
        try (Stockade shop = Stockade.connect("stockade://" + args[0] + ":" + args[1])) {
            try (Lease lease = shop.lease(KEY)) {
                lease.set("1000000000");
            }
            double[] withIds = new double[rounds];
            double[] bare = new double[rounds];
            double[] micros = new double[rounds];
            for (int round = -2; round < rounds; round++) { /* two rounds to get warm */
                double own = seconds(() -> byPackage(shop, cycles));
                double same = seconds(() -> hand.byHand(cycles, true));
                double less = seconds(() -> hand.byHand(cycles, false));
                if (round >= 0) {
                    withIds[round] = same / own;
                    bare[round] = less / own;
                    micros[round] = own / cycles * 1e6;
                }
            }
            System.out.printf("%.3f %.3f %.0f%n", median(withIds), median(bare), median(micros));
        }
        hand.socket.close();
    }
}
