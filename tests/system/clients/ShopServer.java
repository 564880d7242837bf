// SPDX-License-Identifier: Apache-2.0
// A shop as people write one with the JDK's own server: each request sells one piece of an article,
// under its lease, on a pool of threads. Arguments: the daemon's URI. Prints its port.
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.stockade.Lease;
import io.stockade.Stockade;
import io.stockade.StockadeException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

public class ShopServer {
    private final Stockade shop;

    ShopServer(String uri) {
        shop = Stockade.connect(uri);
    }

    private void buy(HttpExchange exchange) throws IOException {
        String sku = exchange.getRequestURI().getPath().substring("/buy/".length());
        int status = 200;
        String said;
        try (Lease lease = shop.lease(sku, 1000, 20_000)) {
            long left = Long.parseLong(lease.get());
            Thread.sleep(5); // prices, a payment
            if (left == 0) {
                status = 409;
                said = "sold out";
            } else {
                lease.set(Long.toString(left - 1));
                said = "sold, left: " + (left - 1);
            }
        } catch (StockadeException error) {
            status = 503;
            said = error.code() + " " + error.getMessage();
        } catch (InterruptedException stop) {
            status = 500;
            said = "interrupted";
        }
        byte[] body = said.getBytes();
        exchange.sendResponseHeaders(status, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    public static void main(String[] args) throws IOException {
        HttpServer server =
            HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 100);
        server.createContext("/buy/", new ShopServer(args[0])::buy);
        server.setExecutor(Executors.newFixedThreadPool(40));
        server.start();
        System.out.println(server.getAddress().getPort());
    }
}
