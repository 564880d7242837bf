// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.io.IOException;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/** Where a daemon listens, and who logs in: {@code stockade://[user:password@]host[:port]}. */
record Address(String host, int port, String user, String password, String clientName) {
    static final int PORT = 7379;
    static final String CLIENT_NAME = processName();
    private static final String SCHEME = "stockade://";
    private static final String SHAPE = "expected stockade://[user:password@]host[:port], not ";

    static Address parse(String uri) {
        if (uri == null || !uri.startsWith(SCHEME)) {
            throw new IllegalArgumentException(hint(uri));
        }
        String rest = uri.substring(SCHEME.length());
        String user = null;
        String password = null;
        int login = rest.lastIndexOf('@');
        if (login >= 0) {
            int colon = rest.indexOf(':');
            if (colon < 0 || colon > login) {
                throw new IllegalArgumentException(SHAPE + hidden(uri));
            }
            user = colon == 0 ? "default" : decode(rest.substring(0, colon));
            password = decode(rest.substring(colon + 1, login));
            rest = rest.substring(login + 1);
        }
        if (rest.endsWith("/")) {
            rest = rest.substring(0, rest.length() - 1);
        }
        int bracket = rest.lastIndexOf(']');
        int colon = rest.lastIndexOf(':');
        String host = colon > bracket ? rest.substring(0, colon) : rest;
        if (host.startsWith("[") && host.endsWith("]")) {
            host = host.substring(1, host.length() - 1);
        }
        if (host.isEmpty() || host.matches(".*[/?#@\\[\\]].*")) {
            throw new IllegalArgumentException(SHAPE + hidden(uri));
        }
        int port = colon > bracket ? port(rest.substring(colon + 1), uri) : PORT;
        return new Address(host, port, user, password, CLIENT_NAME);
    }

    /**
     * Tells the processes of a program apart, also on several machines behind one address:
     * Till-4711@web-2.
     */
    private static String processName() {
        String command = System.getProperty("sun.java.command", "").split(" ")[0]; // class or jar
        String file = command.substring(command.lastIndexOf('/') + 1);
        String program =
            file.endsWith(".jar") ? file : file.substring(file.lastIndexOf('.') + 1);
        String name = cut(program.isEmpty() ? "java" : program, 32) + "-"
            + ProcessHandle.current().pid() + "@" + cut(hostname(), 20);
        return name.replaceAll("[^!-~]", "-");
    }

    /** InetAddress.getLocalHost() asks the name service, which may take long. */
    private static String hostname() {
        try {
            return Files.readString(Path.of("/proc/sys/kernel/hostname")).strip();
        } catch (IOException elsewhere) {
            return "";
        }
    }

    private static String cut(String text, int max) {
        return text.substring(0, Math.min(max, text.length()));
    }

    /** The same under another name. */
    Address named(String clientName) {
        return new Address(host, port, user, password, clientName);
    }

    private static int port(String text, String uri) {
        try {
            int port = Integer.parseInt(text);
            if (port > 0 && port < 65536) {
                return port;
            }
        } catch (NumberFormatException bad) {
            // is refused below
        }
        throw new IllegalArgumentException(SHAPE + hidden(uri));
    }

    /** %XX stands for a byte; a plus for itself. */
    private static String decode(String text) {
        return URLDecoder.decode(text.replace("+", "%2B"), StandardCharsets.UTF_8);
    }

    /**
     * What to do instead. The JDK reaches a unix socket by a SocketChannel only, which an interrupt
     * closes, and here an interrupt never ends a write.
     */
    private static String hint(String uri) {
        if (uri != null && uri.startsWith("stockade+unix:")) {
            return "this package connects by TCP only: start the daemon with --listen "
                + "127.0.0.1:7379 as well, and connect to stockade://127.0.0.1:7379";
        }
        if (uri != null && uri.startsWith("stockades:")) {
            return "this package has no TLS: connect through stunnel on this machine, or have the "
                + "daemon listen on a plain address of a network that you trust";
        }
        if (uri != null && uri.startsWith("sqlite:")) {
            return "this package talks to a daemon: start stockaded --store " + uri
                + ", and connect to stockade://127.0.0.1:7379. Without a daemon: libstockade";
        }
        return SHAPE + hidden(uri);
    }

    /** The URI without its password. */
    private static String hidden(String uri) {
        return uri == null ? "null" : uri.replaceFirst("//[^@]*@", "//...@");
    }

    /** Says HELLO: RESP3, a name for CLIENT LIST, and the login where there is one. */
    Request hello() {
        return password == null
                   ? Request.of("HELLO", 3, "SETNAME", clientName)
                   : Request.of("HELLO", 3, "AUTH", user, password, "SETNAME", clientName);
    }

    @Override
    public String toString() {
        return (host.indexOf(':') < 0 ? host : "[" + host + "]") + ":" + port;
    }
}
