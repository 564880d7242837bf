/* SPDX-License-Identifier: Apache-2.0 */
/* OpenSSL reads and writes through a BIO of our own: it reads where tls_receive's caller has the
 * bytes, and writes behind what the caller's buffer has. So nothing is copied twice, and an idle
 * connection keeps no buffer (memory BIOs keep the largest they ever had). */
#include "fence/base/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/file.h"
#include "fence/base/mem.h"
#include "fence/base/plain.h"

struct tls_context {
    SSL_CTX *ssl;
    BIO_METHOD *bio;
    size_t uses; /* the owner's and each connection's */
    bool server;
    /* A client's last session, to go on with, and the name that was verified in it: a session is
     * good for that name only, since the certificate is not looked at again. */
    SSL_SESSION *session;
    char *session_name;
};

struct tls {
    SSL *ssl;
    struct tls_context *context;
    char *name;           /* a client's: the server's */
    struct bytes arrived; /* during tls_receive: not read yet */
    struct buf *to_send;  /* during a call */
    enum tls_state state;
    char why[TLS_WHY_MAX];
};

/* The BIO. */

static int bio_read(BIO *bio, char *out, int size)
{
    struct tls *tls = BIO_get_data(bio);
    size_t len = tls->arrived.len < (size_t)size ? tls->arrived.len : (size_t)size;

    BIO_clear_retry_flags(bio);
    if (len == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    memcpy(out, tls->arrived.data, len);
    tls->arrived = (struct bytes){tls->arrived.data + len, tls->arrived.len - len};
    return (int)len;
}

static int bio_write(BIO *bio, const char *data, int len)
{
    struct tls *tls = BIO_get_data(bio);

    BIO_clear_retry_flags(bio);
    buf_append(tls->to_send, data, (size_t)len);
    return len;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH; /* all else it cannot do */
}

static int bio_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

static BIO_METHOD *make_bio_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "stockade");

    check(method != NULL && BIO_meth_set_read(method, bio_read) == 1 &&
          BIO_meth_set_write(method, bio_write) == 1 && BIO_meth_set_ctrl(method, bio_ctrl) == 1 &&
          BIO_meth_set_create(method, bio_create) == 1);
    return method;
}

/* Contexts. */

enum { PEM_MAX = 4 << 20 }; /* bytes; a system's CAs have a fifth of a million */

static bool is_set(const char *file)
{
    return file != NULL && file[0] != '\0';
}

/* What OpenSSL says of the first error, which is nearest to the cause. */
static const char *reason(void)
{
    unsigned long code = ERR_peek_error();
    const char *text =
        ERR_SYSTEM_ERROR(code) ? plain_errno(ERR_GET_REASON(code)) : ERR_reason_error_string(code);
    return text != NULL ? text : "unknown error";
}

static bool refuse(char why[TLS_WHY_MAX], const char *what, const char *file, const char *reason)
{
    text_print(why, TLS_WHY_MAX, "the %s %s cannot be used: %s", what, file, reason);
    return false;
}

/* Never ask a terminal. */
static int no_password(char *out, int size, int writing, void *data)
{
    (void)out, (void)size, (void)writing, (void)data;
    return -1;
}

/* OpenSSL's own words are of no help: "unsupported", "key values mismatch". */
static const char *key_reason(void)
{
    bool encrypted = false, other = false;

    for (unsigned long code; (code = ERR_get_error()) != 0;) {
        int reason = ERR_GET_REASON(code), from = ERR_GET_LIB(code);
        encrypted |= from == ERR_LIB_PEM && reason == PEM_R_BAD_PASSWORD_READ;
        other |= from == ERR_LIB_X509 &&
                 (reason == X509_R_KEY_VALUES_MISMATCH || reason == X509_R_KEY_TYPE_MISMATCH);
    }
    return other       ? "it belongs to another certificate"
           : encrypted ? "it is encrypted; keep it without a password, readable by few"
                       : "there is no private key in it";
}

/* Nor is "no start line". */
static const char *cert_reason(void)
{
    unsigned long code = ERR_peek_error();

    return ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE
               ? "there is no certificate in it"
               : reason();
}

/* The certificate, and behind it those that lead to its CA. */
static bool use_chain(SSL_CTX *ssl, BIO *pem)
{
    X509 *cert = PEM_read_bio_X509_AUX(pem, NULL, no_password, NULL);
    bool used = cert != NULL && SSL_CTX_use_certificate(ssl, cert) == 1;

    X509_free(cert);
    while (used && (cert = PEM_read_bio_X509(pem, NULL, no_password, NULL)) != NULL) {
        used = SSL_CTX_add0_chain_cert(ssl, cert) == 1;
        if (!used)
            X509_free(cert);
    }
    unsigned long code = ERR_peek_last_error();
    if (!used || ERR_GET_LIB(code) != ERR_LIB_PEM || ERR_GET_REASON(code) != PEM_R_NO_START_LINE)
        return false;
    ERR_clear_error(); /* that is the end of the file */
    return true;
}

static bool use_key(SSL_CTX *ssl, BIO *pem)
{
    EVP_PKEY *key = PEM_read_bio_PrivateKey(pem, NULL, no_password, NULL);
    bool used = key != NULL && SSL_CTX_use_PrivateKey(ssl, key) == 1;

    EVP_PKEY_free(key);
    return used;
}

/* Trust these CAs, and name them to clients. */
static bool use_ca(SSL_CTX *ssl, BIO *pem)
{
    STACK_OF(X509_INFO) *all = PEM_X509_INFO_read_bio(pem, NULL, no_password, NULL);
    X509_STORE *store = SSL_CTX_get_cert_store(ssl);
    int found = 0;

    for (int i = 0; i < sk_X509_INFO_num(all); i++) {
        const X509_INFO *info = sk_X509_INFO_value(all, i);
        if (info->x509 != NULL && X509_STORE_add_cert(store, info->x509) == 1 &&
            SSL_CTX_add_client_CA(ssl, info->x509) == 1)
            found++;
        if (info->crl != NULL && X509_STORE_add_crl(store, info->crl) == 1)
            found++;
    }
    if (found == 0 && all != NULL)
        ERR_raise(ERR_LIB_X509, X509_R_NO_CERTIFICATE_OR_CRL_FOUND);
    sk_X509_INFO_pop_free(all, X509_INFO_free);
    return found > 0;
}

/* OpenSSL's own reading of files would wait for a pipe. */
static bool load(SSL_CTX *ssl, const char *what, const char *path,
                 bool (*use)(SSL_CTX *ssl, BIO *pem), const char *(*reason_of)(void),
                 char why[TLS_WHY_MAX])
{
    char unread[FILE_WHY_SIZE];
    struct buf text = {0};

    if (!file_read(path, PEM_MAX, &text, NULL, unread))
        return refuse(why, what, path, unread);
    BIO *pem = BIO_new_mem_buf(text.data, (int)text.len);
    check(pem != NULL);
    bool used = use(ssl, pem) || refuse(why, what, path, reason_of());
    BIO_free(pem);
    explicit_bzero(text.data, text.len);
    buf_free(&text);
    return used;
}

static bool load_own(SSL_CTX *ssl, const struct tls_files *files, char why[TLS_WHY_MAX])
{
    return load(ssl, "certificate", files->cert, use_chain, cert_reason, why) &&
           load(ssl, "key", is_set(files->key) ? files->key : files->cert, use_key, key_reason,
                why);
}

static bool load_ca(SSL_CTX *ssl, const char *ca, char why[TLS_WHY_MAX])
{
    return load(ssl, "CA file", ca, use_ca, reason, why);
}

static int on_new_session(SSL *ssl, SSL_SESSION *session)
{
    struct tls *tls = SSL_get_app_data(ssl);
    struct tls_context *context = tls->context;

    SSL_SESSION_free(context->session);
    free(context->session_name);
    context->session = session; /* its reference is ours now */
    context->session_name = mem_strdup(tls->name);
    return 1;
}

static struct tls_context *make_context(const SSL_METHOD *method, bool server)
{
    struct tls_context *context = mem_zalloc(sizeof *context);

    context->ssl = SSL_CTX_new(method);
    check(context->ssl != NULL);
    context->bio = make_bio_method();
    context->uses = 1;
    context->server = server;
    check(SSL_CTX_set_min_proto_version(context->ssl, TLS1_2_VERSION) == 1);
    SSL_CTX_set_options(context->ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(context->ssl, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(context->ssl, 1);
    SSL_CTX_set_default_passwd_cb(context->ssl, no_password);
    ERR_clear_error();
    return context;
}

static void release_context(struct tls_context *context)
{
    if (--context->uses > 0)
        return;
    SSL_SESSION_free(context->session);
    free(context->session_name);
    SSL_CTX_free(context->ssl);
    BIO_meth_free(context->bio);
    free(context);
}

struct tls_context *tls_context_share(struct tls_context *context)
{
    context->uses++;
    return context;
}

static int64_t cert_ends_s(const X509 *cert)
{
    struct tm utc;

    return ASN1_TIME_to_tm(X509_get0_notAfter(cert), &utc) == 1 ? timegm(&utc) : 0;
}

int64_t tls_context_ends_s(const struct tls_context *context)
{
    const X509 *own = SSL_CTX_get0_certificate(context->ssl);
    STACK_OF(X509) *chain = NULL;

    if (own == NULL)
        return 0;
    int64_t ends_s = cert_ends_s(own);
    SSL_CTX_get0_chain_certs(context->ssl, &chain);
    for (int i = 0; i < sk_X509_num(chain); i++) {
        int64_t other_s = cert_ends_s(sk_X509_value(chain, i));
        ends_s = other_s < ends_s ? other_s : ends_s;
    }
    return ends_s;
}

void tls_context_free(struct tls_context *context)
{
    if (context != NULL)
        release_context(context);
}

static bool set_up_server(SSL_CTX *ssl, const struct tls_files *files, enum tls_clients clients,
                          char why[TLS_WHY_MAX])
{
    static const unsigned char ours[] = "stockade";

    if (!is_set(files->cert)) {
        text_print(why, TLS_WHY_MAX, "TLS needs a certificate");
        return false;
    }
    if (!load_own(ssl, files, why))
        return false;
    /* Clients keep their sessions as tickets, and nothing is remembered here. The tickets' key is
     * the context's: new certificates end old sessions. */
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    check(SSL_CTX_set_session_id_context(ssl, ours, sizeof ours - 1) == 1);
    check(SSL_CTX_set_num_tickets(ssl, 1) == 1);
    if (clients == TLS_CLIENTS_NO)
        return true;
    if (!is_set(files->ca)) {
        text_print(why, TLS_WHY_MAX, "to verify clients' certificates TLS needs a CA file");
        return false;
    }
    if (!load_ca(ssl, files->ca, why))
        return false;
    SSL_CTX_set_verify(ssl,
                       SSL_VERIFY_PEER |
                           (clients == TLS_CLIENTS_REQUIRED ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                       NULL);
    return true;
}

struct tls_context *tls_server(const struct tls_files *files, enum tls_clients clients,
                               char why[TLS_WHY_MAX])
{
    struct tls_context *context = make_context(TLS_server_method(), true);

    if (set_up_server(context->ssl, files, clients, why))
        return context;
    tls_context_free(context);
    return NULL;
}

static bool set_up_client(SSL_CTX *ssl, const struct tls_files *files, char why[TLS_WHY_MAX])
{
    if (is_set(files->cert)) {
        if (!load_own(ssl, files, why))
            return false;
    } else if (is_set(files->key)) {
        text_print(why, TLS_WHY_MAX, "the key %s needs its certificate", files->key);
        return false;
    }
    if (is_set(files->ca)) {
        if (!load_ca(ssl, files->ca, why))
            return false;
    } else if (SSL_CTX_set_default_verify_paths(ssl) != 1) {
        text_print(why, TLS_WHY_MAX, "the system's CA files cannot be used: %s", reason());
        return false;
    }
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(ssl, on_new_session);
    return true;
}

struct tls_context *tls_client(const struct tls_files *files, char why[TLS_WHY_MAX])
{
    struct tls_context *context = make_context(TLS_client_method(), false);

    if (set_up_client(context->ssl, files, why))
        return context;
    tls_context_free(context);
    return NULL;
}

/* Connections. */

/* Errors of others would be taken for ours. There are none, mostly, and to look is cheaper. */
static void forget_errors(void)
{
    if (ERR_peek_error() != 0)
        ERR_clear_error();
}

/* The certificate has to have this name, or this address; a name is told to the server, too. */
static void expect_name(SSL *ssl, const char *name)
{
    X509_VERIFY_PARAM *wanted = SSL_get0_param(ssl);

    if (X509_VERIFY_PARAM_set1_ip_asc(wanted, name) == 1)
        return;
    X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    check(X509_VERIFY_PARAM_set1_host(wanted, name, 0) == 1 &&
          SSL_set_tlsext_host_name(ssl, name) == 1);
}

struct tls *tls_open(struct tls_context *context, const char *name)
{
    struct tls *tls = mem_zalloc(sizeof *tls);
    BIO *bio = BIO_new(context->bio);

    context->uses++;
    tls->context = context;
    tls->ssl = SSL_new(context->ssl);
    check(tls->ssl != NULL && bio != NULL);
    BIO_set_data(bio, tls);
    SSL_set_bio(tls->ssl, bio, bio);
    SSL_set_app_data(tls->ssl, tls);
    if (context->server) {
        SSL_set_accept_state(tls->ssl);
        return tls;
    }
    check(name != NULL && name[0] != '\0');
    tls->name = mem_strdup(name);
    expect_name(tls->ssl, name);
    if (context->session != NULL && strcmp(context->session_name, name) == 0)
        check(SSL_set_session(tls->ssl, context->session) == 1);
    SSL_set_connect_state(tls->ssl);
    return tls;
}

void tls_free(struct tls *tls)
{
    if (tls == NULL)
        return;
    if (tls->state != TLS_FAILED) /* else OpenSSL would not go on with its session later */
        SSL_set_shutdown(tls->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(tls->ssl);
    release_context(tls->context);
    free(tls->name);
    free(tls);
}

static void fail(struct tls *tls)
{
    long verified = SSL_get_verify_result(tls->ssl);
    const char *whose = tls->context->server ? "client" : "server";

    tls->state = TLS_FAILED;
    if (verified != X509_V_OK)
        text_print(tls->why, sizeof tls->why, "TLS: the %s's certificate is refused: %s", whose,
                   X509_verify_cert_error_string(verified));
    else
        text_print(tls->why, sizeof tls->why, "TLS: %s", reason());
}

/* Read all plaintext there is. Returns OpenSSL's reason to stop. It is not asked once more where
 * all has been taken: that costs as much as a small record. */
static int read_all(struct tls *tls, struct buf *plain)
{
    size_t len = 0;

    do {
        char *into = buf_reserve(plain, TLS_RECORD_MAX);
        if (SSL_read_ex(tls->ssl, into, TLS_RECORD_MAX, &len) != 1)
            return SSL_get_error(tls->ssl, 0);
        plain->len += len;
    } while (tls->arrived.len > 0 || SSL_has_pending(tls->ssl) == 1);
    return SSL_ERROR_WANT_READ;
}

enum tls_state tls_receive(struct tls *tls, struct bytes arrived, struct buf *plain,
                           struct buf *to_send)
{
    if (tls->state == TLS_FAILED || tls->state == TLS_ENDED)
        return tls->state;
    tls->arrived = arrived;
    tls->to_send = to_send;
    forget_errors();
    if (tls->state == TLS_HANDSHAKE) {
        int done = SSL_do_handshake(tls->ssl);
        if (done == 1)
            tls->state = TLS_OPEN;
        else if (SSL_get_error(tls->ssl, done) != SSL_ERROR_WANT_READ)
            fail(tls);
    }
    if (tls->state == TLS_OPEN) {
        int stopped = read_all(tls, plain);
        if (stopped == SSL_ERROR_ZERO_RETURN)
            tls->state = TLS_ENDED;
        else if (stopped != SSL_ERROR_WANT_READ)
            fail(tls);
    }
    tls->arrived = (struct bytes){0};
    tls->to_send = NULL;
    return tls->state;
}

void tls_send(struct tls *tls, struct bytes plain, struct buf *to_send)
{
    size_t done = 0;

    check(tls->state == TLS_OPEN || tls->state == TLS_ENDED);
    if (plain.len == 0)
        return;
    tls->to_send = to_send;
    forget_errors();
    if (SSL_write_ex(tls->ssl, plain.data, plain.len, &done) != 1 || done != plain.len)
        fail(tls);
    tls->to_send = NULL;
}

void tls_end(struct tls *tls, struct buf *to_send)
{
    if (tls->state != TLS_OPEN && tls->state != TLS_ENDED)
        return;
    tls->to_send = to_send;
    forget_errors();
    (void)SSL_shutdown(tls->ssl); /* whether the peer says so, too, is not awaited */
    tls->to_send = NULL;
}

enum tls_state tls_state(const struct tls *tls)
{
    return tls->state;
}

const char *tls_why(const struct tls *tls)
{
    return tls->why;
}

const char *tls_version(const struct tls *tls)
{
    return SSL_get_version(tls->ssl);
}

bool tls_was_resumed(const struct tls *tls)
{
    return SSL_session_reused(tls->ssl) == 1;
}

/* Names in certificates. */

/* Without a zero in it: "root" must not be read out of "root\0.example.com". */
static bool copy_name(const ASN1_STRING *text, char *out, size_t size)
{
    unsigned char *utf8 = NULL;
    int len = ASN1_STRING_to_UTF8(&utf8, text);
    bool fits = len > 0 && (size_t)len < size && memchr(utf8, '\0', (size_t)len) == NULL;

    if (fits) {
        memcpy(out, utf8, (size_t)len);
        out[len] = '\0';
    }
    OPENSSL_free(utf8);
    return fits;
}

bool tls_peer_common_name(const struct tls *tls, char *out, size_t size)
{
    X509 *cert = SSL_get0_peer_certificate(tls->ssl);

    if (cert == NULL)
        return false;
    const X509_NAME *subject = X509_get_subject_name(cert);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    if (at < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0)
        return false;
    return copy_name(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)), out, size);
}

bool tls_peer_uri(const struct tls *tls, char *out, size_t size)
{
    X509 *cert = SSL_get0_peer_certificate(tls->ssl);
    const ASN1_STRING *uri = NULL;
    int count = 0;

    if (cert == NULL)
        return false;
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_URI)
            continue;
        uri = name->d.uniformResourceIdentifier;
        count++;
    }
    bool found = count == 1 && copy_name(uri, out, size);
    GENERAL_NAMES_free(names);
    return found;
}

/* It is written in lists, logs and rules: one word, and nothing that a terminal would obey. */
static bool is_word(const char *name)
{
    const char *at = name;

    while ((unsigned char)*at > ' ' && *at != 0x7f)
        at++;
    return at > name && *at == '\0';
}

bool tls_peer_user(const struct tls *tls, enum tls_user kind, char *out, size_t size)
{
    bool named = kind == TLS_USER_CN    ? tls_peer_common_name(tls, out, size)
                 : kind == TLS_USER_URI ? tls_peer_uri(tls, out, size)
                                        : false;
    return named && is_word(out);
}
