// SPDX-License-Identifier: Apache-2.0
// Sells one piece of sku:42, with the package for Java.
import io.stockade.*;

class Decrement {
    public static void main(String[] args) {
        try (Stockade shop = Stockade.connect("stockade://127.0.0.1:7379");
             Lease lease = shop.lease("sku:42", 30_000, 10_000)) {
            // prices, payment, a pause: whatever takes its time happens here
            System.out.println("sold, left: " + lease.take(1));
            return;
        } catch (SoldOut none) {
            System.out.println("sold out");
        } catch (Held taken) {
            System.out.println("busy: others are selling it");
        } catch (Stale lost) {
            System.out.println("not sold: the lease passed on, and nothing changed");
        }
        System.exit(1);
    }
}
