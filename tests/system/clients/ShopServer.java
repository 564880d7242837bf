// SPDX-License-Identifier: Apache-2.0
// A shop as people write one with the JDK's own server: each POST /sell/SKU sells one piece of an
// article, under its lease, on a pool of threads. Arguments: the daemon's URI, the TTL in ms. It
// prints its port, and ends by itself after some minutes.
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.stockade.Lease;
import io.stockade.Stockade;
import io.stockade.StockadeException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.concurrent.Executors;

public class ShopServer {
    private final Stockade shop;
    private final long ttlMillis;

    ShopServer(String uri, long ttlMillis) {
        shop = Stockade.connect(uri, Duration.ofMinutes(1));
        this.ttlMillis = ttlMillis;
    }

    private void sell(HttpExchange exchange) throws IOException {
        String sku = exchange.getRequestURI().getPath().substring("/sell/".length());
        String answer;
        try (Lease lease = shop.lease("sku:" + sku, ttlMillis, 300_000)) {
            long left = Long.parseLong(lease.get());
            if (left == 0) {
                answer = "{\"error\": \"sold out\"}";
            } else {
                Thread.sleep(3); // a price rule
                lease.set(Long.toString(left - 1));
                answer = "{\"left\": " + (left - 1) + "}";
            }
        } catch (StockadeException error) {
            answer = "{\"error\": \"" + error.code() + "\"}";
        } catch (InterruptedException stop) {
            answer = "{\"error\": \"interrupted\"}";
        }
        byte[] body = answer.getBytes();
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    public static void main(String[] args) throws IOException, InterruptedException {
        HttpServer server =
            HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 100);
        server.createContext("/sell/", new ShopServer(args[0], Long.parseLong(args[1]))::sell);
        server.setExecutor(Executors.newFixedThreadPool(40));
        server.start();
        System.out.println(server.getAddress().getPort());
        Thread.sleep(900_000);
        System.exit(1);
    }
}
