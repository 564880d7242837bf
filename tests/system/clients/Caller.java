// SPDX-License-Identifier: Apache-2.0
import io.stockade.Interrupted;
import io.stockade.Lease;
import io.stockade.Leases;
import io.stockade.Rows;
import io.stockade.Stockade;
import io.stockade.StockadeException;
import io.stockade.Unsure;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;

/** A program that uses the package for Java as its standard input says: see harness/callers.py. */
public final class Caller implements Runnable {
    private final LinkedBlockingQueue<String> lines = new LinkedBlockingQueue<>();
    private final Map<String, Stockade> shops = new HashMap<>();
    private final Map<String, Lease> leases = new HashMap<>();
    private final Map<String, Leases> baskets = new HashMap<>();
    private final Map<String, CountDownLatch> losses = new HashMap<>();
    private final Map<String, Long> lostAt = new ConcurrentHashMap<>();
    private String writeId; /* of the last one that is unsure */

    public static void main(String[] args) throws Exception {
        Caller caller = new Caller();
        Thread calls = new Thread(caller);
        calls.start();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null;) {
            if (line.equals("cancel")) {
                calls.interrupt();
            } else {
                caller.lines.add(line);
            }
        }
        caller.lines.add("");
    }

    @Override
    public void run() {
        for (;;) {
            try {
                String[] words = lines.take().split(" ");
                if (words[0].isEmpty()) {
                    return;
                }
                String said = say(words);
                Thread.interrupted();
                System.out.println(said);
            } catch (InterruptedException cancelledTooLate) {
                // the call had ended
            }
        }
    }

    private String say(String[] words) {
        try {
            Object result = call(words);
            return result == null ? "none" : result.toString();
        } catch (Interrupted | InterruptedException now) {
            return "Cancelled";
        } catch (StockadeException failed) {
            if (failed instanceof Unsure unsure) {
                writeId = unsure.id();
            }
            return failed.getClass().getSimpleName();
        } catch (IllegalArgumentException misuse) {
            return "Misuse";
        } catch (ReflectiveOperationException failed) {
            throw new AssertionError(failed);
        }
    }

    private Lease keep(String name, Lease lease) {
        CountDownLatch lost = new CountDownLatch(1);
        lostAt.remove(name);
        lease.onLost(() -> {
            lostAt.put(name, System.currentTimeMillis());
            lost.countDown();
        });
        leases.put(name, lease);
        losses.put(name, lost);
        return lease;
    }

    private Object call(String[] words)
        throws InterruptedException, ReflectiveOperationException {
        Stockade shop = shops.get(words[1]);
        Lease lease = leases.get(words[words.length > 2 && shop != null ? 2 : 1]);
        switch (words[0]) {
        case "open":
            shops.put(words[1], Stockade.connect(words[2], Duration.ofSeconds(20)));
            return null;
        case "timeout":
            timeout(shop, Long.parseLong(words[2]));
            return null;
        case "close":
            shop.close();
            return null;
        case "acquire":
            return keep(words[2], shop.lease(words[3], Long.parseLong(words[4]),
                                             Long.parseLong(words[5]))).token();
        case "acquire_all":
            baskets.put(words[2], shop.leaseAll(List.of(words[3].split(",")),
                                                Long.parseLong(words[4]),
                                                Long.parseLong(words[5])));
            return keep(words[2], baskets.get(words[2]).get(0)).token();
        case "lead":
            return keep(words[2], lead(shop, words[3], Long.parseLong(words[4]),
                                       Long.parseLong(words[5]))).token();
        case "lost_at":
            losses.get(words[1]).await();
            return lostAt.get(words[1]);
        case "renew":
            lease.renew(Duration.ofMillis(Long.parseLong(words[2])));
            return null;
        case "release":
            lease.release();
            return null;
        case "leave":
            if (baskets.containsKey(words[1])) {
                baskets.get(words[1]).close();
            } else {
                lease.close();
            }
            return null;
        case "put":
            return lease.put(1);
        case "multi":
            return shop.transaction().put(lease, 1).commit().get(0);
        case "sql":
            return lease.sql(decoded(words[4])).changes();
        case "multi_sql":
            return ((Rows) shop.transaction(lease).sql(decoded(words[4])).commit().get(0))
                .changes();
        case "read":
            return shop.get(words[2]);
        case "receipt":
            return applied(shop.command("RECEIPT", words[3], lease.token(), writeId));
        case "revoke":
            return shop.revoke(words[2]);
        case "bare":
            return shop.command("INCR", words[2]);
        case "lost":
            losses.get(words[1]).await();
            return "yes";
        default:
            throw new AssertionError(words[0]);
        }
    }

    private static Lease lead(Stockade shop, String name, long ttl, long wait) {
        return wait < 0 ? shop.lead(name, ttl) : shop.lead(name, ttl, wait);
    }

    private static String decoded(String word) {
        return URLDecoder.decode(word, StandardCharsets.UTF_8);
    }

    private static String applied(Object receipt) {
        return !(receipt instanceof List<?> list) ? "none" : list.get(0).equals(1L) ? "yes" : "no";
    }

    /** What connect() was told of it. */
    private static void timeout(Stockade shop, long millis) throws ReflectiveOperationException {
        Field calls = Stockade.class.getDeclaredField("calls");
        calls.setAccessible(true);
        Field timeout = calls.getType().getDeclaredField("timeout");
        timeout.setAccessible(true);
        timeout.setLong(calls.get(shop), millis * 1_000_000);
    }
}
